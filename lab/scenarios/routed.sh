# A vif that vif-route sets up: dom0 routes to the guest, whose neighbour entry for dom0 is
# permanent and has the address of netback's interfaces. It holds after a takeover, too.
# boot: pv
# timeout: 240
# needs: grantway-xen
bridge_up eth0
start_backend
guest_start g1 vif=ip=10.0.0.101,script=vif-route
vif=$(vif_of g1)
guest_run g1 'ip neigh replace 10.0.0.1 lladdr fe:ff:ff:ff:ff:ff dev eth0 nud permanent'

# Both ways, over the route that the script made.
routed() {
    expect "$(cat "/sys/class/net/$vif/address")" = fe:ff:ff:ff:ff:ff "the address of $vif"
    ip route get 10.0.0.101 | grep -q "dev $vif" || fail "no route: $(ip route get 10.0.0.101)"
    pings g1 dom0 20
    pings dom0 g1 20
}
routed
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
if [ "$(backend_kind)" = grantway ]; then
    kill_backend
    start_backend
    routed
fi
xl destroy g1
nothing_left
