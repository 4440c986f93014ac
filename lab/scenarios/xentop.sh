# xentop shows the vif's traffic.
# order: 1
# boot: pv
# timeout: 120
# needs: grantway-xen
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
pings g1 dom0 50 "-s 1400"
shown=$(xentop -b -n -f -i 1)
echo "$shown" >&2
line=$(echo "$shown" | grep -A 1 '^ *g1 ' | grep '^Net0')
say "$line"
for way in RX TX; do
    bytes=$(echo "$line" | sed "s/.*$way: *\([0-9]*\)bytes.*/\1/")
    expect "$bytes" -gt 50000 "bytes that xentop shows as $way"
done
