# A stock guest on a TAP behind vhost-net: attached and detached, its backend killed, nothing left.
# boot: pv
# timeout: 240
# needs: grantway-xen
only_grantway
# threads: the kernel's threads of vhost-net. Linux 6.4 and later has them in the backend's process.
threads() { cat /proc/[0-9]*/task/[0-9]*/comm 2>/dev/null | grep -c '^vhost-' || true; }
# doctor_says TEXT: a line of the doctor has TEXT.
doctor_says() {
    grantway doctor >$LAB/logs/doctor 2>&1 || true
    grep -- "$1" $LAB/logs/doctor >&2 || fail "the doctor does not say: $1"
}
descriptors() { ls "/proc/$(cat $LAB/backend.pid)/fd" | wc -l; }
bridge_up
if grep -q '^vhost_net ' /proc/modules; then modprobe -r vhost_net; fi
start_backend --port vhost
doctor_says '^FAIL .*/dev/vhost-net .*missing .*modprobe vhost_net'
guest_start g1
xl network-attach g1 bridge=xenbr0 >&2 &
attach_pid=$!
wait_for 20 grep -q 'modprobe vhost_net' $LAB/logs/backend
say "without the module: $(grep 'modprobe vhost_net' $LAB/logs/backend | tail -n 1)"
# It says so once, since no vif would fare better.
! wait "$(cat $LAB/backend.pid)" || fail "the backend goes on without /dev/vhost-net"
modprobe vhost_net
start_backend --port vhost
wait $attach_pid || xl network-attach g1 bridge=xenbr0 >&2
wait_for 20 vif_connected g1
guest_net g1
expect "$(threads)" = 1 "threads of vhost-net"
doctor_says '^ok .*/dev/vhost-net .*usable'
errors=$(checksum_errors g1)$(checksum_errors dom0)
iperf_server dom0
pings g1 dom0 10
pings6 dom0 g1 10
ping_sizes g1 dom0 0 1 18 19 1400 4000 9000 30000 60000
ping_sizes dom0 g1 0 1 18 19 1400 4000 9000 30000 60000
tcp g1 dom0
tcp g1 dom0 -R
udp g1 dom0
udp g1 dom0 -R
load_start g1 dom0
for round in 1 2 3; do
    sleep_ms $((200 + $(random_ms 300)))
    kill_backend -9
    wait_for 20 [ "$(threads)" = 0 ]
    start_backend --port vhost
done
load_goes_on g1
load_stop g1
expect "$(threads)" = 1 "threads of vhost-net"
expect "$(checksum_errors g1)$(checksum_errors dom0)" = "$errors" "checksum errors"
planned=$(grantway plan --vifs 1 --port vhost | awk '$1 == "backend" && $2 == "descriptors" { print $4 }')
for round in 1 2 3; do
    xl network-detach g1 0 >&2
    await 20 "" "interfaces of vifs" vifs_left
    expect "$(threads)" = 0 "threads of vhost-net"
    without=$(descriptors)
    xl network-attach g1 bridge=xenbr0 >&2
    wait_for 20 vif_connected g1
    guest_net g1
    taken=$(($(descriptors) - without))
    [ $taken -le "$planned" ] || fail "$taken descriptors, $planned planned"
    pings g1 dom0
done
say "descriptors of a vif: $taken of $planned that are planned"
# A TAP that another program deletes is noticed.
ip link del "$(vif_of g1)"
guest_run g1 'ping -c 1 -W 1 10.0.0.1 >/dev/null; true'
wait_for 20 grep -q 'the interface is gone' $LAB/logs/backend
xl destroy g1
nothing_left
expect "$(threads)" = 0 "threads of vhost-net"
