# Stock guests on the kernel's netback and bridge, to a network card.
# boot: nic
# order: 5
# timeout: 1200
with_netback
bridge_up
nic_up
guest_start g1 vif=bridge=xenbr0
iface=$(vif_of g1)
flow "kernel netback" "guest to NIC" g1 outside count_rx
flow "kernel netback" "NIC to guest" g1 outside count_tx -R
