# The kernel's netback and the kernel's netfront: the lab itself works.
# boot: pv
# timeout: 120
with_netback
bridge_up
guest_start g1 vif=bridge=xenbr0
pings dom0 g1 20
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
expect "$(grant_mappings "$(domid g1)" | wc -l)" -ge 2 "grants that netback maps"
xl destroy g1
nothing_left
