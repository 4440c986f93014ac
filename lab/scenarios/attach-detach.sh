# A vif comes and goes, up to 20 times, while it and its neighbour are busy.
# order: 2
# boot: pv
# timeout: 300
# needs: grantway-xen
bridge_up
bridge_up xenbr1 1
start_backend
guest_start g1 vif=bridge=xenbr0
iperf_server dom0
# No more than leaves an emulated processor time for the rest.
load_start g1 dom0 -b 20M
# The guest has it busy by itself as soon as it is there.
guest_run g1 'while :; do
    if ip link set eth1 up 2>/dev/null; then
        ip addr replace 10.0.1.101/24 dev eth1
        ping -U -q -i 0.005 -w 60 10.0.1.1 >/dev/null 2>&1
    fi
    usleep 50000
done &'
# busy: what was sent there was answered, and more is on its way.
busy() { [ "$(counter "$vif" tx_packets)" -ge 20 ] && [ "$(counter "$vif" rx_packets)" -ge 20 ]; } 2>/dev/null
vif=$(vif_of g1 1)
rounds=0
while again 6 20 110; do
    xl network-attach g1 devid=1 bridge=xenbr1 >&2
    wait_for 20 busy
    xl network-detach g1 1 >&2
    wait_for 20 no_interface "$vif"
    guest_run g1 'killall -q ping; while [ -e /sys/class/net/eth1 ]; do usleep 50000; done' || fail "g1 still has eth1"
done
load_goes_on g1
say "$rounds rounds"
xl destroy g1
nothing_left
