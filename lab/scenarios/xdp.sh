# A stock guest's XDP programs judge every frame that it is given: one that drops ICMP, and one
# that drops what does not begin with an Ethernet header, as at a wrong place no frame does.
# The guest loads and unloads them beside traffic, and while the backend is dead.
# order: 2
# boot: pv
# timeout: 200
# needs: grantway-xen
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
iperf_server dom0

# program NAME: loads it, in the driver. no_program: takes it off.
program() { guest_run g1 "ip -force link set dev eth0 xdpdrv obj /lab/xdp/$1.o sec xdp" >&2; }
no_program() { guest_run g1 "ip link set dev eth0 xdpdrv off" >&2; }
# echos: the echo requests that have reached the guest's own stack.
echos() { guest_run g1 "nstat -asz IcmpInEchos | awk '/^IcmpInEchos/ { print \$2 }'"; }
# is_front STATE: whether the guest's driver shows it.
is_front() { [ "$(xenstore-read "/local/domain/$(domid g1)/device/vif/0/state")" = "$1" ]; }

# no_ping_reaches: of the pings that go out none reaches the guest, though a transfer behind
# them does, on the same queue.
no_ping_reaches() {
    before=$(echos)
    ping -U -n -q -c 20 -i 0.05 -W 1 "$(address g1)" >$LAB/logs/ping-dropped 2>&1 || true
    tcp g1 dom0 -n 4M
    expect "$(echos)" = "$before" "echo requests that passed the program"
}

pings dom0 g1
expect "$(echos)" -ge 5 "echo requests that are counted without a program"
program drop-icmp
no_ping_reaches
no_program
pings dom0 g1
program pass-known
pings dom0 g1 20
ping_sizes dom0 g1 0 56 1000 1472
tcp g1 dom0 -n 8M
if [ "$(backend_kind)" = grantway ]; then
    # netback gives a program no frame over several pages, and netfront drops those.
    tcp g1 dom0 -R -n 8M
fi
# One program in place of another, again and again.
for _round in 1 2 3; do
    program drop-icmp
    program pass-known
done
pings dom0 g1
program drop-icmp
no_ping_reaches

if [ "$(backend_kind)" = grantway ]; then
    # A successor leaves the room, too.
    kill_backend -9
    start_backend
    no_ping_reaches
    program pass-known
    load_start g1 dom0 -R
    for _round in 1 2 3; do
        kill_backend -9
        start_backend
        load_goes_on g1
    done
    load_stop g1
    pings dom0 g1
    # Nobody answers the guest, until a successor does: which finds what the guest waits for.
    kill_backend -9
    guest_run g1 "ip -force link set dev eth0 xdpdrv obj /lab/xdp/drop-icmp.o sec xdp >/run/lab/loaded 2>&1 &" >&2
    wait_for 20 is_front 7
    start_backend
    wait_for 20 vif_connected g1
    no_ping_reaches
    say "programs outlive the backend"
fi
no_program
pings dom0 g1
tcp g1 dom0 -n 8M
xl destroy g1
nothing_left
