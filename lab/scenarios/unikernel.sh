# A guest that is one program: pings, TCP both ways, by copy and by staging, beside a stock guest;
# and a backend that is killed.
# boot: hvm
# timeout: 300
# needs: grantway-xen
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
for policy in copy staging; do
    unikernel_start u1 policy=$policy
    pings dom0 u1 10
    pings6 dom0 u1
    pings g1 u1
    [ $policy = copy ] || wait_for 30 unikernel_staged u1
    unikernel_echoes u1 512
    expect "$(unikernel_figure u1 echoed_bytes)" = $((512 * 1024)) "bytes echoed"
    # The same connection goes on with the next backend.
    unikernel_echoes u1 2048 &
    usleep 500000
    kill_backend
    start_backend
    wait $!
    pings dom0 u1 10
    # Saved and restored, which gives it another domain.
    guest_save u1
    xl restore /var/lib/xen/save/u1 >$LAB/logs/xl-restore-u1 2>&1
    wait_for 30 vif_connected u1
    pings dom0 u1 10
    pings g1 u1
    unikernel_echoes u1 64
    expect "$(unikernel_figure u1 echoed_bytes)" = $((2624 * 1024)) "bytes echoed before and after"
    xl shutdown u1
    guest_gone u1
done
# The end by force, under load.
unikernel_start u1 policy=staging
unikernel_echoes u1 4096 >/dev/null 2>&1 &
usleep 300000
xl destroy u1
killall nc || true
wait $! || true
xl destroy g1
nothing_left
