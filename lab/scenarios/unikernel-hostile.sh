# Two guests at once that attack their backend by rings, grants, events, keys and control messages,
# beside a stock guest under iperf3, which notices nothing: with TAPs, and with the backend's own bridge.
# boot: hvm
# timeout: 400
# needs: grantway-xen
only_grantway
for port in tap bridge; do
    if [ $port = tap ]; then
        vif=bridge=xenbr0
        bridge_up
        start_backend
    else
        vif=script=vif-grantway
        ip link del xenbr0
        start_backend --port bridge --uplink tap:gw0
        ip addr add 10.0.0.1/24 dev gw0
    fi
    guest_start g1 vif=$vif
    iperf_server dom0
    load_start g1 dom0
    resident=$(backend_resident)
    hostile_start u2 $vif seed=1 rounds=1 "victim=$(guest_run g1 cat /sys/class/net/eth0/address)"
    hostile_start u3 $vif seed=2 rounds=1 end=crash
    load_goes_on g1
    for enemy in u2 u3; do
        load_goes_on g1
        wait_for 240 hostile_over $enemy
        said=$(hostile_said $enemy)
        case $said in over:*) ;; *) fail "$enemy on $port: $said" ;; esac
        say "$port, $enemy: $said"
    done
    load_goes_on g1
    backend_alive || fail "the backend ended"
    expect "$(grep -c panicked $LAB/logs/backend || true)" = 0 "panics of the backend"
    # Nothing that they left behind is in the way of the next one.
    for enemy in u2 u3; do xl destroy $enemy; done
    load_goes_on g1
    load_stop g1
    pings dom0 g1
    expect "$(checksum_errors g1)" = 0 "checksum errors of the honest guest"
    say "  the backend's memory grew by $(($(backend_resident) - resident)) KiB"
    iperf_server_end
    xl destroy g1
    nothing_left
    kill_backend -TERM
done
