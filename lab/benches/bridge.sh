# Our backend and its own bridge.
# boot: bench
# order: 3
# timeout: 300
start_backend --port bridge --uplink tap:gw0
ip addr add 10.0.0.1/24 dev gw0
guest_start g1 vif=script=vif-grantway
guest_start g2 vif=script=vif-grantway
iperf_server g2
load_start g1 g2
sleep 1
bench_in g2 bridge guest-guest tcp
load_stop g1
