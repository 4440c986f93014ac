# 110 vifs by staging in five guests, with one queue each, within Xen's own limits.
# boot: pv
# timeout: 300
# needs: grantway-xen
only_grantway
guests="g1 g2 g3 g4 g5" each=22 vifs=110
# Pages that a queue at rest has staged. Its vif has three more mapped: two rings and a control ring.
resting=272
grantway plan --vifs $vifs --policy staging --per-guest $each >$LAB/logs/plan || true
grep '^gnttab_max_maptrack_frames .* fits$' $LAB/logs/plan
began=$(now_ms)
took() { say "  $(($(now_ms) - began)) ms: $1"; }
start_backend --port bridge
# A guest has its vifs from the beginning, with a script that leaves interfaces alone.
specs=$(for _ in $(seq $each); do echo vif=script=vif-grantway; done)
for guest in $guests; do
    guest_config $guest memory=320 modules=tun $specs
    guest_create $guest
done
for guest in $guests; do guest_ready $guest; done
took "guests"
# The first vif of a guest has a TAP. Linux in the guest grants 1,024 pages to programs by default
# (xen-gntalloc). All frontends begin at once: xenstored has 10 transactions for a guest, and each
# waits for one.
for guest in $guests; do
    guest_run $guest "
        echo 16384 >/sys/module/xen_gntalloc/parameters/limit
        number=0
        while [ \$number -lt $each ]; do
            port='--port null'
            [ \$number != 0 ] || port='--tap gw0'
            setsid grantway frontend --mode interrupt --devid \$number \$port --policy staging >/run/lab/frontend-\$number 2>&1 &
            number=\$((number + 1))
        done
    " >&2
done
# connected: vifs that are connected, as their frontends say.
connected() {
    for _one in $guests; do
        guest_run "$_one" 'cat /run/lab/frontend-* | grep -c "link up"'
    done | awk '{ n += $1 } END { print n + 0 }'
}
(await 120 $vifs "vifs that are connected" connected) || {
    for guest in $guests; do
        guest_run $guest 'cd /run/lab; for log in frontend-*; do grep -q "link up" $log || { echo "$(hostname) $log:"; tail -n 3 $log; }; done'
    done >$LAB/logs/unconnected
    fail "without a link: $(cat $LAB/logs/unconnected)"
}
took "vifs connected"
# A vif that gets what was not for it is busy for a moment and has more pages, so there may be more.
all_mapped() { [ "$(backend_figure mapped)" -ge $((vifs * (resting + 3))) ]; }
wait_for 60 all_mapped
took "$(backend_figure mapped) pages mapped"
for guest in $guests; do guest_net $guest gw0; done
took "addresses"
for guest in g2 g3 g4 g5; do pings g1 $guest 5; done
iperf_server g5
tcp g1 g5
took "traffic"
expect "$(connected)" = $vifs "vifs that are connected"
for guest in $guests; do xl destroy $guest; done
nothing_left
# Xen keeps what a domain's table of mappings grew to.
xl dmesg -c >/dev/null
xl debug-keys g
frames=$(xl dmesg | sed -n '/remote d0/,$s/.* \([0-9]*\) maptrack frames (1024 max).*/\1/p' | head -n 1)
say "$vifs vifs: $frames of 1024 maptrack frames"
expect "$frames" -gt $((vifs * (resting + 3) * 2 / 256)) "maptrack frames of dom0"
expect "$frames" -lt 1024 "maptrack frames of dom0"
took "nothing left"
