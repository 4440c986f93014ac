# A PVH guest.
# boot: hvm
# timeout: 240
# needs: grantway-xen
bridge_up
start_backend
guest_start g1 type=pvh vif=bridge=xenbr0
pings dom0 g1 10
pings g1 dom0 10
pings6 g1 dom0
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
expect "$(checksum_errors g1)" = 0 "checksum errors in the guest"
xl destroy g1
nothing_left
