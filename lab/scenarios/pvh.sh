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
say "TCP guest to dom0: $(iperf g1 dom0) Mbit/s"
say "TCP dom0 to guest: $(iperf g1 dom0 -R) Mbit/s"
expect "$(checksum_errors g1)" = 0 "checksum errors in the guest"
xl destroy g1
nothing_left
