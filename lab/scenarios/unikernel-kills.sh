# Deaths of the backend and of guests that are one program each: under TCP, between the steps of a
# connection, during a save, and both at once.
# boot: hvm
# timeout: 300
# needs: grantway-xen
only_grantway
KIB=12288
bridge_up
start_backend
for policy in copy staging; do
    unikernel_start u2 policy=$policy
    [ $policy = copy ] || wait_for 30 unikernel_staged u2
    # One connection, however often its backend is another one.
    unikernel_echoes u2 $KIB &
    echoes=$!
    for signal in -9 -9 -TERM; do
        sleep_ms $((100 + $(random_ms 400)))
        expect "$(unikernel_figure u2 echoed_bytes)" -lt $((KIB * 1024)) "bytes echoed before a kill"
        kill_backend $signal
        start_backend
    done
    wait $echoes || fail "the connection did not go on"
    expect "$(unikernel_figure u2 echoed_bytes)" = $((KIB * 1024)) "bytes echoed"
    say "$policy: one connection, three kills of the backend"
    # As it connects.
    for pause in 0 50 150 400; do
        unikernel_config u3 16 bridge=xenbr0 "address=$(address u3)/24" policy=$policy
        guest_create u3 &
        creates=$!
        sleep_ms $pause
        kill_backend
        start_backend
        wait $creates
        wait_for 30 vif_connected u3
        pings dom0 u3
        xl destroy u3
    done
    say "$policy: four kills while a guest connects"
    # As it is saved: it is restored to a backend that did not see it go.
    guest_save u2 &
    saves=$!
    sleep_ms $(random_ms 300)
    kill_backend
    wait $saves
    start_backend
    xl restore /var/lib/xen/save/u2 >$LAB/logs/xl-restore-u2 2>&1
    wait_for 30 vif_connected u2
    pings dom0 u2
    say "$policy: killed during a save"
    # Both at once.
    unikernel_echoes u2 4096 >/dev/null 2>&1 &
    echoes=$!
    sleep_ms $((100 + $(random_ms 300)))
    kill_backend
    xl destroy u2
    killall nc || true
    wait $echoes || true
    start_backend
    nothing_left
done
