# Ways that lose, reorder and queue frames, by the kernel's netem, and captures of what passes.

# way NAME SETTING...: frames to the guest NAME pass netem with that setting, at its vif in dom0.
way() {
    _vif=$(vif_of "$1")
    shift
    tc qdisc replace dev "$_vif" root netem "$@"
}
# way_off NAME: they do no more.
way_off() { tc qdisc del dev "$(vif_of "$1")" root; }
# way_dropped NAME, way_overtook NAME: the number of frames that netem dropped, or let overtake
# others, which it counts as requeued.
way_dropped() { way_count "$1" dropped; }
way_overtook() { way_count "$1" requeues; }
way_count() {
    tc -s qdisc show dev "$(vif_of "$1")" | tr -d '(),' | awk -v what="$2" '
        /netem/ { own = 1 }
        own && /dropped/ { for (i = 1; i < NF; i++) if ($i == what) { print $(i + 1); exit } }'
}

# capture_start FILE FILTER...: the heads of what passes xenbr0, before it passes the way of a guest. The
# buffer takes a transfer of some megabytes if tcpdump does not run at all.
capture_start() {
    _capture=$1
    shift
    tcpdump -i xenbr0 -Z root -n -s 128 -B 32768 -w "$_capture" "$@" 2>$LAB/logs/tcpdump &
    capture_pid=$!
    wait_for 20 grep -q 'listening on' $LAB/logs/tcpdump
}
# capture_end: until the file has all of it.
capture_end() {
    kill -INT $capture_pid
    wait $capture_pid || true
    grep -q '^0 packets dropped by kernel' $LAB/logs/tcpdump || fail "tcpdump: $(tail -n 3 $LAB/logs/tcpdump)"
}
