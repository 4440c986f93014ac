# Our frontend in a guest, on the kernel's netback.
# boot: pv
# timeout: 150
# needs: grantway-xen
with_netback
bridge_up
guest_start g1 modules=tun
xl network-attach g1 bridge=xenbr0 >&2
frontend_start g1
pings dom0 g1 10
pings g1 dom0 10
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
frontend_said g1
xl destroy g1
nothing_left
