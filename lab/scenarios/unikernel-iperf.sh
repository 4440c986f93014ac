# Guests that are one program, by iperf 2: both ways with a stock guest, with dom0 and with each
# other, by copy and by staging, through TAPs and on the backend's own bridge.
# boot: hvm
# timeout: 300
# needs: grantway-xen
only_grantway
# both_ways POLICY: all pairs, of which u2 serves.
both_ways() {
    say "$1:"
    unikernel_start u2 iperf=server policy=$1
    [ $1 = copy ] || wait_for 30 unikernel_staged u2
    iperf2_sends dom0 u2 4194304
    iperf2_sends g1 u2 4194304
    iperf2_takes u3 u2 4194304 policy=$1
    iperf2_takes u3 dom0 4194304 policy=$1
    iperf2_takes u3 g1 4194304 policy=$1
    xl destroy u2
}
say "TAPs and the kernel's bridge"
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
iperf2_server dom0
iperf2_server g1
errors=$(checksum_errors g1)
both_ways copy
both_ways staging
expect "$(checksum_errors g1)" = "$errors" "checksum errors in g1"
xl destroy g1
nothing_left
kill_backend -TERM
ip link del xenbr0
say "the backend's own bridge"
start_backend --port bridge --uplink tap:gw0
ip addr add 10.0.0.1/24 dev gw0
unikernel_vif=script=vif-grantway
guest_start g1 vif=$unikernel_vif
iperf2_server g1
both_ways copy
both_ways staging
xl destroy g1
nothing_left
