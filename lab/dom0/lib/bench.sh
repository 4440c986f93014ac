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
