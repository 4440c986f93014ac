# Stock guests on the kernel's netback and bridge.
# boot: bench
# order: 1
# timeout: 1200
with_netback
bridge_up
guest_start "g1 g2" vif=bridge=xenbr0
iperf_server dom0
iperf_server g2
iface=$(vif_of g1)
flow "kernel netback" "guest to dom0" g1 dom0 count_rx
flow "kernel netback" "dom0 to guest" g1 dom0 count_tx -R
iface=$(vif_of g2)
flow "kernel netback" "guest to guest" g1 g2 count_tx
