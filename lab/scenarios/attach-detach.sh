# A vif comes and goes, 20 times, while it and its neighbour are busy.
# boot: pv
# timeout: 300
# needs: grantway-xen
bridge_up
bridge_up xenbr1 1
start_backend
guest_start g1 vif=bridge=xenbr0
iperf_server dom0
load_start g1 dom0
for i in $(seq 20); do
    vif_attach g1 1 bridge=xenbr1
    guest_net g1 eth1 1
    guest_run g1 'ping -q -i 0.1 -w 20 -c 2 10.0.1.1' >&2 || fail "round $i: no ping on the new vif"
    guest_run g1 'ping -q -f -w 60 10.0.1.1 >/dev/null 2>&1 &'
    vif_detach g1 1
    guest_run g1 'killall ping; true' >&2
done
load_flows g1 || fail "the other vif's traffic stopped"
say "20 rounds"
xl destroy g1
nothing_left
