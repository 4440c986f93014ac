# In place of the module: stock guest, stock scripts, every kind of traffic.
# boot: pv
# timeout: 240
# needs: grantway-xen
bridge_up
ip link add name xenbr1 type bridge stp_state 0 forward_delay 0
ip link set xenbr1 mtu 9000 up
ip addr add 10.0.1.1/24 dev xenbr1
start_backend
guest_start g1 vif=bridge=xenbr0 vif=bridge=xenbr1,mtu=9000
vif=$(vif_of g1)
iperf_server dom0
guest_errors=$(checksum_errors g1)
dom0_errors=$(checksum_errors dom0)

pings dom0 g1 20
pings g1 dom0 20
pings6 dom0 g1
pings6 g1 dom0
# From a frame below Ethernet's minimum to one that is all fragments.
ping_sizes g1 dom0 0 1 18 19 1400 4000 9000 30000 60000
ping_sizes dom0 g1 0 1 18 19 1400 4000 9000 30000 60000

features=$(guest_run g1 'ethtool -k eth0')
for feature in tx-checksumming scatter-gather tcp-segmentation-offload; do
    echo "$features" | grep -q "^$feature: on" || fail "the guest has no $feature: $(echo "$features" | grep "^$feature")"
done
mean_size "$vif" rx tcp g1 dom0
expect "$size" -gt 1600 "bytes a packet from the guest (no segmentation offload in use)"
say "  $size bytes a packet"
mean_size "$vif" tx tcp g1 dom0 -R
expect "$size" -gt 1600 "bytes a packet to the guest (no segmentation offload in use)"
say "  $size bytes a packet"
udp g1 dom0
udp g1 dom0 -R

# Large frames that nobody segments.
guest_net g1 eth1 1
guest_run g1 'ip link set eth1 mtu 9000 && ethtool -K eth1 tso off gso off'
ping_address g1 dom0 10.0.1.1 5 "-M do -s 8972"
mean_size "$(vif_of g1 1)" rx tcp g1 10.0.1.1
expect "$size" -gt 4000 "bytes a packet at MTU 9000"
say "MTU 9000 without offload: $size bytes a packet"

expect "$(checksum_errors g1)" = "$guest_errors" "checksum errors in the guest"
expect "$(checksum_errors dom0)" = "$dom0_errors" "checksum errors in dom0"
fixed=$(guest_run g1 'ethtool -S eth0' | awk '/rx_gso_checksum_fixup/ { print $2 }')
expect "${fixed:-0}" = 0 "packets whose checksum netfront had to repair"
xl destroy g1
nothing_left
