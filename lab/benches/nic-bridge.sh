# Stock guests on our backend's own bridge, its uplink bridged to a network card.
# boot: nic
# order: 7
# timeout: 1200
# needs: grantway-xen
bridge_up
start_backend --port bridge --uplink tap:gw0
ip link set gw0 master xenbr0
nic_up
guest_start g1 vif=script=vif-grantway
receiver=g1
iface=gw0
flow "our own bridge" "guest to NIC" g1 outside count_rx
flow "our own bridge" "NIC to guest" g1 outside count_guest -R
