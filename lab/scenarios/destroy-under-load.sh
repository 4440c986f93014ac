# Guests die in the middle of their traffic, and nothing of them stays.
# order: 2
# boot: pv
# timeout: 240
# needs: grantway-xen
bridge_up
start_backend
iperf_server dom0
for way in "" -R "--bidir -u -b 20M"; do
    guest_start g1 vif=bridge=xenbr0
    load_start g1 dom0 $way
    expect "$(grant_mappings "$(domid g1)" | wc -l)" -ge 2 "grants that the backend maps"
    xl destroy g1
    nothing_left
    # The server is still with the client that is no more.
    iperf_server_end
    iperf_server dom0
    say "destroyed with iperf3 ${way:-(sending)}"
done
