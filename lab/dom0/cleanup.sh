# Brings dom0 back to where it was before a scenario.

# store_lives: whether there is a xenstored. Xen's tools hang without one.
store_lives() { [ -e "/proc/$(cat /run/xenstored/xenstored.pid)/exe" ]; }

# keep_files: notes how the folders are that packages write to. Those below /lab/kept are links:
# a package takes files away and puts others into their places, but writes into none.
keep_files() {
    mkdir -p /lab/kept/var
    packaged >/lab/kept/list
    cp -al /etc /usr /lab/kept/
    cp -al /var/lib /lab/kept/var/
}
packaged() { find /etc /usr /var/lib -xdev; }
# files_back: makes them so again, where they were noted.
files_back() {
    local path
    [ -e /lab/kept ] || return 0
    while read -r path; do
        if [ -d "/lab/kept$path" ] && [ ! -L "/lab/kept$path" ]; then
            mkdir -p "$path"
        elif [ ! "$path" -ef "/lab/kept$path" ]; then
            ln -f "/lab/kept$path" "$path"
        fi
    done </lab/kept/list
    # What came, the innermost first.
    packaged | awk 'NR == FNR { old[$0]; next } !($0 in old)' /lab/kept/list - | sort -r >/lab/kept/came
    while read -r path; do
        if [ -d "$path" ] && [ ! -L "$path" ]; then rmdir "$path"; else rm "$path"; fi
    done </lab/kept/came
    rm -r /lab/kept
}

# clean_up: fails where something is left that nothing removes.
clean_up() {
    local id left dev file
    if ! store_lives; then
        echo 1 >/sys/fs/cgroup/scenario/cgroup.kill
        echo "there is no xenstored"
        return 1
    fi
    for id in $(timeout $((10 * $(slowness))) xl list | awk 'NR > 1 && $2 != 0 { print $2 }'); do
        timeout $((20 * $(slowness))) xl destroy "$id"
    done
    # Everything that the scenario started, daemons too.
    echo 1 >/sys/fs/cgroup/scenario/cgroup.kill
    left=$(($(patient 5) * 5))
    # A systemd has made groups of its own in it.
    while [ -e /sys/fs/cgroup/scenario ] && [ $left -gt 0 ]; do
        find /sys/fs/cgroup/scenario -depth -type d -exec rmdir {} + 2>/dev/null
        [ ! -e /sys/fs/cgroup/scenario ] || usleep 200000
        left=$((left - 1))
    done
    for dev in /sys/class/net/vif* /sys/class/net/*/bridge /sys/class/net/gw*; do
        dev=${dev#/sys/class/net/}
        [ ! -e "/sys/class/net/${dev%%/*}" ] || ip link delete "${dev%%/*}"
    done
    if grep -q '^xen_netback ' /proc/modules; then
        timeout $((20 * $(slowness))) rmmod xen-netback || return 1
    fi
    for id in $(timeout $((5 * $(slowness))) xenstore-list /local/domain/0/backend/vif); do
        timeout $((5 * $(slowness))) xenstore-rm "/local/domain/0/backend/vif/$id"
    done
    rm -rf /var/lib/xen/save/* /run/grantway /run/systemd
    files_back || return 1
    left=$(timeout $((10 * $(slowness))) xl list | awk 'NR > 1 && $2 != 0') || return 1
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}
