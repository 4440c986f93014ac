# Guests on the backend's own bridge, with an interface of dom0's beside them: stock
# ones first, then one with our frontend, then both.
# boot: pv
# timeout: 240
# needs: grantway-xen
only_grantway
start_backend --port bridge --uplink tap:gw0
ip addr add 10.0.0.1/24 dev gw0
ip addr add fd00::1/64 dev gw0 nodad
guest_start "g1 g2" modules=xen-netfront,tun vif=script=vif-grantway
errors=$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)
# cross: traffic between the guests, both ways.
cross() {
    say "$1"
    pings g1 g2 5
    pings6 g1 g2
    ping_sizes g1 g2 0 1 18 19 1400 4000 9000 30000 60000
    tcp g1 g2
    tcp g1 g2 -R
}
iperf_server g2
cross "stock to stock:"
udp g1 g2
pings g2 dom0 10
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
# ours NAME: our frontend there, in place of netfront.
ours() {
    guest_run "$1" 'echo vif-0 >/sys/bus/xen/drivers/vif/unbind'
    frontend_start "$1" --policy staging
    wait_for 20 frontend_staged "$1"
}
ours g1
cross "staging to stock:"
ours g2
_ops=$(backend_grant_ops)
cross "staging to staging:"
# A queue that becomes busy has 128 further pages mapped before it uses them, by one list.
expect $(($(backend_grant_ops) - _ops)) -le 258 "grant operations of the backend, maps for two busy queues"
expect "$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)" = "$errors" "checksum errors"
expect "$(vifs_left)" = "" "interfaces of vifs"
# The end of one is nothing to the other.
xl destroy g2
pings dom0 g1
xl destroy g1
nothing_left
