# `--policy map`: what a stock guest sends is read in its pages, and each is unmapped
# before its slot is answered. A netfront that finds one still mapped says so and
# gives the vif up.
# order: 1
# boot: pv
# timeout: 300
# needs: grantway-xen
only_grantway
bridge_up
start_backend --policy map
guest_start g1 vif=bridge=xenbr0
id=$(domid g1)
iperf_server dom0
guest_errors=$(checksum_errors g1)
dom0_errors=$(checksum_errors dom0)
guest_dmesg_mark g1
# One queue, two rings.
rings_only() { [ "$(grant_mappings "$id" | wc -l)" -eq 2 ]; }
none_mapped() { [ -z "$(grant_mappings "$id")" ]; }

pings dom0 g1 10
pings g1 dom0 10
pings6 g1 dom0
# Around what is copied of each frame, 128 bytes, and up to one that is all fragments.
ping_sizes g1 dom0 0 85 86 87 88 1400 9000 60000
ping_sizes dom0 g1 0 87 1400 60000
tcp g1 dom0
tcp g1 dom0 -R
expect "$(checksum_errors g1)" = "$guest_errors" "checksum errors in the guest"
expect "$(checksum_errors dom0)" = "$dom0_errors" "checksum errors in dom0"
wait_for 10 rings_only
expect "$(guest_dmesg_since g1)" = "" "what the guest's kernel said"

# Few enough pages for the hypervisor's console, so that some packets are copied.
kill_backend -9
wait_for 10 none_mapped
start_backend --policy map --mapped-pages 100
load_start g1 dom0
# caught: stopped in the middle of its work, the backend has more mapped than rings.
caught() {
    kill -STOP "$(cat "$LAB/backend.pid")"
    grant_mappings "$id" | wc -l >"$LAB/logs/mapped"
    kill -CONT "$(cat "$LAB/backend.pid")"
    [ "$(cat "$LAB/logs/mapped")" -gt 2 ]
}
wait_for 60 caught
expect "$(cat "$LAB/logs/mapped")" -le 102 "pages mapped of the guest, its rings too"
say "caught with $(cat "$LAB/logs/mapped") pages mapped, two rings among them"

for _ in $(seq 5); do
    sleep_ms $((200 + $(random_ms 800)))
    kill_backend -9
    wait_for 10 none_mapped
    start_backend --policy map --mapped-pages 100
done
load_goes_on g1
load_stop g1
expect "$(guest_dmesg_since g1)" = "" "what the guest's kernel said"
say "5 kills while the guest sends, and nothing stays mapped"
# To a backend that copies, and back.
kill_backend -9
start_backend --policy copy
pings g1 dom0
kill_backend -TERM
start_backend --policy map
pings g1 dom0
wait_for 10 rings_only

# It goes in the middle of its traffic.
load_start g1 dom0
xl destroy g1
nothing_left
