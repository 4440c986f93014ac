# Stock guests on our backend, TAPs behind vhost-net, and the kernel's bridge.
# boot: bench
# order: 11
# timeout: 1200
# needs: grantway-xen
bridge_up
modprobe vhost_net
start_backend --port vhost
guest_start "g1 g2" vif=bridge=xenbr0
iperf_server dom0
iperf_server g2
iface=$(vif_of g1)
flow "our backend, vhost-net" "guest to dom0" g1 dom0 count_rx
flow "our backend, vhost-net" "dom0 to guest" g1 dom0 count_tx -R
iface=$(vif_of g2)
flow "our backend, vhost-net" "guest to guest" g1 g2 count_tx
