# A guest whose vif is marked checksum=full gets no blank checksum and sends none, by TAPs and
# the kernel's bridge as by the backend's own; a guest beside it shows what a capture sees of
# blank ones. A successor keeps the mark.
# order: 2
# boot: pv
# timeout: 240
# needs: grantway-xen
only_grantway

# marker WORD SCRIPT: makes a hotplug script that marks its vif, and goes on as SCRIPT. Prints
# its path.
marker() {
    cat >$LAB/vif-$1 <<SCRIPT
#!/bin/sh
case \$1 in online | add) xenstore-write "\$XENBUS_PATH/checksum" $1 ;; esac
exec $2 "\$@"
SCRIPT
    chmod +x $LAB/vif-$1
    echo $LAB/vif-$1
}

# capture WHERE INTERFACE: keeps what arrives there.
capture() {
    on "$1" "tcpdump -i $2 -Q in -Z root -n -B 8192 -w /run/lab/caught-$2 'tcp or udp' </dev/null >/dev/null 2>/run/lab/capture-$2 &
        echo \$! >/run/lab/capture-$2.pid
        until grep -q 'listening on' /run/lab/capture-$2; do usleep 100000; done" >&2
}

# captured WHERE INTERFACE: ends that.
captured() {
    on "$1" "kill -INT \$(cat /run/lab/capture-$2.pid)
        while [ -e /proc/\$(cat /run/lab/capture-$2.pid)/exe ]; do usleep 100000; done" >&2
}

# judge WHERE INTERFACE [FILTER]: sets $right and $blank to the frames among those kept whose
# checksum is complete, and is not.
judge() {
    _judged=$(on "$1" "tcpdump -Z root -r /run/lab/caught-$2 -n -t -vv $3 2>/dev/null | awk '
        /\\(correct\\)|udp sum ok/ { right++ }
        /\\(incorrect|bad udp cksum/ { blank++ }
        END { print right + 0, blank + 0 }'")
    read -r right blank <<WORDS
$_judged
WORDS
}
# all_complete, some_blank WHAT WHERE INTERFACE [FILTER]
all_complete() {
    judge "$2" "$3" "${4-}"
    say "$1: $right complete, $blank blank"
    expect "$right" -gt 500 "complete checksums, $1"
    expect "$blank" = 0 "blank checksums, $1"
}
some_blank() {
    judge "$2" "$3" "${4-}"
    say "$1: $right complete, $blank blank"
    expect "$blank" -gt 0 "blank checksums, $1"
}

# exchange FROM TO: TCP over IPv4 and UDP over IPv6, both ways.
exchange() {
    for _back in "" -R; do
        iperf "$1" "$2" -c "$(address "$2")" -n 1M $_back >&2 || fail "TCP $1 $2 $_back"
        iperf "$1" "$2" -c "$(address6 "$2")" -n 100K -u -b 10M -l 1400 $_back >&2 || fail "UDP $1 $2 $_back"
    done
}

# all_pairs: each with each, and both servers for it.
all_pairs() {
    exchange g1 dom0
    exchange g2 dom0
    exchange g2 g1
}

# begin: the guests are there: segments are not to be merged before they are captured.
begin() {
    for _guest in g1 g2; do guest_run $_guest 'ethtool -K eth0 gro off' >&2; done
    iperf_server dom0
    iperf_server g1
    from_g1="src host $(address g1) or src host $(address6 g1)"
    errors=$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)
}

# g1_is_marked: whether the operator's tools say so, of its vif alone.
g1_is_marked() {
    _full=$(grantway report | tr '{' '\n' | sed -n 's/.*"checksum":"full".*"domain":\([0-9]*\).*/\1/p')
    expect "$_full" = "$(domid g1)" "domains with full checksums"
    grantway doctor >$LAB/logs/doctor || true
    grep "$(vif_of g1) .*full checksums" $LAB/logs/doctor >&2
}

# TAPs and the kernel's bridge, by a vif's mark.
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0,script=$(marker full /etc/xen/scripts/vif-bridge)
guest_start g2 vif=bridge=xenbr0
begin
vifs="$(vif_of g1) $(vif_of g2)"
for vif in $vifs; do capture dom0 $vif; done
capture g1 eth0
capture g2 eth0
g1_is_marked
all_pairs
expect "$(backend_figure tx_completed)" -gt 0 "packets of the guest that were completed"
kill_backend
start_backend
g1_is_marked
exchange g2 g1
for vif in $vifs; do captured dom0 $vif; done
captured g1 eth0
captured g2 eth0
all_complete "by the kernel's bridge, to the marked guest" g1 eth0
all_complete "from it, to its TAP" dom0 "$(vif_of g1)"
all_complete "from it, to the other guest" g2 eth0 "'$from_g1'"
some_blank "to the other guest, from dom0" g2 eth0 "'not ($from_g1)'"
some_blank "from the other guest, to its TAP" dom0 "$(vif_of g2)"
expect "$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)" = "$errors" "checksum errors"
xl destroy g2
xl destroy g1
nothing_left
iperf_server_end
kill_backend -TERM
ip link delete xenbr0

# The backend's own bridge, by its option; the other guest is marked `offload`.
start_backend --port bridge --uplink tap:gw0 --checksum full
ip addr add 10.0.0.1/24 dev gw0
ip addr add fd00::1/64 dev gw0 nodad
guest_start g1 vif=script=vif-grantway
guest_start g2 vif=script=$(marker offload /etc/xen/scripts/vif-grantway)
begin
capture dom0 gw0
capture g1 eth0
capture g2 eth0
g1_is_marked
all_pairs
captured dom0 gw0
captured g1 eth0
captured g2 eth0
all_complete "by the own bridge, to the guest" g1 eth0
all_complete "from it, to the uplink" dom0 gw0 "'$from_g1'"
all_complete "from it, to the other guest" g2 eth0 "'$from_g1'"
some_blank "to the other guest, from the uplink" g2 eth0 "'not ($from_g1)'"
some_blank "from the other guest, to the uplink" dom0 gw0 "'not ($from_g1)'"
expect "$(checksum_errors g1)$(checksum_errors g2)$(checksum_errors dom0)" = "$errors" "checksum errors"
xl destroy g2
xl destroy g1
nothing_left
