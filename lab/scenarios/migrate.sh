# Guests move to another domain of this host (`xl migrate`): netfront's and our frontend's.
# boot: pv
# timeout: 300
# needs: grantway-xen
# order: 1
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
guest_start g2 modules=tun
xl network-attach g2 bridge=xenbr0 >&2
frontend_start g2
# move NAME: without ssh, for it is this host that receives.
move() {
    _old=$(domid "$1")
    xl migrate -s '' "$1" 'xl migrate-receive' >"$LAB/logs/xl-migrate-$1" 2>&1 ||
        fail "xl migrate $1: $(tail -n 3 "$LAB/logs/xl-migrate-$1")"
    wait_for 30 domid_is_not "$1" "$_old"
    guest_ready "$1"
    wait_for 30 vif_connected "$1"
}
for round in 1 2; do
    for guest in g1 g2; do
        move $guest
        pings dom0 $guest 10
        pings $guest dom0 10
    done
    pings g1 g2
done
iperf_server dom0
tcp g1 dom0
tcp g2 dom0
tcp g2 dom0 -R
expect "$(frontend_said g2 | grep -c 'link up')" = 3 "connections of the frontend"
say "two moves of each guest"
xl destroy g1
xl destroy g2
nothing_left
