# PVH guests. QEMU's emulated SVM now and then breaks one, with a vif or without one (lab/README.md):
# such a guest has shown nothing, and another one is made. Whatever else ends one is a failure.

# pvh_start NAME [OPTION=VALUE...]: as guest_config has them; until it answers.
pvh_start() {
    # A triple fault is a reboot to Xen.
    guest_config "$@" type=pvh on_reboot=destroy
    guest_create "$1"
    guest_ready "$1"
}

# with_pvh NAME COMMAND...: runs COMMAND, which makes the guest, beside an iperf_server; again for
# each guest that the emulator broke. `broken` says how many: at 5 nothing was shown. A backend that
# writes where it must not would break guests alike: where there are five, `alone` has to be asked.
with_pvh() {
    _pvh=$1 broken=0
    shift
    while [ $broken -lt 5 ]; do
        _faults=$(pvh_faults)
        iperf_server dom0
        # Not within a condition, where no command of it would end it.
        ("$@") &
        if wait $!; then return; fi
        [ "$(pvh_faults)" -gt "$_faults" ] || fail "see above"
        wait_for 20 pvh_gone "$_pvh"
        broken=$((broken + 1))
        say "the emulator broke a guest; of its kind: $(($(pvh_faults) - _faults))"
        # It would wait for the guest that went.
        iperf_server_end
        xl dmesg >"$LAB/logs/broken-$_pvh-$broken"
        nothing_left
        backend_alive || fail "the backend ended: $(tail -n 3 $LAB/logs/backend)"
    done
}
# alone NAME COMMAND...: after five broken guests: skips if COMMAND, by which a guest without a vif does
# the same, breaks one too; a failure if it does not.
alone() {
    with_pvh "$@"
    [ $broken = 0 ] || skip "the emulator broke five guests in a row, and one without a vif"
    fail "five guests in a row broke, and none without a vif"
}
# pvh_faults: how many guests were broken in a way that is known for the emulator's: a triple
# fault; or a page fault at each look at the kernel's own data, as the base of GS was lost.
pvh_faults() {
    _triple=$(xl dmesg | grep -c 'Triple fault' || true)
    echo $((_triple + $(cat /var/log/xen/console/guest-*.log | grep -c 'BUG: ENTRY_TRAMPOLINE stack guard page was hit' || true)))
}
# pvh_gone NAME: removes it. A kernel that lost its own data may not come to its end, and a
# migration that broke leaves the guest by another name.
pvh_gone() {
    for _half in "$1" "$1--incoming" "$1--migratedaway"; do
        xl destroy "$_half" >/dev/null 2>&1 || true
        no_guest "$_half" || return
    done
}
