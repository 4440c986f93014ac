# What dom0 and guests do alike when they come up.

mount_all() {
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t devtmpfs devtmpfs /dev
    mkdir -p /dev/pts /dev/shm
    mount -t devpts devpts /dev/pts
    mount -t tmpfs tmpfs /run
    mkdir -p /run/lock /run/xen /run/xenstored /run/lab
    ip link set lo up
    patience
}

# patience: what the kernel and our commands wait for, they wait for longer. A processor of
# the emulated machine may stand still for seconds, beside others that go on: by default an
# address that has not answered three probes within three seconds is unreachable, and the
# packets for it are dropped.
patience() {
    local family
    for family in ipv4 ipv6; do
        echo 60 >/proc/sys/net/$family/neigh/default/mcast_solicit
        echo 60 >/proc/sys/net/$family/neigh/default/ucast_solicit
    done
    # For sockets that hold what comes while their reader stands still.
    echo 8388608 >/proc/sys/net/core/rmem_max
    echo 8388608 >/proc/sys/net/core/wmem_max
    export GRANTWAY_PATIENCE=120 GRANTWAY_FAREWELL=120
}

xen_devices() {
    local module
    # In a driver domain xl needs more hypercalls than a guest's tools get.
    # First, for xenfs would load it without.
    modprobe xen-privcmd unrestricted=1
    for module in xen-evtchn xen-gntdev xen-gntalloc xenfs; do
        modprobe "$module"
    done
    mount -t xenfs xenfs /proc/xen
}

# slowness: by how much this machine is slower than an idle one, in whole
# numbers. Limits of time are multiplied by it.
slowness() { cat /run/lab/slow; }

# patient SECONDS: how long to wait for what an idle machine does within SECONDS. It only
# guards against hanging, so it is a minute at least.
patient() { echo $(($1 * $(slowness) > 60 ? $1 * $(slowness) : 60)); }

# word NAME: the value of NAME= on the kernel's command line.
word() { sed -n "s/.*\\b$1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }
