# Our frontend in guests on our backend: generator to checker, no TAP between.
# boot: bench
# order: 4
# timeout: 1200
# needs: grantway-xen
start_backend --port null
guest_start "g1 g2" modules=
vif_new() { xl network-attach "$1" script=vif-grantway >&2; }
vif_new g1
vif_new g2
kill_backend -TERM
sink=00:16:3e:00:00:01 source=00:16:3e:00:00:02
for policy in copy map persistent staging; do
    for size in 64 65535; do
        halves "our frontend, $policy" "guest to dom0" $size $policy tx
        halves "our frontend, $policy" "dom0 to guest" $size $policy rx
        halves "our frontend, $policy" "guest to guest" $size $policy guest-to-guest "generator:size=$size,to=$sink,from=$source" g2 "check:from=$sink"
    done
done
