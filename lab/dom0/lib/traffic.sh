# Traffic between dom0 and guests.

# on WHERE COMMAND...: a shell command in dom0 or a guest.
on() {
    _where=$1
    shift
    if [ "$_where" = dom0 ]; then sh -c "$*"; else guest_run -t 120 "$_where" "$*"; fi
}

# pings FROM TO [COUNT [OPTIONS]], pings6: COUNT answers come, and of all that was
# sent no more than two are missing: those may be on their way still.
pings() { ping_address "$1" "$2" "$(address "$2")" "${3:-5}" "${4-}"; }
pings6() { ping_address "$1" "$2" "$(address6 "$2")" "${3:-5}" "${4-}"; }
ping_address() {
    on "$1" "ping -q -i 0.2 -w $((20 * $(slowness))) -c $4 $5 $3" >$LAB/logs/ping 2>&1 || true
    awk -v want="$4" '/packets transmitted/ { ok = $4 >= want && $1 - $4 <= 2 } END { exit !ok }' $LAB/logs/ping || fail "ping $5 from $1 to $2: $(tail -n 3 $LAB/logs/ping)"
}

# ping_sizes FROM TO BYTES...: at least one of a few is answered, of each size.
ping_sizes() {
    _from=$1 _to=$(address "$2")
    shift 2
    on "$_from" "for size in $*; do
        ping -q -i 0.2 -w $((10 * $(slowness))) -c 2 -s \$size $_to >/dev/null || echo \$size
    done" >$LAB/logs/ping-sizes
    [ ! -s $LAB/logs/ping-sizes ] || fail "no answer from $_to to $_from for $(tr '\n' ' ' <$LAB/logs/ping-sizes)bytes"
}

# iperf_server WHERE: serves until the scenario's end, or dom0's until iperf_server_end.
iperf_server() {
    if [ "$1" = dom0 ]; then
        iperf3 -s >$LAB/logs/iperf3-server 2>&1 &
        iperf_pid=$!
        wait_for 10 listens $iperf_pid
    else
        guest_run "$1" 'iperf3 -s -D && until ss -ltn | grep -q :5201; do usleep 100000; done'
    fi
}
# listens PID: whether that process listens on iperf3's port.
listens() { ss -ltnp | grep :5201 | grep -q "pid=$1,"; }
# iperf_server_end: until the port is free, as the next server needs it.
iperf_server_end() {
    kill $iperf_pid
    wait $iperf_pid || true
}

# iperf FROM TO [OPTIONS...]: TCP for 2 s, or what OPTIONS say; prints what the
# receiver got in Mbit/s, and for UDP "MBITS LOST TOTAL".
iperf() {
    _from=$1 _to=$2
    shift 2
    on "$_from" "iperf3 -c $(address "$_to") -t 2 -f m --connect-timeout 5000 $*" >"$LAB/logs/iperf3-last" ||
        { cat "$LAB/logs/iperf3-last"; return 1; }
    cat "$LAB/logs/iperf3-last" >>"$LAB/logs/iperf3"
    awk '/receiver/ {
        for (i = 1; i < NF; i++) if ($(i + 1) == "Mbits/sec") rate = int($i)
        for (i = 1; i < NF; i++) if ($i ~ /^[0-9]+\/[0-9]+$/) { split($i, n, "/"); lost = " " n[1] " " n[2] }
    } END { if (rate == "") exit 1; print rate lost }' "$LAB/logs/iperf3-last"
}

# tcp FROM TO [OPTIONS...], udp FROM TO [OPTIONS...]: the same, said; fails where
# nothing arrives, or where more than a quarter of UDP is lost. UDP is slow enough
# for an emulated machine that has to share its processors.
tcp() {
    _rate=$(iperf "$@") || fail "TCP $*: $(tail -n 3 "$LAB/logs/iperf3-last")"
    say "TCP $*: $_rate Mbit/s"
}
udp() {
    _rate=$(iperf "$@" -u -b 2M -l 1400) || fail "UDP $*: $(tail -n 3 "$LAB/logs/iperf3-last")"
    say "UDP $*: $_rate (Mbit/s, lost, sent)"
    echo "$_rate" | awk '{ exit !($3 > 0 && $2 * 4 <= $3) }' || fail "UDP lost more than a quarter"
}

# load_start FROM TO [-6] [OPTIONS...]: iperf3 in the background, for as long as it
# takes; `load_flows` tells whether it goes on, load_stop ends it.
load_start() {
    _from=$1 _to=$(address "$2")
    [ "${3-}" != -6 ] || _to=$(address6 "$2")
    shift 2
    on "$_from" "iperf3 -c $_to -t 3000 -i 1 -f m --forceflush $* >/run/lab/load 2>&1 & echo started" >&2
    wait_for 15 load_flows "$_from"
}
# load_flows FROM: whether its last whole second carried anything.
load_flows() { on "$1" "tail -n 1 /run/lab/load | awk '/sec/ && \$7 > 0 { ok = 1 } END { exit !ok }' && pidof iperf3 >/dev/null"; }
# load_goes_on FROM: whether it does in seconds that begin from now on.
load_goes_on() {
    _lines=$(on "$1" "grep -c sec /run/lab/load")
    wait_for 30 load_went_on "$1" $((_lines + 2))
}
load_went_on() { [ "$(on "$1" "grep -c sec /run/lab/load")" -ge "$2" ] && load_flows "$1"; }
load_stop() { on "$1" "killall -INT iperf3; true"; }

# checksum_errors WHERE: how many its kernel has counted; which, for the trace. Not what
# TcpInErrs counts beside them: a SYN that was sent again, as it was answered late.
checksum_errors() {
    on "$1" "nstat -asz" | awk '/InCsumErrors|Ip6InHdrErrors|IpInHdrErrors/ {
        n += $2
        if ($2 > 0) print $1, $2 >"/dev/stderr"
    } END { print n + 0 }'
}
