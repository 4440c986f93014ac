# A guest that is one program: its platform's own checks; pings, TCP both ways, by copy and by staging,
# beside a stock guest; a backend that is killed, saves, and a reboot.
# boot: hvm
# timeout: 400
# needs: grantway-xen
bridge_up
start_backend
mkdir -p $LAB/guests
unikernel_program u9 smallest
wait_for 20 unikernel_said u9 "^hello, [0-9]+ KiB of heap" >&2
# A stack that is full ends the guest, at once and with a word.
unikernel_program u9 check fault=stack
wait_for 20 unikernel_said u9 "^exception 14 at 0x" >&2
unikernel_checks events=upcall channels=fifo ports=5000
unikernel_checks events=upcall channels=2-level ports=3000
unikernel_checks events=poll channels=fifo ports=120
unikernel_checks events=poll channels=2-level ports=120
guest_start g1 vif=bridge=xenbr0
unikernel_on_reboot=restart
for policy in copy staging; do
    # Each wait, and each memory of event channels, under traffic.
    case $policy in
        copy) events="events=poll channels=2-level" ;;
        staging) events="events=upcall channels=fifo" ;;
    esac
    unikernel_start u2 policy=$policy $events
    say "$policy, $events: $(unikernel_start_price u2)"
    pings dom0 u2 10
    pings6 dom0 u2
    pings g1 u2
    [ $policy = copy ] || wait_for 30 unikernel_staged u2
    unikernel_echoes u2 512
    expect "$(unikernel_figure u2 echoed_bytes)" = $((512 * 1024)) "bytes echoed"
    # The same connection goes on with the next backend.
    unikernel_echoes u2 8192 &
    echoes=$!
    usleep 300000
    expect "$(unikernel_figure u2 echoed_bytes)" -lt $((8704 * 1024)) "bytes echoed while the backend is killed"
    kill_backend
    start_backend
    wait $echoes
    pings dom0 u2 10
    # A save after which the guest goes on where it is.
    xl save -c u2 /var/lib/xen/save/checkpoint >&2
    rm /var/lib/xen/save/checkpoint
    pings dom0 u2
    # Saved and restored, which gives it another domain.
    guest_save u2
    xl restore /var/lib/xen/save/u2 >$LAB/logs/xl-restore-u2 2>&1
    wait_for 30 vif_connected u2
    pings dom0 u2 10
    pings g1 u2
    unikernel_echoes u2 64
    expect "$(unikernel_figure u2 echoed_bytes)" = $((8768 * 1024)) "bytes echoed before and after"
    # It begins anew, in another domain.
    unikernel_reboot u2
    pings dom0 u2 10
    unikernel_echoes u2 64
    expect "$(unikernel_figure u2 echoed_bytes)" = $((64 * 1024)) "bytes echoed since the reboot"
    xl shutdown u2
    guest_gone u2
done
# The end by force, under load.
unikernel_start u2 policy=staging events=upcall
unikernel_echoes u2 4096 >/dev/null 2>&1 &
echoes=$!
usleep 300000
xl destroy u2
killall nc || true
wait $echoes || true
xl destroy g1
nothing_left
