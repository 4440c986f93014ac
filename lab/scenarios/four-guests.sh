# Four guests at once on the backend's own bridge, two of them with our frontend, with four queues and with two, behind a
# firewall and filters.
# order: 2
# boot: pv
# timeout: 400
# needs: grantway-xen
only_grantway
cat >$LAB/rules <<END
[firewall]
default = "accept"
[[rule]]
name = "closed"
action = "drop"
network = "ipv4"
protocol = "udp"
to-ports = "33434-33534"
[[filter]]
name = "hidden"
action = "drop"
network = "ipv4"
protocol = "icmp"
from = "$(address g4)/32"
[[filter]]
name = "second queue"
action = "queue"
queue = 1
network = "ipv4"
protocol = "tcp"
to-port = "5201"
END
start_backend --port bridge --uplink tap:gw0 --workers 2 --queues 4 --rules $LAB/rules
ip addr add 10.0.0.1/24 dev gw0
ip addr add fd00::1/64 dev gw0 nodad
guest_start "g1 g2" modules=tun vcpus=2
for guest in g1 g2; do
    xl network-attach $guest script=vif-grantway >&2
    guest_run $guest 'modprobe xen-gntalloc && echo 4096 >/sys/module/xen_gntalloc/parameters/limit'
done
# Without --policy it is the best that both ends support.
frontend_start g1 --queues 4
frontend_start g2 --queues 2
guest_start "g3 g4" vif=script=vif-grantway
for guest in g1 g2; do
    wait_for 30 frontend_staged $guest
    expect "$(frontend_figure $guest policy)" = staging "the policy of $guest"
done
expect "$(grantway report | tr '{' '\n' | grep -c '"tx_waiting"')" = 8 "queues: four, two, and two of stock guests"
iperf_server g2
iperf_server g4
load_start g1 g2 -P 4
load_start g3 g4
# Each reaches each other one under load. The filter drops what g4 answers by IPv4.
for from in g1 g2 g3; do
    for to in g1 g2 g3; do
        [ $from = $to ] || pings $from $to 3
    done
    pings6 g4 $from 3
done
load_goes_on g1
load_goes_on g3
# What the sender's filter and the firewall drop is dropped and counted; nothing else is.
guest_run g4 "ping -U -n -c 3 -W 1 $(address g1)" >&2 && fail "the filter lets pings of g4 through"
guest_run g3 "traceroute -n -m 1 -q 3 -w 1 $(address g1)" >&2 || true
count() { grantway rules show --json | tr '{' '\n' | grep "\"name\":\"$1\"" | sed -n 's/.*"packets":\([0-9]*\).*/\1/p'; }
grantway rules show
expect "$(count hidden)" -ge 3 "pings that the filter dropped"
expect "$(count closed)" -ge 1 "datagrams that the firewall dropped"
expect "$(count 'second queue')" -ge 100 "frames that the filter gave to the second queue"
load_stop g1
load_stop g3
# The end of two is nothing to the others.
xl destroy g4
frontend_kill g2 -9
pings g1 g3 5
xl destroy g2
pings dom0 g1 5
xl destroy g1
xl destroy g3
nothing_left
