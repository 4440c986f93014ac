# Stock guests with two and four queues, on the kernel's netback.
# boot: bench
# order: 5
# timeout: 1200
with_netback
echo 4 >/sys/module/xen_netback/parameters/max_queues
bridge_up
iperf_server dom0
for queues in 2 4; do
    guest_start g1 vcpus=$queues vif=bridge=xenbr0
    expect "$(guest_run g1 'ls -d /sys/class/net/eth0/queues/tx-* | wc -l')" = $queues "queues"
    iface=$(vif_of g1)
    flow "kernel netback, $queues queues" "guest to dom0" g1 dom0 count_rx -P 8
    flow "kernel netback, $queues queues" "dom0 to guest" g1 dom0 count_tx -R -P 8
    xl destroy g1
done
