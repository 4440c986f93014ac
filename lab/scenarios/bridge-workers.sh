# Two guests on the backend's own bridge, each with a worker of its own, under rules that drop what no connection knows.
# boot: pv
# timeout: 240
# needs: grantway-xen
only_grantway
cat >$LAB/rules <<'END'
[firewall]
default = "accept"
[[rule]]
name = "unknown"
action = "drop"
network = "ipv4"
protocol = "tcp"
state = "invalid"
END
start_backend --port bridge --uplink tap:gw0 --workers 3 --rules $LAB/rules
ip addr add 10.0.0.1/24 dev gw0
ip addr add fd00::1/64 dev gw0 nodad
guest_start "g1 g2" modules=xen-netfront,tun vif=script=vif-grantway
errors=$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)
# Each guest has a worker of its own.
workers=$(grantway report | tr '{' '\n' | grep '"tx_waiting"' | sed -n 's/.*"worker":\([0-9]*\).*/\1/p' | sort -u | wc -l)
# cross: traffic between the guests, both ways, and with dom0.
cross() {
    say "$1"
    pings g1 g2 5
    pings6 g1 g2
    ping_sizes g1 g2 0 1 18 19 1400 4000 9000 30000 60000
    tcp g1 g2
    tcp g1 g2 -R
    pings g2 dom0 10
}
iperf_server g2
cross "stock to stock:"
udp g1 g2
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
guest_run g1 'echo vif-0 >/sys/bus/xen/drivers/vif/unbind'
frontend_start g1 --policy staging
wait_for 20 frontend_staged g1
cross "staging to stock:"
expect "$workers" = 2 "workers that have queues"
expect "$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)" = "$errors" "checksum errors"
# The end of one is nothing to the other.
xl destroy g2
pings dom0 g1
xl destroy g1
nothing_left
