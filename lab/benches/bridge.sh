# Stock guests on our backend's own bridge.
# boot: bench
# order: 3
# timeout: 1200
# needs: grantway-xen
start_backend --port bridge --uplink tap:gw0
ip addr add 10.0.0.1/24 dev gw0
guest_start "g1 g2" vif=script=vif-grantway
iperf_server g2
receiver=g2
flow "our own bridge" "guest to guest" g1 g2 count_guest
