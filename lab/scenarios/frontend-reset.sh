# Our frontend in a guest that has netfront loaded as well. Since Linux 7.0 its kernel takes a
# vif that returns to Initialising for a new one, and gives it to netfront.
# boot: pv
# timeout: 240
# needs: grantway-xen
bridge_up
start_backend
guest_start g1 modules=xen-netfront,tun vif=bridge=xenbr0
guest_run g1 'echo vif-0 >/sys/bus/xen/drivers/vif/unbind' >&2
frontend_start g1 --policy staging
# ours COUNT: frames cross, netfront has nothing, and this is connection COUNT of ours.
ours() {
    wait_for 30 vif_connected g1
    pings dom0 g1 10
    pings g1 dom0 10
    guest_run g1 '[ ! -e /sys/bus/xen/devices/vif-0/driver ] && [ ! -e /sys/class/net/eth0 ]' ||
        fail "netfront has the vif: $(guest_run g1 'ls /sys/class/net; dmesg | tail -n 3')"
    expect "$(frontend_said g1 | grep -c 'link up')" = "$1" "connections of the frontend"
}
ours 1
iperf_server dom0
tcp g1 dom0
if [ "$(backend_kind)" = grantway ]; then
    # A backend that knows nothing of its predecessor closes the vif, and connects it anew.
    for count in 2 3; do
        kill_backend -9
        rm -r /run/grantway
        start_backend
        ours $count
    done
    # Rings, the control ring and all buffers, once.
    wait_for 20 frontend_mapped g1
    say "the backend closed the vif and connected it anew: netfront did not notice"
fi
# Another frontend process, after one that ended and one that was killed.
for signal in -TERM -9; do
    frontend_kill g1 $signal
    frontend_start g1 --policy staging
    pings dom0 g1
done
# Now it is a new vif, and netfront may have had it for a moment.
links=$(frontend_said g1 | grep -c 'link up')
xl network-detach g1 0 >&2
told() { frontend_said g1 | grep 'the vif was detached; waiting'; }
wait_for 20 told
xl network-attach g1 bridge=xenbr0 >&2
ours $((links + 1))
tcp g1 dom0 -R
say "a new vif is ours, too"
frontend_kill g1 -TERM
xl destroy g1
nothing_left
