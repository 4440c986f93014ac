# Measuring, where one instruction is one nanosecond (lab/bench). What is printed
# here is for lab/runner/bench.py, which computes with it.

# bench SETUP WAY KIND FROM TO SOURCE...: SETUP is who serves, WAY is how the frames
# go, KIND is what they are. Traffic is under way already. SOURCE are the files that
# count packets and bytes where they arrive.
bench() {
    _packets=$4 _bytes=$5
    say "bench begin setup=$1 way=$2 kind=$3"
    bench_look
    # Its second reading is of a second; it sees nanoseconds.
    xentop -b -d 1 -i 2 | awk '$1 == "NAME" { n++ } n == 2 && NF > 4 && $1 != "NAME" { print "bench domain " $1 " " $4 }'
    bench_look
    say "bench end"
}
bench_look() { say "bench at $(date +%s%N) $(cat "$_packets") $(cat "$_bytes")"; }

# bench_in GUEST SETUP WAY KIND: the same, counted in a guest.
bench_in() {
    say "bench begin setup=$2 way=$3 kind=$4"
    guest_run "$1" 'look() { echo "bench at $(date +%s%N) $(cat /sys/class/net/eth0/statistics/rx_packets) $(cat /sys/class/net/eth0/statistics/rx_bytes)"; }
        look; sleep 1.2; look' >$LAB/logs/look &
    usleep 100000
    xentop -b -d 1 -i 2 | awk '$1 == "NAME" { n++ } n == 2 && NF > 4 && $1 != "NAME" { print "bench domain " $1 " " $4 }'
    wait $!
    cat $LAB/logs/look
    say "bench end"
}
