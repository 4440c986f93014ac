# Our frontend in a guest, which runs no netfront: modules=tun.

# frontend_start NAME [OPTIONS...]: `grantway frontend` with a TAP gw0, which
# gets the addresses that eth0 would have.
frontend_start() {
    _guest=$1
    shift
    frontend_run "$_guest" "$@"
    guest_net "$_guest" gw0
}

# frontend_run NAME [OPTIONS...]: starts it, until it says that it is ready.
frontend_run() {
    _guest=$1
    shift
    guest_run "$_guest" "
        : >/run/lab/frontend
        RUST_BACKTRACE=1 setsid grantway frontend --tap gw0 $* >>/run/lab/frontend 2>&1 &
        echo \$! >/run/lab/frontend.pid
        until grep -q '^ready' /run/lab/frontend; do
            [ -e /proc/\$!/exe ] || exit 1
            usleep 50000
        done
    " >&2 || fail "$_guest: the frontend ended: $(guest_run "$_guest" 'tail -n 3 /run/lab/frontend')"
}

# frontend_kill NAME [-SIGNAL]: SIGKILL unless told otherwise; waits for its end.
frontend_kill() {
    guest_run "$1" "
        kill ${2:--9} \$(cat /run/lab/frontend.pid)
        while [ -e /proc/\$(cat /run/lab/frontend.pid)/exe ]; do usleep 50000; done
    " >&2
}
frontend_alive() { guest_run "$1" 'kill -0 $(cat /run/lab/frontend.pid)'; }
# frontend_said NAME: its log.
frontend_said() { guest_run "$1" 'cat /run/lab/frontend'; }

# figure NAME: the first value of that name in a report on the standard input.
figure() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" | head -n 1; }
# frontend_figure GUEST NAME, backend_figure NAME: of what they report.
frontend_figure() { guest_run "$1" 'grantway report' | tr '{' '\n' | figure "$2"; }
backend_figure() { grantway report | tr '{' '\n' | figure "$1"; }

# frontend_staged GUEST: whether all pages of its queue are, which has more of them while it is busy.
frontend_staged() {
    _state=$(guest_run "$1" 'grantway ctl staging show --json' | tr '{' '\n')
    _staged=$(echo "$_state" | figure staged)
    [ -n "$_staged" ] && [ "$_staged" = "$(echo "$_state" | figure pages)" ]
}
# frontend_mapped GUEST: whether the backend has all of these mapped, two rings and a control ring.
frontend_mapped() { frontend_staged "$1" && [ "$(backend_figure mapped)" = $((_staged + 3)) ]; }
# backend_grant_ops: operations on grants that the backend has asked for so far.
backend_grant_ops() {
    _report=$(grantway report | tr '{' '\n')
    for _name in copies maps unmaps; do
        echo "$_report" | figure $_name
    done | awk '{ n += $1 } END { print n + 0 }'
}
# backend_packets: what it has moved of its first vif, both ways.
backend_packets() { echo $(($(backend_figure tx_packets) + $(backend_figure rx_packets))); }

# frontend_idle NAME TICKS: whether it ran for so many hundredths of a second at most within
# three seconds. Time for which the processor stood still may be counted as its own, so this
# is a question for wait_for: one that spins never passes.
frontend_idle() {
    guest_run "$1" '
        ran() { sed "s/.*) //" /proc/$(cat /run/lab/frontend.pid)/stat | cut -d" " -f12,13 | tr " " +; }
        from=$(($(ran)))
        sleep 3
        ran=$(($(ran) - from))
        echo $ran
        [ $ran -le '"$2"' ]'
}
