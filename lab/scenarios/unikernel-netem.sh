# The TCP of a guest that is one program, over ways of netem's: loss, reordering, and queues of 32 and of 500
# frames, both ways with a stock guest; and the log of its stack beside a capture. Rates are told beside those
# of a stock guest in its place, and not judged.
# boot: hvm
# timeout: 600
# needs: grantway-xen
only_grantway
bytes=4194304
modprobe sch_netem
bridge_up
# No frame is longer than a segment, so netem treats segments, as a wire does.
start_backend --checksum full
guest_start "g1 g2" vif=bridge=xenbr0
iperf2_server g1
iperf2_server g2

# resent NAME: segments that a stock guest has sent again.
resent() { guest_run "$1" "nstat -asz TcpRetransSegs | awk '/^TcpRetransSegs/ { print \$2 }'"; }
# served NAME: Mbit/s of the last test that a stock guest's iperf 2 served.
served() { guest_run "$1" "awk -F, 'NF >= 9 { rate = \$9 } END { printf \"%.1f\", rate / 1e6 }' /run/lab/iperf2"; }
# way_did NAME: what netem did to frames on the way to it; for $dropped and $overtook, too.
way_did() { dropped=$(way_dropped "$1") overtook=$(way_overtook "$1"); }

# stock FROM TO SETTING...: a stock guest sends to another one.
stock() {
    sender=$1 taker=$2
    shift 2
    way "$taker" "$@"
    _again=$(resent "$sender") _before=$(iperf2_got "$taker")
    _said=$(on "$sender" "iperf -c $(address "$taker") -n $bytes") || fail "iperf from $sender: $_said"
    await 60 $((_before + bytes)) "bytes that $taker received" iperf2_got "$taker"
    way_did "$taker"
    way_off "$taker"
    say "  $sender to $taker: $(served "$taker") Mbit/s; again $(($(resent "$sender") - _again)), dropped $dropped, overtook $overtook"
}

# own_sends SETTING...: the program sends to g1, and its log is read beside a capture.
own_sends() {
    way g1 "$@"
    _before=$(iperf2_got g1)
    capture_start $LAB/netem.pcap tcp port 5001
    unikernel_start u3 "iperf=client:$(address g1):bytes=$bytes" policy=staging stack-log
    wait_for 120 unikernel_said u3 "iperf: $bytes bytes to"
    await 60 $((_before + bytes)) "bytes that g1 received" iperf2_got g1
    way_did g1
    way_off g1
    capture_end
    unikernel_stack_log u3 >$LAB/logs/stack.jsonl
    xl destroy u3
    grantway flows $LAB/netem.pcap --stack-log $LAB/logs/stack.jsonl --flow 1 >&2
    grantway flows --json $LAB/netem.pcap --stack-log $LAB/logs/stack.jsonl >$LAB/logs/flows.json
    # The first direction is that of the client.
    for _figure in payload_bytes retransmissions retransmitted_bytes sent_bytes again_bytes timeouts fast; do
        eval "$_figure=\$(tr '{' '\n' <$LAB/logs/flows.json | figure $_figure)"
    done
    say "  program to g1: $(served g1) Mbit/s; again $retransmissions ($timeouts by time, $fast by acknowledgements), dropped $dropped, overtook $overtook"
    expect "$sent_bytes" = $bytes "bytes that the log counts as sent"
    expect "$payload_bytes" = $bytes "bytes that were captured"
    # Both count each byte that passed a second time.
    expect "$again_bytes" = "$retransmitted_bytes" "bytes that were sent again, by the log and by the capture"
    # What is dropped is sent again, and dropped again is counted again. smoltcp's timer, which sends all
    # anew, begins with one segment and the next two, before the answer tells what has come. A segment
    # that is not lost is sent again only if others overtook it.
    expect "$retransmissions" -ge $((dropped > 0)) "segments that were sent again, of $dropped that were dropped"
    expect "$retransmissions" -le $((3 * dropped + overtook)) "segments that were sent again, of $dropped dropped and $overtook that overtook"
    # The acknowledgements' way drops none.
    expect "$timeouts" -le "$dropped" "times that a segment was sent again for want of an answer"
}

# own_takes SETTING...: g1 sends to the program; and what the program echoes comes back as it was, if that
# is also the way back.
own_takes() {
    unikernel_start u4 iperf=server policy=staging
    way u4 "$@"
    _again=$(resent g1)
    _said=$(on g1 "iperf -c $(address u4) -n $bytes") || fail "iperf from g1: $_said"
    await 60 $bytes "bytes that u4 received" unikernel_figure u4 iperf_received_bytes
    way_did u4
    say "  g1 to program: $(unikernel_said u4 'iperf: ' | sed 's/.*, \([0-9]*\) Mbit.*/\1/') Mbit/s; again $(($(resent g1) - _again)), dropped $dropped, overtook $overtook"
    way g1 "$@"
    on g1 "dd if=/dev/urandom bs=1024 count=512 of=/run/lab/sent 2>/dev/null
        nc -w $(patient 20) $(address u4) 7 </run/lab/sent | head -c 524288 | cmp - /run/lab/sent" || fail "u4 echoed something else"
    way_off g1
    way_off u4
    xl destroy u4
}

# all_ways SETTING...: each of them sends to the other, the program and the stock guest in its place.
all_ways() {
    say "netem $*:"
    own_sends "$@"
    sent_dropped=$dropped sent_overtook=$overtook
    stock g2 g1 "$@"
    own_takes "$@"
    stock g1 g2 "$@"
}

all_ways loss 1% limit 10000
expect "$sent_dropped" -ge 1 "frames that were dropped"
all_ways delay 5ms reorder 25% 50% limit 10000
expect "$sent_overtook" -ge 1 "frames that overtook others"
# A Linux that does not tell what came twice, as smoltcp does not.
guest_run g2 "echo 0 >/proc/sys/net/ipv4/tcp_dsack"
say "  and g2 without duplicate SACKs:"
stock g1 g2 delay 5ms reorder 25% 50% limit 10000
# The program has up to 180 frames under way: more than the first queue holds, and fewer than the second.
all_ways rate 10mbit limit 32
expect "$sent_dropped" -ge 1 "frames that were dropped"
all_ways rate 10mbit limit 500
expect "$sent_dropped" = 0 "frames that were dropped"
xl destroy g1
xl destroy g2
nothing_left
