# SIGKILL to the backend, up to 50 times at random moments, under iperf3: the same TCP
# connection goes on, the guest's kernel says nothing, and nothing but what it sent
# reaches the wire.
# order: 2
# boot: pv
# timeout: 300
# needs: grantway-xen
only_grantway
options=
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
vif=$(vif_of g1)
iperf_server dom0

# outages KILLS PINGS: the longest time without an answer from each kill to the next, in ms.
outages() {
    awk 'FNR == NR { kill[++kills] = $1 + 0; next }
        match($1, /^\[[0-9.]+\]$/) && /bytes from/ {
            came = substr($1, 2, RLENGTH - 2) + 0
            while (seen < kills && kill[seen + 1] < came) seen++
            if (seen && came - last > longest[seen]) longest[seen] = came - last
            last = came
        }
        END { for (i = 1; i <= seen; i++) print int(longest[i] * 1000) }' "$1" "$2"
}

# kills NAME MOST [IPERF3 OPTIONS...]
kills() {
    name=$1 most=$2
    shift 2
    files=$LAB/logs/$(echo "$name" | tr " " -)
    guest_dmesg_mark g1
    load_start g1 dom0 "$@"
    : >"$files-kills"
    ping -U -D -i 0.02 "$(address g1)" >"$files-pings" &
    ping_pid=$!
    rounds=0
    while again 5 "$most" 30; do
        sleep_ms $((100 + $(random_ms 600)))
        date +%s.%N >>"$files-kills"
        kill_backend -9
        start_backend $options
    done
    load_goes_on g1
    # What comes after the last kill counts as well, where this machine was too slow before it.
    [ -z "${enough-}" ] || wait_for 60 $enough
    kill $ping_pid
    load_stop g1
    said=$(guest_dmesg_since g1)
    expect "$said" = "" "what the guest's kernel said"
    say "$rounds kills while the guest $name: outage in ms $(outages "$files-kills" "$files-pings" | percentiles)"
}

# frames_judged: of what tcpdump prints, "FRAMES SEGMENTS BAD": frames, TCP segments
# among them whose checksum is right, and frames that no one can have sent.
frames_judged() {
    awk '/^[^ \t]/ { frames++ }
        /^IP6 .*next-header TCP/ { segments++ }
        /cksum 0x[0-9a-f]+ \(correct\)/ { right++ }
        right >= 5001 && !told { told = 1; print right >"/run/lab/logs/frames-enough"; close("/run/lab/logs/frames-enough") }
        /^[^ \t]/ && !/^(IP .*proto ICMP |ARP, |IP6 .*next-header (TCP|ICMPv6) )/ || /\((incorrect|wrong)|bad (cksum|hdr|opt)|\[(bad|\|)/ {
            bad++
            print > "/run/lab/logs/frames-bad"
        }
        END { print frames + 0, right + 0, bad + segments - right }'
}

kills sends 20
errors=$(checksum_errors g1)
kills receives 20 -R
expect "$(checksum_errors g1)" = "$errors" "checksum errors in the guest"

# Where the guest itself makes the checksums, as netfront can be told for IPv6, each
# frame tells whether it is what was sent; but not merged ones, whose checksum is left to
# whoever sends them on. At full rate tcpdump sees a part of them.
options="--merge off"
kill_backend -9
start_backend $options
guest_run g1 'ethtool -K eth0 tx-checksum-ipv6 off' >&2
tcpdump -i "$vif" -Q in -Z root -n -t -vv -B 16384 2>$LAB/logs/tcpdump | frames_judged >$LAB/logs/frames &
judge_pid=$!
wait_for 15 grep -q 'listening on' $LAB/logs/tcpdump
enough="test -s $LAB/logs/frames-enough"
kills "sends IPv6 with whole checksums" 10 -6
killall -INT tcpdump
wait $judge_pid
read -r frames segments bad <$LAB/logs/frames
say "captured from the guest: $frames frames, $segments segments with a right checksum, $bad that it did not send"
expect "$segments" -gt 5000 "segments captured"
expect "$bad" = 0 "frames that the guest did not send (logs/frames-bad)"

pings dom0 g1
pings g1 dom0
xl destroy g1
nothing_left
