# TCP and UDP in user space in a guest, to and from Debian's iperf 2 in a stock one.
# boot: pv
# timeout: 150
# needs: grantway-xen
only_grantway
bridge_up
start_backend
guest_start g2 vif=bridge=xenbr0
guest_start g1 modules=
xl network-attach g1 bridge=xenbr0 >&2
own="--policy staging --address $(address g1)/24 --address $(address6 g1)/64"
# rate WHAT COMMAND...: says the last rate that is printed, in Mbit/s or Gbit/s.
rate() {
    _what=$1
    shift
    _said=$("$@") || fail "$_what: $(echo "$_said" | tail -n 3)"
    _rate=$(echo "$_said" | grep -Eo '[0-9.]+ [GMKk]?bits?/s(ec)?' | tail -n 1)
    [ -n "$_rate" ] || fail "$_what: no rate in $(echo "$_said" | tail -n 3)"
    say "  $_what: $_rate"
}
# rate_udp WHAT COMMAND...: the same, and by the server's count no more than a quarter is
# lost. A client that the server did not tell of it in time asks again.
rate_udp() {
    for _try in 1 2 3 4 5; do
        rate "$@"
        _counts=$(echo "$_said" | awk '{
            for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\/ *[0-9]*$/) {
                split($i, n, "/"); lost = n[1]; sent = n[2] == "" ? $(i + 1) : n[2]
            }
        } END { print lost + 0, sent + 0 }')
        [ "${_counts#* }" = 0 ] || break
    done
    expect "$((${_counts% *} * 4))" -le "${_counts#* }" "four times the datagrams lost (more than a quarter)"
    expect "${_counts#* }" -gt 0 "datagrams by the server's count ($(echo "$_said" | tail -n 3))"
}
# serve [OPTIONS]: our server in g1, until it says that it is ready.
serve() {
    guest_run g1 "
        grantway iperf server $own $* >/run/lab/iperf 2>&1 & echo \$! >/run/lab/iperf.pid
        until grep -q '^ready' /run/lab/iperf; do [ -e /proc/\$!/exe ] || exit 1; usleep 50000; done
    " || fail "the server ended: $(guest_run g1 'tail -n 3 /run/lab/iperf')"
}
# served TESTS: it told of so many, and ends in order.
served() {
    wait_for 20 has_told "$1"
    guest_run g1 'kill $(cat /run/lab/iperf.pid)
        while [ -e /proc/$(cat /run/lab/iperf.pid)/exe ]; do usleep 50000; done'
}
has_told() { [ "$(guest_run g1 'grep -c "bit/s" /run/lab/iperf')" -ge "$1" ]; }
say "from iperf in a stock guest:"
serve
pings g2 g1 5
pings6 g2 g1 5
rate TCP guest_run g2 "iperf -c $(address g1) -t 3 -f m"
rate "TCP, IPv6" guest_run g2 "iperf -V -c $(address6 g1) -t 3 -f m"
served 2
serve -u
rate_udp UDP guest_run g2 "iperf -u -b 1M -c $(address g1) -t 3 -f m"
rate_udp "UDP, IPv6" guest_run g2 "iperf -V -u -b 1M -c $(address6 g1) -t 3 -f m"
served 2
say "to iperf in a stock guest:"
guest_run g2 '
    iperf -s -p 5001 >/run/lab/tcp 2>&1 &
    iperf -s -V -p 5002 >/run/lab/tcp6 2>&1 &
    iperf -s -u -w 2M -p 5003 >/run/lab/udp 2>&1 &
    until [ "$(ss -Hltun | grep -c ":500[123]")" = 3 ]; do usleep 100000; done'
rate TCP guest_run g1 "grantway iperf client $own -c $(address g2) -t 3"
rate "TCP, IPv6" guest_run g1 "grantway iperf client $own -c $(address6 g2) -p 5002 -t 3"
rate_udp UDP guest_run g1 "grantway iperf client $own -u -b 1M -c $(address g2) -p 5003 -t 3"
# Without offloads all checksums and segments are made in user space.
rate "TCP, no offloads" guest_run g1 "grantway iperf client $own --no-offloads -c $(address g2) -t 3"
expect "$(checksum_errors g2)" = 0 "checksum errors in g2"
# Who looks may have begun only when the flow was over.
for _try in 1 2 3; do
    grantway flows --live --json >$LAB/logs/flows &
    _flows=$!
    rate "TCP, looked at" guest_run g1 "grantway iperf client $own -c $(address g2) -t 3"
    kill $_flows
    wait $_flows
    ! grep -q "$(address g2)" $LAB/logs/flows || break
done
grep -q "$(address g2)" $LAB/logs/flows || fail "no such flow: $(cat $LAB/logs/flows)"
xl destroy g1
pings dom0 g2
xl destroy g2
nothing_left
