# As `image` on two processors, and the guests poll.
# boot: bench-poll
# order: 9
# timeout: 1200
# needs: grantway-xen
window_seconds=0.2
tell_symbols
for way in "guest to dom0" "dom0 to guest"; do
    for burst in 8 32 1; do
        for policy in copy persistent staging; do unikernel_row "$way" 64 $burst $policy poll; done
    done
    for size in 1496 65535; do
        for policy in copy persistent staging; do unikernel_row "$way" $size 32 $policy poll; done
    done
done
