# Brings dom0 back to where it was before a scenario.

# store_lives: whether there is a xenstored. Xen's tools hang without one.
store_lives() { [ -e "/proc/$(cat /run/xenstored/xenstored.pid)/exe" ]; }

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
    rm -rf /var/lib/xen/save/* /run/grantway
    # Debian's packages had theirs in their place, and took them along.
    for file in /lab/own/grantway*; do
        [ ! -e "$file" ] || ln -f "$file" /usr/bin/
    done
    rm -f /usr/lib/modprobe.d/grantway.conf
    left=$(timeout $((10 * $(slowness))) xl list | awk 'NR > 1 && $2 != 0') || return 1
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}
