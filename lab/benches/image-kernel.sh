# A guest that is one program on the kernel's netback: generator to dom0, whose bridge drops the frames.
# boot: bench-pvh
# order: 10
# timeout: 1200
# needs: grantway
with_netback
bridge_up
_source=count_rx
tell_symbols
for size in 64 1496 65535; do
    for burst in 32 8 1; do
        [ $size = 64 ] || [ $burst = 32 ] || continue
        unikernel_config u1 16 bridge=xenbr0 generate=$size burst=$burst wait=sleep
        guest_create u1
        wait_for 30 vif_connected u1
        iface=$(vif_of u1)
        window "kernel netback, sleep" "guest to dom0" "$size B, $burst at once"
        xl destroy u1
    done
done
