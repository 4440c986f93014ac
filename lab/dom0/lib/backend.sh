# The netback side: `grantway backend`, or the kernel's module for comparison.

# backend_kind: grantway or stock, as the runner was asked.
backend_kind() { _kind=$(word lab.backend); echo "${_kind:-grantway}"; }

# only_grantway: skips the scenario where the kernel's netback stands in.
only_grantway() { [ "$(backend_kind)" = grantway ] || skip "only for grantway"; }

# with_netback, without_netback: the kernel's module, there or not. It takes
# every vif it finds, so it must not be there when ours serves.
with_netback() { modprobe xen-netback; }
without_netback() {
    if grep -q '^xen_netback ' /proc/modules; then rmmod xen-netback; fi
}

# start_backend [OPTIONS...]: serves dom0's vifs, ours or the kernel's. Ours is the build
# that $grantway names, where it is set.
start_backend() {
    if [ "$(backend_kind)" = stock ]; then
        with_netback
        return 0
    fi
    without_netback
    _log=$LAB/logs/backend
    _marks=$(grep -c '^ready' "$_log" 2>/dev/null || true)
    "${grantway:-grantway}" backend "$@" >>"$_log" 2>&1 &
    echo $! >$LAB/backend.pid
    wait_for 15 backend_ready "${_marks:-0}"
}
backend_ready() {
    backend_alive || fail "the backend ended: $(tail -n 3 $LAB/logs/backend)"
    [ "$(grep -c '^ready' $LAB/logs/backend)" -gt "$1" ]
}
backend_alive() { [ -e "/proc/$(cat $LAB/backend.pid)/exe" ]; }

# kill_backend [-SIGNAL]: SIGKILL unless told otherwise; waits for its end.
kill_backend() {
    _pid=$(cat $LAB/backend.pid)
    kill "${1:--9}" "$_pid"
    # Reaps it; its status is the signal's.
    wait "$_pid" || true
}
