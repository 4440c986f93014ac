# SIGKILL to the backend, 50 times at random moments, under iperf3: the same TCP
# connection goes on, and the guest's kernel says nothing.
# boot: pv
# timeout: 300
# needs: grantway-xen
only_grantway
kills=25
bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
iperf_server dom0

# The gaps between answers in which a kill fell, in ms.
outages() {
    awk 'FNR == NR { kill[++n] = $1; next }
        match($0, /^\[[0-9.]+\]/) && /bytes from/ {
            now = substr($0, 2, RLENGTH - 2)
            while (next_kill < n && kill[next_kill + 1] < now) {
                next_kill++
                if (kill[next_kill] > last) print int((now - last) * 1000)
            }
            last = now
        }' "$1" "$2"
}

round() {
    guest_dmesg_mark g1
    load_start g1 dom0 $1
    : >$LAB/kills
    ping -D -i 0.02 "$(address g1)" >$LAB/pings &
    ping_pid=$!
    for i in $(seq $kills); do
        sleep_ms $((200 + $(random_ms 800)))
        date +%s.%N >>$LAB/kills
        kill_backend -9
        start_backend
    done
    sleep 2
    wait_for 20 load_flows g1
    kill $ping_pid
    load_stop g1
    # Emulation makes its clocks wonder, which is none of netfront's affair.
    said=$(guest_dmesg_since g1 | grep -vE '(random|clocksource): ' || true)
    expect "$said" = "" "what the guest's kernel said"
    say "$kills kills $2: outage in ms $(outages $LAB/kills $LAB/pings | percentiles)"
}

round "" "while the guest sends"
round -R "while the guest receives"
pings dom0 g1
pings g1 dom0
xl destroy g1
nothing_left
