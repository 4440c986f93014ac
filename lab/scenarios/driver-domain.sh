# The backend in a domain of its own, with its own xl and scripts.
# order: 2
# boot: pv
# timeout: 240
# needs: grantway-xen
guest_start drv memory=320 modules=tun,bridge extra=driver_domain=1
in_driver() { guest_run -t 60 drv ". /lab/dom0/lib.sh; $*"; }
# What xl says there of processors is nothing to it.
in_driver 'xl devd 2>/dev/null && bridge_up && start_backend' || fail "the driver domain does not come up"
guest_start g1 vif=bridge=xenbr0,backend=drv
pings g1 dom0 10
pings6 g1 dom0
iperf_server drv
# The driver domain's bridge has the address that dom0's would have.
tcp g1 dom0
tcp g1 dom0 -R
expect "$(vifs_left)" = "" "interfaces of vifs in dom0"
xl destroy g1
wait_for 20 in_driver '[ -z "$(vifs_left)" ]'
# Another one is served as the first was.
guest_start g2 vif=bridge=xenbr0,backend=drv
pings g2 dom0
xl destroy g2
wait_for 20 in_driver '[ -z "$(vifs_left)" ]'
xl destroy drv
nothing_left
