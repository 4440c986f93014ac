# The kernel's netback and its bridge.
# boot: bench
# order: 1
# timeout: 300
with_netback
bridge_up
guest_start g1 vif=bridge=xenbr0
guest_start g2 vif=bridge=xenbr0
stats=/sys/class/net/$(vif_of g1)/statistics
stats2=/sys/class/net/$(vif_of g2)/statistics
iperf_server dom0
iperf_server g2
load_start g1 dom0
sleep 1
bench kernel guest-dom0 tcp $stats/rx_packets $stats/rx_bytes
load_stop g1
load_start g1 dom0 -R
sleep 1
bench kernel dom0-guest tcp $stats/tx_packets $stats/tx_bytes
load_stop g1
load_start g1 g2
sleep 1
bench kernel guest-guest tcp $stats2/tx_packets $stats2/tx_bytes
load_stop g1
