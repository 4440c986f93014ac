# A guest that is one program: pings, TCP both ways, by copy and by staging, beside a stock guest;
# and a backend that is killed.
# boot: hvm
# timeout: 300
# needs: grantway-xen
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
for policy in copy staging; do
    unikernel_start u2 policy=$policy
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
    xl shutdown u2
    guest_gone u2
done
# The end by force, under load.
unikernel_start u2 policy=staging
unikernel_echoes u2 4096 >/dev/null 2>&1 &
echoes=$!
usleep 300000
xl destroy u2
killall nc || true
wait $echoes || true
xl destroy g1
nothing_left
