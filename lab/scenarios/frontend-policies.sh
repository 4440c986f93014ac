# Our frontend on our backend, by every policy.
# boot: pv
# timeout: 200
# needs: grantway-xen
only_grantway
# crosses POLICY: traffic both ways, and what it costs.
crosses() {
    pings dom0 g1 5
    _ops=$(backend_grant_ops) _packets=$(backend_packets)
    tcp g1 dom0
    tcp g1 dom0 -R
    _ops=$(($(backend_grant_ops) - _ops)) _packets=$(($(backend_packets) - _packets))
    say "  $1: $_packets packets, $_ops grant operations"
}
bridge_up
start_backend
guest_start g1 modules=tun
xl network-attach g1 bridge=xenbr0 >&2
iperf_server dom0
id=$(domid g1)
for policy in copy persistent staging; do
    frontend_start g1 --policy $policy
    expect "$(frontend_figure g1 agreed)" = $policy "the policy that was agreed on"
    # All pages are staged before long.
    if [ $policy = staging ]; then
        wait_for 20 frontend_staged g1
    fi
    crosses $policy
    [ $policy != staging ] || break
    frontend_kill g1 -TERM
done
# A queue that becomes busy has 128 further pages mapped before it uses them, by one list.
expect $_ops -le 129 "grant operations where all pages are staged, maps for a busy queue"
grantway doctor >$LAB/logs/doctor || true
grep "vif$id" $LAB/logs/doctor
# Under load all go, down to the rings, which the hypervisor shows quickly, and
# come back.
load_start g1 dom0 -b 10M
guest_run g1 'grantway ctl staging remove 9999 && grantway ctl staging show' | tail -n 1
mapped() { grant_mappings "$id" | wc -l; }
await 10 3 "grants that the backend maps" mapped
guest_run g1 'grantway ctl staging add 9999' >&2
wait_for 10 frontend_mapped g1
load_goes_on g1
load_stop g1
frontend_kill g1 -TERM
none_mapped() { [ -z "$(grant_mappings "$id")" ]; }
wait_for 10 none_mapped
# A backend that maps less takes less, and one that maps what is on its way takes
# any frontend as it is.
kill_backend -TERM
start_backend --mapped-pages 100
frontend_start g1 --policy staging
few() { [ "$(frontend_figure g1 staged)" = 100 ]; }
wait_for 20 few
crosses "staging, 100 pages"
kill_backend -9
start_backend --policy map
frontend_kill g1 -TERM
frontend_start g1 --policy staging
expect "$(frontend_figure g1 policy)" = copy "the policy that was agreed on"
crosses map
frontend_said g1
xl destroy g1
nothing_left
