# Our frontend in a guest of one processor, on the kernel's netback, in place of
# netfront.
# order: 1
# boot: pv
# timeout: 150
# needs: grantway-xen
with_netback
bridge_up
guest_start g1 modules=xen-netfront,tun vif=bridge=xenbr0
# Who holds the vif keeps it, and is named with what takes it away.
said=$(guest_run g1 'grantway frontend --tap gw0') && fail "two frontends run one vif: $said"
say "$said"
guest_run g1 "$(printf '%s\n' "$said" | sed 's/.*take it away: \(echo [^;]*\);.*/\1/')" >&2
# Both ends are Closed now.
limit() { guest_run g1 "modprobe xen-gntalloc; echo $1 >/sys/module/xen_gntalloc/parameters/limit"; }
limit 512
said=$(guest_run g1 'grantway frontend --tap gw0 --queues 2') && fail "2 queues fit into 512 pages"
limit 1024
say "$said"
frontend_start g1 --mode adaptive
# Without --policy staging is asked for over the control ring, which this backend has for hashes only. What is shown is
# what it came to.
expect "$(frontend_figure g1 policy)" = copy "the policy in force"
refused() { frontend_said g1 | grep -E 'does not support staging|link up, policy copy'; }
wait_for 20 refused
guest_run g1 'grantway doctor' | grep 'not staging' || fail "the doctor does not say why nothing is staged"
pings dom0 g1 10
pings6 g1 dom0 5
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
# With one processor nobody spins: idle, it takes none of its time.
expect "$(frontend_figure g1 mode)" = interrupt "how it waits"
wait_for 30 frontend_idle g1 3
frontend_kill g1 -TERM
xl destroy g1
nothing_left
