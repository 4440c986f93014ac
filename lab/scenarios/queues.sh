# Several queues, as stock netfront takes them, and a limit on what a guest may send.
# boot: pv
# timeout: 200
# needs: grantway-xen
bridge_up
start_backend --queues 2 --workers 2
guest_start g1 vcpus=2 vif=bridge=xenbr0
iperf_server dom0
# Linux 6.1's netfront does not know `ethtool -l`.
expect "$(guest_run g1 'ls -d /sys/class/net/eth0/queues/tx-* | wc -l')" = 2 "queues that netfront has"
expect "$(guest_run g1 'ethtool -S eth0' | grep -c rx_gso_checksum_fixup)" = 1 "statistics of netfront"
errors=$(checksum_errors g1)
pings dom0 g1 10
tcp g1 dom0 -P 4
tcp g1 dom0 -P 4 -R
udp g1 dom0
# Each queue had work; which flow goes to which is for the guest's kernel to choose.
queues_used() { guest_run g1 'cat /proc/interrupts' | awk '/-q[0-9]+-tx/ && $2 + $3 > 1 { used++ } END { print used + 0 }'; }
for _ in 1 2 3 4 5 6 7 8; do
    [ "$(queues_used)" != 2 ] || break
    tcp g1 dom0 -P 4
done
expect "$(queues_used)" = 2 "queues that were used to send"
# A killed backend takes all of them up again.
load_start g1 dom0 -P 4
if [ "$(backend_kind)" = grantway ]; then
    kill_backend -9
    start_backend --queues 2 --workers 2
fi
load_goes_on g1
load_stop g1
expect "$(checksum_errors g1)" = "$errors" "checksum errors in the guest"
xl destroy g1
nothing_left

guest_start g2 vif=bridge=xenbr0,rate=20Mb/s
# Never more than the limit and what may be saved up, by dom0's own clock and count: that
# holds however slow the machine is. How close to the limit a vif comes is judged only while
# dom0 is on time: the backend lets go of so many bytes each 50 ms, and where it comes to that
# late, nothing makes up for it. So there are several transfers.
while usleep 50000; do echo; done >$LAB/turns &
turns_pid=$!
dev=$(vif_of g2)
for _ in 1 2 3 4 5; do
    bytes=$(counter "$dev" rx_bytes) from=$(now_ms) turns=$(wc -l <$LAB/turns)
    rate=$(iperf g2 dom0 -n 10M) || fail "TCP: $(tail -n 3 "$LAB/logs/iperf3-last")"
    time=$(($(now_ms) - from)) bytes=$(($(counter "$dev" rx_bytes) - bytes))
    turn=$((time / ($(wc -l <$LAB/turns) - turns + 1)))
    say "rate=20Mb/s: $rate Mbit/s, with a turn of dom0 each $turn ms"
    # 2500 bytes are 20 Mbit/s for a millisecond.
    expect "$bytes" -le $((2500 * time * 11 / 10 + 400000)) "bytes within $time ms of a vif of 20 Mbit/s"
    [ $turn -le 80 ] && least=12 || least=0
    if [ "$rate" -ge $least ]; then break; fi
done
kill $turns_pid
expect "$rate" -ge $least "Mbit/s of a vif of 20"
xl destroy g2
nothing_left
