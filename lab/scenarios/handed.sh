# A stock guest whose rings a program hands over (crates/backend/examples/handed.rs): no toolstack of Xen knows the vif, and
# its server has gntdev and evtchn, and no store. The server is killed, and its successor continues: the guest notices nothing.
# order: 1
# boot: pv
# timeout: 180
# needs: grantway-xen
only_grantway
without_netback
modprobe -a xen-gntdev xen-evtchn tun
guest_start g1
id=$(domid g1)
front=/local/domain/$id/device/vif/0 back=/local/domain/0/backend/vif/$id/0

# The folders, and who may read them; then what is in them, `state` at the end. The guest looks for devices in its own.
xenstore-write $back "" $front ""
xenstore-chmod $back n0 "r$id"
xenstore-chmod $front "n$id" r0
xenstore-write $back/frontend $front $back/frontend-id "$id" $back/online 1 $back/handle 0 $back/mac 00:16:3e:00:00:01 $back/state 1
xenstore-write $front/backend $back $front/backend-id 0 $front/handle 0 $front/mac 00:16:3e:00:00:01 $front/state 1

# serve: the server with a TAP, and dom0's address on it.
serve() {
    handed xen "$id" "tap:vif$id.0" >>$LAB/logs/handed 2>&1 &
    server=$!
    wait_for 15 [ -e "/sys/class/net/vif$id.0" ]
    ip link set "vif$id.0" up
    ip addr add 10.0.0.1/24 dev "vif$id.0"
    ip addr add fd00::1/64 dev "vif$id.0" nodad
}
serves() { [ "$(grep -c connected $LAB/logs/handed)" = "$1" ]; }

serve
guest_net g1
wait_for 15 serves 1
pings dom0 g1 10
pings6 g1 dom0
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R
guest_dmesg_mark g1
for round in 2 3 4; do
    kill -9 $server
    wait_for 10 no_interface "vif$id.0"
    serve
    wait_for 15 serves $round
    pings dom0 g1 5
    pings g1 dom0 5
done
expect "$(guest_dmesg_since g1)" = "" "what the guest's kernel said"
expect "$(vif_state g1)" = "4 4" "states of both ends"
tcp g1 dom0
xl destroy g1
# The guest's folder goes, and the server with it.
status=0
wait $server || status=$?
expect $status = 0 "status of the server: $(tail -n 1 $LAB/logs/handed)"
grep -q 'is gone' $LAB/logs/handed || fail "the server: $(tail -n 3 $LAB/logs/handed)"
xenstore-rm $back
nothing_left
