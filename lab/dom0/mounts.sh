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

# word NAME: the value of NAME= on the kernel's command line.
word() { sed -n "s/.*\\b$1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }
