# A backend that crashes under iperf3, by a signal or by a panic of a worker, ends at once
# and says why; its successor takes over, and the same TCP connection goes on.
# boot: pv
# timeout: 200
# needs: grantway-xen drill
only_grantway
bridge_up
# In this build SIGUSR1 has a worker panic at its next turn.
grantway=grantway-drill
start_backend
guest_start g1 vif=bridge=xenbr0
iperf_server dom0

# crash SIGNAL: until it is dead. What Rust installs for stacks that overflow takes a first
# SIGSEGV that came from elsewhere for none, and lets the next one through.
crash() {
    _pid=$(cat $LAB/backend.pid)
    kill "$1" "$_pid"
    wait_for 15 crashed "$1"
    wait "$_pid" || true
}
crashed() {
    [ -e "/proc/$_pid/exe" ] || return 0
    kill "$1" "$_pid" 2>/dev/null || true
    return 1
}

for direction in "" -R; do
    load_start g1 dom0 $direction
    for signal in -SEGV -ABRT -USR1; do
        panics=$(grep -c 'panic requested by SIGUSR1' $LAB/logs/backend || true)
        crash $signal
        now=$(grep -c 'panic requested by SIGUSR1' $LAB/logs/backend || true)
        expect $((now > panics)) = $([ $signal = -USR1 ] && echo 1 || echo 0) "panics told after $signal"
        start_backend
        load_goes_on g1
    done
    load_stop g1
    say "SIGSEGV, SIGABRT and a panic under iperf3 $direction: the connection went on"
done
pings dom0 g1
pings g1 dom0
xl destroy g1
nothing_left
