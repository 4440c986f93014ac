# A build of an earlier version serves; this one takes over from its journal under iperf3,
# and the same TCP connection goes on, both ways. lab/before names that build's commit.
# boot: pv
# timeout: 200
# needs: grantway-xen lab/before
only_grantway
bridge_up
say "from $(grantway-before --version) to $(grantway --version)"
for direction in "" -R; do
    grantway=grantway-before
    start_backend
    guest_start g1 vif=bridge=xenbr0
    [ -n "${iperf_pid-}" ] || iperf_server dom0
    load_start g1 dom0 $direction
    kill_backend -9
    grantway=grantway
    start_backend
    load_goes_on g1
    # And from itself, by what it wrote since.
    kill_backend -9
    start_backend
    load_goes_on g1
    load_stop g1
    pings dom0 g1
    pings g1 dom0
    xl destroy g1
    guest_gone g1
    kill_backend -TERM
    say "iperf3 $direction: the connection went on"
done
start_backend
nothing_left
