# Guests are moved to this same host (xl migrate) while they send or receive, and their connection
# goes on: by netfront, and by our frontend. PVH guests: Debian's Xen logs the writes of no other kind.
# boot: hvm
# timeout: 900
# needs: grantway-xen
# order: 1
netfront() {
    pvh_start g1 vif=bridge=xenbr0
    guest_net g1
    moves g1 "$1"
    expect "$(checksum_errors g1)" = 0 "checksum errors in the guest"
}

ours() {
    pvh_start g1 modules=tun
    xl network-attach g1 bridge=xenbr0 >&2
    frontend_start g1 --policy staging
    wait_for 20 frontend_staged g1
    moves g1 "$1"
    wait_for 20 frontend_staged g1
    expect "$(frontend_said g1 | grep -c 'link up')" = 2 "connections of the frontend"
}

# moves GUEST [-R]: under iperf3.
moves() {
    load_start "$1" dom0 $2
    guest_migrate "$1"
    load_goes_on "$1"
    load_stop "$1"
    pings dom0 "$1"
}

# in_turn COMMAND...
in_turn() {
    with_pvh g1 "$@"
    [ $broken -lt 5 ] || alone g1 bare
    xl destroy g1
    nothing_left
    iperf_server_end
    say "moved, and its connection went on: $* (broken before: $broken)"
}
bare() {
    pvh_start g1
    guest_migrate g1
    guest_run g1 'ls -lR / >/dev/null; true'
}

only_grantway
bridge_up
start_backend
in_turn netfront -R
in_turn ours ""
in_turn ours -R
