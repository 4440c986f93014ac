# Deaths and lives of either end, with staging on: what goes on goes on, and in the
# end nothing stays mapped.
# boot: pv
# timeout: 240
# needs: grantway-xen
only_grantway
none_mapped() { [ -z "$(grant_mappings "$id")" ]; }
bridge_up
start_backend
guest_start g1 modules=tun
xl network-attach g1 bridge=xenbr0 >&2
id=$(domid g1)
iperf_server dom0
frontend_start g1 --policy staging
wait_for 20 frontend_staged g1

load_start g1 dom0 -b 10M
for _ in 1 2 3; do
    sleep_ms $((200 + $(random_ms 800)))
    kill_backend -9
    start_backend
done
load_goes_on g1
load_stop g1
expect "$(frontend_said g1 | grep -c 'link up')" = 1 "connections of the frontend"
pings dom0 g1
say "3 kills of the backend: the frontend saw none of them"

for signal in -9 -9 -TERM; do
    load_start g1 dom0 -b 10M
    frontend_kill g1 $signal
    guest_run g1 'killall -q iperf3; true'
    # Rings and all: a backend lets go of what a dead frontend granted once it is told.
    frontend_start g1 --policy staging
    pings dom0 g1
done
say "the frontend was killed, and ended, and started again"

kill_backend -TERM
start_backend
wait_for 20 frontend_staged g1
guest_save g1
guest_gone g1
nothing_left
guest_restore g1
id=$(domid g1)
pings dom0 g1
pings g1 dom0
wait_for 20 frontend_staged g1
expect "$(frontend_said g1 | grep -c 'link up')" = 2 "connections of the frontend"
say "saved and restored: $(frontend_said g1 | grep 'restored' | sed 's/.*WARN //')"
frontend_said g1 >&2

# A vif that is detached is waited for, and found again.
xl network-detach g1 0 >&2
wait_for 20 none_mapped
await 20 "" "interfaces of vifs" vifs_left
told() { frontend_said g1 | grep 'the vif was detached; waiting'; }
wait_for 20 told
xl network-attach g1 bridge=xenbr0 >&2
pings dom0 g1
wait_for 20 frontend_staged g1
expect "$(frontend_said g1 | grep -c 'link up')" = 3 "connections of the frontend"
say "detached and attached again: $(frontend_said g1 | grep 'attached anew' | sed 's/.*INFO //')"
load_start g1 dom0
xl destroy g1
nothing_left
