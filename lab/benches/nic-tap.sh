# Stock guests on our backend, TAPs and the kernel's bridge, to a network card.
# boot: nic
# order: 6
# timeout: 1200
# needs: grantway-xen
bridge_up
start_backend
nic_up
guest_start g1 vif=bridge=xenbr0
iface=$(vif_of g1)
flow "our backend, TAP" "guest to NIC" g1 outside count_rx
flow "our backend, TAP" "NIC to guest" g1 outside count_tx -R
