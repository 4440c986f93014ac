# A guest that is one program on the kernel's netback: pings, echo, and iperf 2 both ways by TCP and by
# UDP. It wishes for staging, which that backend's control ring refuses.
# boot: hvm
# timeout: 120
# needs: grantway
with_netback
bridge_up
iperf2_server dom0
unikernel_start u2 iperf=server policy=staging
pings dom0 u2 10
pings6 dom0 u2
ping_sizes dom0 u2 0 1 18 19 1400 1472
unikernel_echoes u2 512
expect "$(unikernel_figure u2 echoed_bytes)" = $((512 * 1024)) "bytes echoed"
expect "$(unikernel_figure u2 staged_pages)" = 0 "staged pages"
iperf2_sends dom0 u2 4194304
iperf2_takes u3 dom0 4194304
iperf2_takes u3 u2 4194304
# By UDP: what the server counts as lost is told by both ends.
on dom0 "iperf -c $(address u2) -u -b 1M -n 147000" >&2
wait_for 20 unikernel_said u2 'iperf: [0-9]+ bytes from .*, lost [0-9]+ of 10[01] datagrams'
unikernel_start u3 iperf=client:10.0.0.1:udp:bytes=147000
wait_for 20 unikernel_said u3 'iperf: 147000 bytes to .*, lost [0-9]+ of 100 datagrams'
wait_for 20 iperf2_few_lost dom0
say "  by UDP: $(unikernel_said u3 'iperf: ' | sed 's/.*iperf: //')"
xl shutdown u3
guest_gone u3
xl destroy u2
nothing_left
