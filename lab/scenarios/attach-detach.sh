# A vif comes and goes, 20 times, while it and its neighbour are busy.
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
for i in $(seq 20); do
    vif_attach g1 1 bridge=xenbr1
    # It is busy from now on.
    guest_net g1 eth1 1 'ping -q -i 0.1 -w 20 -c 2 10.0.1.1 && { ping -q -i 0.005 -w 60 10.0.1.1 >/dev/null 2>&1 & }'
    vif_detach g1 1
done
load_flows g1 || fail "the other vif's traffic stopped"
say "$i rounds"
xl destroy g1
nothing_left
