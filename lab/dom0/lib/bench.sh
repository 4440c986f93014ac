# Measuring, where one instruction is one nanosecond (lab/bench). What is said
# here is for runner/figures.py, which computes with it.

# flow SETUP WAY FROM TO SOURCE [OPTIONS...]: a TCP stream, then frames of 64 bytes with
# FCS and of 1514 without by UDP, by iperf3; SOURCE says what has arrived: `count_NAME`, and words.
flow() {
    _setup=$1 _way=$2 _sender=$3 _sink=$4 _source=$5
    shift 5
    tell_symbols
    load_start "$_sender" "$_sink" "$@"
    window "$_setup" "$_way" "TCP"
    load_stop "$_sender"
    for _payload in 18 1472; do
        load_start "$_sender" "$_sink" -u -b 0 -l $_payload "$@"
        window "$_setup" "$_way" "UDP $((_payload == 18 ? 64 : 1514)) B"
        load_stop "$_sender"
    done
}

# window SETUP WAY KIND: what happens within a second.
window() {
    # The window of congestion opens, and what fills up is full.
    usleep 700000
    find_vhosts
    say "bench begin|$1|$2|$3"
    look
    mark 1
    domains 1
    mark 2
    look
    say "bench end"
}
# mark 1|2: begins a window of the counter by symbol, or ends it, where one counts.
mark() { [ "$counted" != yes ] || /lab/counter/mark "$1"; }
# tell_symbols: where Xen's and the kernels' functions are, once a part, where one counts.
tell_symbols() {
    counted=$(word lab.symbols)
    if [ "$counted" != yes ] || [ -e $LAB/symbols ]; then return 0; fi
    : >$LAB/symbols
    encoded xen </proc/xen/xensyms
    encoded linux </proc/kallsyms
    if domid g1 >/dev/null; then guest_run g1 "grep '\[' /proc/kallsyms" | encoded guest; fi
}
encoded() { gzip -c | base64 -w 400 | sed "s/^/bench symbols|$1|/"; }
# What has arrived by now, and what our backend did for it, where it runs.
look() {
    say "bench at|$(date +%s%N)|$($_source)"
    if [ -S /run/grantway/backend-0.sock ]; then
        say "bench report|$(grantway report)"
        say "bench threads|$(ran /proc/"$(cat $LAB/backend.pid)")|$(ran $vhosts)"
    fi
}
# ran FOLDERS...: the nanoseconds that all threads of these processes ran.
ran() { for _one in "$@"; do cat "$_one"/task/*/schedstat; done | awk '{ n += $1 } END { printf "%.0f", n }'; }
# find_vhosts: the kernel's threads of vhost-net, which are processes before Linux 6.4.
find_vhosts() { vhosts=$(grep -ls '^vhost-' /proc/[0-9]*/comm | sed 's,/comm,,'); }
# domains N: how much of the Nth second each domain ran; xentop knows nanoseconds.
domains() {
    xentop -b -d 1 -i $(($1 + 1)) | awk -v n=$(($1 + 1)) '$1 == "NAME" { k++; next } k == n && NF > 4 { print "bench domain|" $1 "|" $4 }'
}

# count_rx, count_tx: packets and bytes that a guest's interface in dom0 has
# carried from it, or to it; $iface is its name.
count_rx() { echo "$(counter "$iface" rx_packets)|$(counter "$iface" rx_bytes)"; }
count_tx() { echo "$(counter "$iface" tx_packets)|$(counter "$iface" tx_bytes)"; }
# count_guest: those that arrived in $receiver, by the backend's own count.
count_guest() {
    grantway report | tr '{' '\n' | awk -v RS='[,{}\n]' -F: '
        /"domain"/ { own = $2 == "'"$(domid "$receiver")"'" }
        own && /"rx_packets"/ { p = $2 } own && /"rx_bytes"/ { b = $2 } END { print p "|" b }'
}

# halves SETUP WAY BYTES POLICY DIRECTION [PORT [GUEST PORT]]: `bench packets --end`
# at both ends, generator to checker, with the guest g1; or with it and GUEST, which
# starts first.
halves() {
    _options="--policy $4 --direction $5 --size $3 --seconds 1 --json"
    tell_symbols
    say "bench begin|$1|$2|$3 B"
    grantway bench packets --end backend $_options >$LAB/logs/half-backend 2>&1 &
    _half=$!
    if [ -n "${7-}" ]; then
        guest_run "$7" "grantway bench packets --end frontend --port '$8' $_options" >"$LAB/logs/half-$7" &
        usleep 300000
    fi
    guest_run g1 "grantway bench packets --end frontend ${6:+--port '$6'} $_options" >$LAB/logs/half-g1 &
    # Both ends measure one second, and are under way for half a one before it and behind it.
    if [ "$counted" = yes ]; then { usleep 1000000 && mark 1 && usleep 500000 && mark 2; } & fi
    domains 2
    wait $_half || fail "the backend's half: $(cat $LAB/logs/half-backend)"
    wait || true
    say "bench half|$(tail -n 1 $LAB/logs/half-backend)"
    say "bench half|$(tail -n 1 $LAB/logs/half-g1)"
    say "bench end"
}

# unikernel_row WAY BYTES BURST POLICY WAIT: generator to checker as `halves`, where each guest is one
# program (unikernel/). The backend's end is measured: all of time is what both ends do. WAY is one of
# "guest to dom0", "dom0 to guest", "guest to guest". WAIT is poll or sleep, of the guests.
unikernel_row() {
    _sink=00:16:3e:00:00:01 _words="policy=$4 wait=$5"
    case $1 in
        "guest to dom0") _direction=tx ;;
        "dom0 to guest") _direction=rx ;;
        *) _direction=guest-to-guest ;;
    esac
    say "bench begin|unikernel, $4, $5|$1|$2 B, $3 at once"
    grantway bench packets --end backend --policy "$4" --direction $_direction --size "$2" --burst "$3" \
        --seconds $window_seconds --json >$LAB/logs/half-backend 2>&1 &
    _half=$!
    wait_for 15 [ -S /run/grantway/backend-0.sock ]
    case $_direction in
        tx) unikernel_create u1 generate="$2" burst="$3" $_words ;;
        rx) unikernel_create u1 check $_words ;;
        *)
            unikernel_create u2 check from=$_sink $_words
            unikernel_create u1 generate="$2" burst="$3" to=$_sink $_words
            ;;
    esac
    if [ "$counted" = yes ]; then usleep 500000 && mark 1 && usleep 200000 && mark 2; fi
    wait_for 60 measured $_half
    # The backend ends after its guests.
    xl destroy u1
    [ $_direction != guest-to-guest ] || xl destroy u2
    wait $_half || fail "the backend's half: $(cat $LAB/logs/half-backend)"
    say "bench half|$(tail -n 1 $LAB/logs/half-backend)"
    say "bench end"
}
# measured PID: whether that half has printed its row, or ended.
measured() { grep -q '"rows"' $LAB/logs/half-backend || [ ! -e "/proc/$1/exe" ]; }
unikernel_create() {
    _one=$1
    shift
    unikernel_config "$_one" 16 script=vif-grantway "$@"
    guest_create "$_one"
}
