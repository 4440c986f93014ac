# A PVH guest.
# boot: hvm
# timeout: 240
# needs: grantway-xen
traffic() {
    pvh_start g1 vif=bridge=xenbr0
    guest_net g1
    pings dom0 g1 10
    pings g1 dom0 10
    pings6 g1 dom0
    tcp g1 dom0
    tcp g1 dom0 -R
    expect "$(checksum_errors g1)" = 0 "checksum errors in the guest"
}

bridge_up
start_backend
with_pvh g1 traffic
[ $broken -lt 5 ] || fail "the emulator broke $broken guests in a row"
xl destroy g1
nothing_left
