# Many guests at once, each of which is one program (unikernel/), on the backend's own bridge.

# crowd_address N: of the Nth.
crowd_address() { echo "10.1.$(($1 / 200)).$(($1 % 200 + 1))"; }

# crowd COUNT MIB: makes them; each answers a ping, however late; then eight of them talk TCP at once
# while the others are idle; and all of them go.
crowd() {
    _count=$1 _began=$(now_ms)
    start_backend --port bridge --uplink tap:gw0
    ip addr add 10.1.255.1/16 dev gw0
    _bare=$(backend_resident)
    for _n in $(seq "$_count"); do
        unikernel_config c$_n "$2" script=vif-grantway "address=$(crowd_address $_n)/16" policy=copy
        guest_create c$_n
    done
    await 120 "$_count" "vifs that are connected" crowd_connected
    say "$_count guests: connected after $(($(now_ms) - _began)) ms"
    for _n in $(seq "$_count"); do
        ping_address dom0 c$_n "$(crowd_address $_n)" 1 ""
    done
    say "  answered a ping after $(($(now_ms) - _began)) ms"
    say "  the backend's memory: $((($(backend_resident) - _bare) / _count)) KiB for each; $(dom0_ports) event channels of dom0"
    _ticks=$(backend_ticks)
    _ran=$(dom0_ran 10)
    say "  dom0 ran for $_ran % of ten idle seconds, the backend itself for $(($(backend_ticks) - _ticks)) hundredths of a second"
    for _n in 1 2 3 4 5 6 7 8; do
        crowd_talks $_n 256 &
        eval "_talks$_n=$!"
    done
    for _n in 1 2 3 4 5 6 7 8; do
        eval "wait \$_talks$_n" || fail "guest c$_n of eight does not echo"
    done
    say "  eight echoed 256 KiB each after $(($(now_ms) - _began)) ms"
    expect "$(crowd_connected)" = "$_count" "vifs that are connected"
    for _n in $(seq "$_count"); do xl destroy c$_n; done
    nothing_left
    say "  gone after $(($(now_ms) - _began)) ms"
}

# crowd_talks N KIB: whether the Nth echoes so much.
crowd_talks() {
    dd if=/dev/urandom bs=1024 count="$2" of="$LAB/sent-$1" 2>/dev/null
    nc -w "$(patient 60)" "$(crowd_address "$1")" 7 <"$LAB/sent-$1" | head -c $(($2 * 1024)) | cmp - "$LAB/sent-$1"
}
# crowd_connected: the number of vifs that the backend has connected.
crowd_connected() { grantway report | tr '{' '\n' | grep -c '"connected":true' || true; }
# backend_resident: KiB of the backend's process in memory.
backend_resident() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$(cat $LAB/backend.pid)/status"; }
# backend_ticks: hundredths of a second that the backend's process ran.
backend_ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$(cat $LAB/backend.pid)/stat"; }
# dom0_ports: dom0's event channels.
dom0_ports() { /usr/lib/xen-*/bin/lsevtchn 0 | grep -c .; }
# dom0_ran SECONDS: how much of its processors' time dom0 ran, in %.
dom0_ran() {
    xentop -b -d "$1" -i 2 | awk '$1 == "Domain-0" { ran = $4 } END { print ran }'
}
