# Stock guests on the backend's own bridge, with an interface of dom0's beside them.
# boot: pv
# timeout: 200
# needs: grantway-xen
only_grantway
start_backend --port bridge --uplink tap:gw0
ip addr add 10.0.0.1/24 dev gw0
ip addr add fd00::1/64 dev gw0 nodad
guest_start g1 vif=script=vif-grantway
guest_start g2 vif=script=vif-grantway
errors=$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)
pings g1 g2 20
pings g2 dom0 10
pings6 g1 g2
ping_sizes g1 g2 0 1 18 19 1400 4000 9000 30000 60000
iperf_server g2
tcp g1 g2
tcp g1 g2 -R
udp g1 g2
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
expect "$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)" = "$errors" "checksum errors"
expect "$(vifs_left)" = "" "interfaces of vifs"
# The end of one is nothing to the other.
xl destroy g2
pings dom0 g1
xl destroy g1
nothing_left
