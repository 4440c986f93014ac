# Guests that are one program on our backend: generator to checker, by each policy; the guests sleep.
# boot: bench-pvh
# order: 8
# timeout: 1200
# needs: grantway-xen
window_seconds=0.2
tell_symbols
for way in "guest to dom0" "dom0 to guest"; do
    for burst in 32 8 1; do
        for policy in copy persistent staging; do unikernel_row "$way" 64 $burst $policy sleep; done
    done
done
for size in 64 1496 65535; do
    for policy in copy persistent staging; do
        if [ $size != 64 ]; then
            unikernel_row "guest to dom0" $size 32 $policy sleep
            unikernel_row "dom0 to guest" $size 32 $policy sleep
        fi
        unikernel_row "guest to guest" $size 32 $policy sleep
    done
done
