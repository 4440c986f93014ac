# Two guests on one bridge.
# order: 1
# boot: pv
# timeout: 180
# needs: grantway-xen
bridge_up
start_backend
guest_start "g1 g2" vif=bridge=xenbr0
pings g1 g2 10
pings g2 g1 10
pings6 g1 g2
iperf_server g2
tcp g1 g2
tcp g1 g2 -R
udp g1 g2
expect "$(checksum_errors g1)" = 0 "checksum errors in g1"
expect "$(checksum_errors g2)" = 0 "checksum errors in g2"
# The end of one is nothing to the other.
xl destroy g2
pings dom0 g1
xl destroy g1
nothing_left
