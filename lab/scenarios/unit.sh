# The unit of the Debian packages in a real systemd, with all that it takes away, and each option
# that docs/admin.md names; a restart and a crash that no guest notices.
# boot: pv
# timeout: 600
# needs: grantway-xen package
# order: 1
only_grantway
without_netback
bridge_up
systemd_start
install_backend
systemctl --version | head -n 1

mkdir -p /etc/grantway
rules() {
    printf '[firewall]\ndefault = "%s"\n[[filter]]\naction = "mirror"\nprotocol = "icmp"\n' "$1" >/etc/grantway/rules.toml
}
rules accept
unit_serves --mode adaptive --metrics 127.0.0.1:9633
guest_start g1 vif=bridge=xenbr0
pings dom0 g1
pings6 g1 dom0
iperf_server dom0
tcp g1 dom0
tcp g1 dom0 -R

# What it took away.
expect "$(unit_process NoNewPrivs)" = 1 "NoNewPrivileges"
expect "$(unit_process Seccomp)" = 2 "the filter of system calls"
expect "$(unit_process CapBnd)" = 0000000000001000 "the capabilities that it may have (CAP_NET_ADMIN)"
expect "$(unit_process CapEff)" = 0000000000001000 "the capabilities that it has"
_pid=$(unit_says MainPID)
refuse in_systemd nsenter -t "$_pid" -m sh -c ': >/etc/written'
in_systemd nsenter -t "$_pid" -m sh -c ': >/run/grantway/written && rm /run/grantway/written'
say "READY was seen; systemd's sandbox is there, and the backend's: $(grep -i sandbox $LAB/logs/backend | tail -n 1 | sed 's/.*INFO //')"

# metrics FROM ADDRESS: whether they can be read there. A static busybox cannot look names up,
# which its wget does for an address as well.
metrics() {
    on "$1" "timeout 10 bash -c 'exec 3<>/dev/tcp/$2/9633
        printf \"GET /metrics HTTP/1.1\\r\\nHost: $2:9633\\r\\nConnection: close\\r\\n\\r\\n\" >&3
        cat <&3'" | grep -q '^grantway_'
}
wait_for 30 metrics dom0 127.0.0.1

# A restart and crashes under iperf3.
for direction in "" -R; do
    guest_dmesg_mark g1
    load_start g1 dom0 $direction
    unit_serves --mode adaptive --metrics 127.0.0.1:9633
    load_goes_on g1
    for signal in SEGV ABRT KILL; do
        _before=$(unit_says MainPID)
        # The first SIGSEGV is taken for that of a stack that overflowed, and only the next
        # one ends it.
        came_anew() {
            [ "$(unit_says ActiveState) $(unit_says SubState)" = "active running" ] && [ "$(unit_says MainPID)" != "$_before" ] && return
            [ "$(unit_says MainPID)" != "$_before" ] || systemctl kill --kill-who=main -s $signal grantway-backend
            return 1
        }
        wait_for 30 came_anew
        load_goes_on g1
    done
    load_stop g1
    # It counts anew from each start that was asked for.
    expect "$(unit_says NRestarts)" -ge 3 "restarts by systemd itself"
    expect "$(guest_dmesg_since g1)" = "" "what the guest's kernel said"
done
say "a restart, SIGSEGV, SIGABRT and SIGKILL, both ways: the connection went on"

# Rules, what they mirror, and their reload. Captures need a folder that the unit may write.
mkdir -p /var/lib/captures
unit_setting captures "ReadWritePaths=/var/lib/captures"
unit_serves --rules /etc/grantway/rules.toml --mirror /var/lib/captures/mirror.pcap
pings g1 dom0
mirrored() { [ "$(wc -c </var/lib/captures/mirror.pcap)" -gt 400 ]; }
wait_for 10 mirrored
_pid=$(unit_says MainPID)
rules drop
grantway rules check /etc/grantway/rules.toml >&2
systemctl reload grantway-backend
dropped() { ! on g1 "ping -U -q -c 1 -W 5 10.0.0.1" >&2; }
wait_for 20 dropped
rules accept
systemctl reload grantway-backend
pings g1 dom0
echo 'default = 1' >/etc/grantway/rules.toml
refuse grantway rules check /etc/grantway/rules.toml >&2
systemctl reload grantway-backend
pings g1 dom0
expect "$(unit_says MainPID)" = "$_pid" "the process that reloads"
unit_setting_off captures
say "rules were loaded again, and an invalid file was rejected"

# Metrics for another machine, which the unit lets through by a setting only.
unit_serves --policy map --workers 1 --no-sandbox --metrics 10.0.0.1:9633
pings dom0 g1
tcp g1 dom0
refuse metrics g1 10.0.0.1
unit_setting metrics "IPAddressAllow=10.0.0.0/24"
unit_serves --policy copy --workers 2 --metrics 10.0.0.1:9633
wait_for 30 metrics g1 10.0.0.1
unit_setting_off metrics
tcp g1 dom0 -R
say "metrics: on this machine, and for a network that is allowed"

# To close vifs at its end: SIGINT.
unit_setting close "KillSignal=SIGINT"
systemctl daemon-reload
systemctl stop grantway-backend
closed() { [ "$(vif_state g1)" = "6 6" ]; }
wait_for 20 closed
unit_setting_off close
say "SIGINT: both ends of the vif are Closed"

# The file's own check, before a restart: a fault is named with its line.
checked() { grantway backend --config /etc/grantway/backend.toml --check; }
checked >&2
echo 'polcy = "copy"' >>/etc/grantway/backend.toml
refuse checked >$LAB/logs/checked 2>&1
cat $LAB/logs/checked >&2
grep -q 'line [0-9]*, column 1: found "polcy"' $LAB/logs/checked || fail "the check did not name the line and the key"
unit_options="$unit_options --config --check"
say "a file of options with a fault is rejected before a restart: $(grep -m 1 polcy $LAB/logs/checked)"

# The backend's own bridge.
unit_serves --port bridge --uplink tap:gw0 --checksum full
xl destroy g1
ip addr add 10.0.2.1/24 dev gw0
guest_start "g2 g3" vif=script=vif-grantway
pings g2 g3
pings6 g3 g2
iperf_server g3
tcp g2 g3
guest_run g2 'ip addr add 10.0.2.102/24 dev eth0'
ping_address g2 dom0 10.0.2.1 5 ""
systemctl restart grantway-backend
pings g2 g3

# A packet socket as its uplink, which the unit allows by the settings that the guide names.
ip link add gwu type veth peer name gwe
ip link set gwu up
ip link set gwe up
ip addr add 10.0.3.1/24 dev gwe
unit_setting packet "$(sed -n '/systemctl edit grantway-backend/,/^- /s/^      \([A-Z].*=.*\)/\1/p' /usr/share/doc/grantway/admin.md)"
unit_serves --port bridge --uplink packet:gwu
guest_run g2 'ip addr add 10.0.3.102/24 dev eth0'
ping_address g2 dom0 10.0.3.1 5 ""
unit_setting_off packet
ip link del gwu
say "a packet socket as uplink, by two settings of the unit"
xl destroy g2
xl destroy g3
nothing_left
systemctl stop grantway-backend
expect "$(unit_says Result)" = success "how the unit ended"

# Each option of the backend that the administrator's guide names was used above.
for option in $(grep -o -e '`--[a-z-]*' /usr/share/doc/grantway/admin.md | tr -d '`' | sort -u); do
    grantway backend --help | grep -q -E -e "^ *$option( |\$)" || continue
    case " $unit_options " in *" $option "*) ;; *) fail "the unit was not started with $option" ;; esac
done
