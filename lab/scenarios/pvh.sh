# A PVH guest.
# boot: hvm
# timeout: 240
# needs: grantway-xen
traffic() {
    # A triple fault is a reboot to Xen.
    guest_config g1 type=pvh vif=bridge=xenbr0 on_reboot=destroy
    guest_create g1
    domid g1 >$LAB/first
    guest_ready g1
    guest_net g1
    pings dom0 g1 10
    pings g1 dom0 10
    pings6 g1 dom0
    tcp g1 dom0
    tcp g1 dom0 -R
    expect "$(checksum_errors g1)" = 0 "checksum errors in the guest"
}

faults() { xl dmesg | grep -c 'Triple fault' || true; }
# broken: whether the guest is gone, by a triple fault.
broken() {
    [ "$(faults)" -gt "$before" ] || return 1
    [ ! -s $LAB/first ] || ! xenstore-exists "/local/domain/$(cat $LAB/first)"
}

bridge_up
start_backend
# QEMU's emulated SVM now and then breaks a guest, with a vif or without one (lab/README.md):
# such a guest has shown nothing, and another one is made. Whatever else ends one is a failure.
tries=0
while :; do
    tries=$((tries + 1)) before=$(faults)
    rm -f $LAB/first
    iperf_server dom0
    # Not within a condition, where no command of it would end it.
    (traffic) &
    if wait $!; then break; fi
    broken || fail "see above"
    [ $tries -lt 5 ] || fail "$tries guests in a row ended by a triple fault"
    say "the emulator broke a guest; triple faults: $(($(faults) - before))"
    # It would wait for the guest that went.
    iperf_server_end
    xl dmesg >$LAB/logs/broken-$tries
    nothing_left
    backend_alive || fail "the backend ended: $(tail -n 3 $LAB/logs/backend)"
done
xl destroy g1
nothing_left
