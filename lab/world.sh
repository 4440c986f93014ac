# What setup and image know of the world that $world names: worlds/WORLD/world.
if [ ! -e "worlds/$world/world" ]; then
    echo "lab: no world $world; there are: $(cd worlds && echo *)" >&2
    exit 2
fi

# setting NAME: its value, or nothing.
setting() { sed -n "s/^$1 *= *//p" "worlds/$world/world"; }

# listed FILE: without its comments.
listed() { sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$1"; }

# wanted: the packages that it is made of.
wanted() { listed packages/common && listed "worlds/$world/packages"; }
