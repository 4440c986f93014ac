# Traffic between dom0 and guests.

# on WHERE COMMAND...: a shell command in dom0 or a guest.
on() {
    _where=$1
    shift
    if [ "$_where" = dom0 ]; then sh -c "$*"; else guest_run -t 120 "$_where" "$*"; fi
}

# pings FROM TO [COUNT [OPTIONS]], pings6: of the first COUNT + 2 packets COUNT are answered,
# however late.
pings() { ping_address "$1" "$2" "$(address "$2")" "${3:-5}" "${4-}"; }
pings6() { ping_address "$1" "$2" "$(address6 "$2")" "${3:-5}" "${4-}"; }
ping_address() {
    on "$1" "$(answers "$4" $(($4 + 2)) "$5 $3")
        answered" >$LAB/logs/ping 2>&1 || fail "ping $5 from $1 to $2: $(tail -n 3 $LAB/logs/ping)"
}

# ping_sizes FROM TO BYTES...: one of each size is answered.
ping_sizes() {
    _from=$1 _to=$(address "$2")
    shift 2
    on "$_from" "$(answers 1 1000000 "-s \$size $_to")
        for size in $*; do answered || { echo \$size bytes; exit 1; }; done" >$LAB/logs/ping-sizes ||
        fail "ping from $_from to $_to: $(tail -n 4 $LAB/logs/ping-sizes)"
}

# answers COUNT AMONG PING: defines `answered` for the shell of `on`: that of the first AMONG
# packets COUNT are answered. With a limit of time or of packets ping itself would end where
# an answer is late, and at the first notification of an error. Every ping of the lab has -U: a
# socket that asks for times of arrival has Linux change its own code under the packets of others,
# and QEMU may go on with what it translated of that before ("Oops: int3").
answers() {
    cat <<SCRIPT
answered() {
    ping -U -n -i 0.2 $3 >/run/lab/ping-\$\$ 2>&1 &
    left=$(($(patient 20) * 10))
    until awk -F 'icmp_seq=' '/ bytes from / && \$2 + 0 <= $2 && !seen[\$2 + 0]++ { n++ } END { exit n < $1 }' /run/lab/ping-\$\$; do
        left=\$((left - 1))
        if [ \$left = 0 ] || [ ! -e /proc/\$!/exe ]; then
            kill -INT \$! 2>/dev/null
            wait \$!
            tail -n 3 /run/lab/ping-\$\$
            return 1
        fi
        usleep 100000
    done
    kill -INT \$!
    wait \$!
    rm /run/lab/ping-\$\$
}
SCRIPT
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

# client OUTPUT OPTIONS...: a shell command: iperf3's client. A server has one client at a
# time, and between two it does not listen for a moment: a client that came too early for its
# test to begin tries again, for a minute and more.
client() {
    _out=$1
    shift
    cat <<SCRIPT
tries=0
until iperf3 -f m --connect-timeout $(patient 5)000 $* >$_out 2>&1; do
    tries=\$((tries + 1))
    [ \$tries -lt 300 ] && ! grep -q ' sec ' $_out && grep -qE 'busy|refused|reset|send cookie' $_out || exit 1
    usleep 200000
done
SCRIPT
}

# iperf FROM TO [OPTIONS...]: 32 MiB by TCP, or what OPTIONS say; prints what the
# receiver got in Mbit/s, and for UDP "MBITS LOST TOTAL". It is work that ends it: within a
# time nothing may get through a machine that stands still.
iperf() {
    _from=$1 _to=$(address "$2")
    shift 2
    case " $* " in *" -n "*) ;; *) set -- -n 32M "$@" ;; esac
    on "$_from" "( $(client /run/lab/iperf3 -c "$_to" "$@") )
        status=\$?; cat /run/lab/iperf3; exit \$status" >"$LAB/logs/iperf3-last" ||
        { cat "$LAB/logs/iperf3-last"; return 1; }
    cat "$LAB/logs/iperf3-last" >>"$LAB/logs/iperf3"
    awk '/receiver/ {
        for (i = 1; i < NF; i++) if ($(i + 1) == "Mbits/sec") rate = int($i)
        for (i = 1; i < NF; i++) if ($i ~ /^[0-9]+\/[0-9]+$/) { split($i, n, "/"); lost = " " n[1] " " n[2] }
    } END { if (rate == "") exit 1; print rate lost }' "$LAB/logs/iperf3-last"
}

# tcp FROM TO [OPTIONS...], udp FROM TO [OPTIONS...]: the same, said; fails where
# nothing arrives, or where more than a quarter of UDP is lost. All of it has room in each
# queue that it passes and in the receiver's socket, so that a processor that stands still
# loses none. A server that stood still until the test's end has looked at nothing: it is
# asked again.
tcp() {
    _rate=$(iperf "$@") || fail "TCP $*: $(tail -n 3 "$LAB/logs/iperf3-last")"
    say "TCP $*: $_rate Mbit/s"
}
udp() {
    for _try in 1 2 3 4 5; do
        _rate=$(iperf "$@" -u -b 2M -l 1400 -n 500K -w 2M) || fail "UDP $*: $(tail -n 3 "$LAB/logs/iperf3-last")"
        [ "${_rate##* }" = 0 ] || break
    done
    say "UDP $*: $_rate (Mbit/s, lost, sent)"
    echo "$_rate" | awk '{ exit !($3 > 0 && $2 * 4 <= $3) }' || fail "UDP lost more than a quarter"
}

# load_start FROM TO [-6] [OPTIONS...]: iperf3 in the background, for as long as it
# takes; `load_flows` tells whether it goes on, load_stop ends it.
load_start() {
    _from=$1 _to=$(address "$2")
    [ "${3-}" != -6 ] || _to=$(address6 "$2")
    shift 2
    on "$_from" "( $(client /run/lab/load -c "$_to" -t 30000 -i 1 --forceflush "$@") ) >/dev/null 2>&1 & echo started" >&2
    wait_for 15 load_flows "$_from"
}
# load_flows FROM: whether its last whole second carried anything.
load_flows() { on "$1" "$(flows); flows"; }
# load_goes_on FROM: whether it does in seconds that begin from now on.
load_goes_on() {
    on "$1" "$(flows); lines=\$((\$(grep -c sec /run/lab/load) + 2)) left=$(($(patient 30) * 5))
        until [ \$(grep -c sec /run/lab/load) -ge \$lines ] && flows; do
            left=\$((left - 1))
            [ \$left -gt 0 ] || exit 1
            usleep 200000
        done" || fail "waited in vain: load_goes_on $1"
}
# flows: defines `flows` for the shell of `on`.
flows() {
    cat <<'SCRIPT'
flows() {
    tail -n 1 /run/lab/load | awk '{ for (i = 2; i <= NF; i++) if ($i ~ /bits\/sec/) rate = $(i - 1) } END { exit !(rate > 0) }' &&
        pidof iperf3 >/dev/null
}
SCRIPT
}
load_stop() { on "$1" "killall -INT iperf3; while pidof iperf3 >/dev/null; do usleep 100000; done"; }

# checksum_errors WHERE: how many its kernel has counted; which, for the trace. Not what
# TcpInErrs counts beside them: a SYN that was sent again, as it was answered late.
checksum_errors() {
    _counts=$(on "$1" "nstat -asz") || fail "nstat: $_counts"
    echo "$_counts" | awk '/InCsumErrors|Ip6InHdrErrors|IpInHdrErrors/ {
        n += $2
        if ($2 > 0) print $1, $2 >"/dev/stderr"
    } END { print n + 0 }'
}
