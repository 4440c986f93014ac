# The lab itself: who stands still for longer than Linux waits for an address, as an emulated
# processor may, is waited for, and what was sent meanwhile arrives.
# boot: pv
# timeout: 150
# needs: grantway-xen
# order: 1
only_grantway
bridge_up
start_backend
guest_start "g1 g2" vif=bridge=xenbr0
iperf_server dom0
# still COMMAND...: for six seconds the backend does nothing while COMMAND begins.
still() {
    kill -STOP "$(cat $LAB/backend.pid)"
    (
        sleep 6
        kill -CONT "$(cat $LAB/backend.pid)"
    ) &
    _still=$!
    "$@"
    wait $_still
}
# Nobody has asked for these addresses yet.
still pings dom0 g1
still pings6 dom0 g1
still pings g1 g2
still pings6 g1 g2
say "the backend stood still, and each address was found"
still udp g1 dom0
still udp g1 dom0 -R
still tcp g2 dom0
# A guest as well, whose clock then jumps.
guest_stands() {
    xl pause g1
    sleep 6
    xl unpause g1
}
guest_stands &
pings dom0 g1 20
wait $!
pings g1 dom0
say "a guest stood still, and lost nothing"
xl destroy g1
xl destroy g2
nothing_left
