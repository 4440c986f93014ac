# Reboot, save and restore, shutdown, destroy: the vif follows.
# boot: pv
# timeout: 240
# needs: grantway-xen
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
pings dom0 g1

guest_reboot g1
guest_net g1
pings dom0 g1
say "reboot"

guest_save g1
guest_gone g1
nothing_left
guest_restore g1
wait_for 20 vif_connected g1
guest_net g1
pings dom0 g1
pings g1 dom0
say "save and restore"

xl shutdown g1
guest_gone g1
nothing_left
say "shutdown"

guest_start g1 vif=bridge=xenbr0
pings dom0 g1
xl destroy g1
guest_gone g1
nothing_left
say "destroy"
