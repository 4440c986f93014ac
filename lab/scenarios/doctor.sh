# `grantway doctor` finds nothing where all is well, and names what is wrong.
# order: 1
# boot: pv
# timeout: 150
# needs: grantway-xen
only_grantway
# finds STATUS TEXT...: it ends with STATUS, and a line has each TEXT.
finds() {
    _want=$1 _status=0
    shift
    grantway doctor >$LAB/logs/doctor 2>&1 || _status=$?
    cat $LAB/logs/doctor >&2
    expect $_status = "$_want" "status of doctor"
    for _text in "$@"; do
        grep -q -- "$_text" $LAB/logs/doctor || fail "doctor does not say: $_text"
    done
}
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
vif=$(vif_of g1)
finds 0 "Xen $(hypervisor_version | cut -d. -f1,2)" "$vif"
say "all is well: $(grep -c . $LAB/logs/doctor) findings"

# The interface and its vif do not agree.
ip link set "$vif" mtu 1400
finds 0 "$vif.*1400"
ip link set "$vif" mtu 1500

# The kernel's driver beside us: it came after, so it holds nothing yet.
with_netback
finds 1 "xen[-_]netback"
say "$(grep netback $LAB/logs/doctor | head -n 1)"
without_netback

# A vif whose script never says that it is done.
printf '#!/bin/sh\nsleep 60\n' >/etc/xen/scripts/vif-hangs
chmod +x /etc/xen/scripts/vif-hangs
xl network-attach g1 devid=1 script=vif-hangs >&2 &
stuck() { [ "$(vif_state g1 1)" = "2 4" ]; }
wait_for 20 stuck
finds 1 "vif$(domid g1).1.*hotplug"
say "$(grep "vif$(domid g1).1" $LAB/logs/doctor | head -n 1)"

# Nobody serves.
kill_backend -9
finds 1 "backend"
say "$(grep -i 'backend' $LAB/logs/doctor | head -n 1)"
xl destroy g1
# What the killed one left of a vif that is no more goes with the next start.
expect "$(vifs_left)" != "" "interfaces left"
finds 0 "$vif .*TAP"
start_backend
nothing_left
