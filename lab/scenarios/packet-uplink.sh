# A guest on the backend's own bridge, whose uplink is a packet socket on a veth of dom0's.
# boot: pv
# timeout: 240
# needs: grantway-xen
only_grantway
# uplink_up: the veth, with dom0's address on the far end.
uplink_up() {
    ip link add gwu type veth peer name gwe address 00:16:3e:00:00:03
    ip link set gwu up
    ip link set gwe up
    ip addr add 10.0.0.1/24 dev gwe
    ip addr add fd00::1/64 dev gwe nodad
}
uplink_up
start_backend --port bridge --uplink packet:gwu
guest_start g1 modules=xen-netfront vif=script=vif-grantway
errors=$(checksum_errors g1)$(checksum_errors dom0)
iperf_server dom0
pings g1 dom0 10
ping_sizes g1 dom0 0 1 18 19 1400 4000 9000 30000 60000
tcp g1 dom0
tcp g1 dom0 -R
udp g1 dom0
ip link del gwu
uplink_up
pings g1 dom0 10
tcp g1 dom0
expect "$(checksum_errors g1)$(checksum_errors dom0)" = "$errors" "checksum errors"
xl destroy g1
nothing_left
ip link del gwu
