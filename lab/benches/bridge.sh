# Our backend and its own bridge.
# boot: bench
# order: 3
# timeout: 300
start_backend --port bridge --uplink tap:gw0
ip addr add 10.0.0.1/24 dev gw0
guest_start g1 vif=script=vif-grantway
guest_start g2 vif=script=vif-grantway
iperf_server g2
load_start g1 g2
sleep 1
guest_run g1 'cat /sys/class/net/eth0/statistics/tx_bytes'
xentop -b -d 1 -i 2 | awk '$1 == "NAME" { n++ } n == 2 && NF > 4 && $1 != "NAME" { print "bench domain " $1 " " $4 }'
guest_run g1 'cat /run/lab/load'
sleep 1
guest_run g1 'cat /run/lab/load'
load_stop g1
