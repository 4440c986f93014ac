# Guests that are one program, without an operating system (unikernel/). Their addresses are those
# that a guest of the same number has on eth0, so no guest beside them may have their number.

# unikernel_config NAME MIB VIF WORD...: writes its xl configuration; words are its arguments.
unikernel_config() {
    mkdir -p $LAB/guests
    cat >"$LAB/guests/$1.cfg" <<CONFIG
name = "$1"
type = "pvh"
kernel = "/lab/unikernel"
memory = $2
vcpus = 1
tsc_mode = "$(tsc_mode)"
vif = [ '$3' ]
cmdline = "$(shift 3; echo "$*")"
on_reboot = "${unikernel_on_reboot-destroy}"
on_crash = "destroy"
CONFIG
}

# unikernel_start NAME [WORD...]: makes one with a vif on xenbr0, or with the one that $unikernel_vif
# names, until it is connected.
unikernel_start() {
    _one=$1
    shift
    unikernel_config "$_one" 16 "${unikernel_vif-bridge=xenbr0}" "address=$(address "$_one")/24" "address=$(address6 "$_one")/64" "$@"
    # What one of this name said before is not of this one.
    : >"/var/log/xen/console/guest-$_one.log"
    guest_create "$_one"
    wait_for 30 vif_connected "$_one"
}

# unikernel_page NAME: what it says of itself. (busybox's own wget ends in a fault here.)
unikernel_page() { printf 'GET / HTTP/1.0\r\n\r\n' | nc -w "$(patient 20)" "$(address "$1")" 80; }
# unikernel_figure NAME FIGURE: a line of that.
unikernel_figure() { unikernel_page "$1" | awk -v name="$2" '$1 == name { print $2 }'; }
# unikernel_stack_log NAME: what its stack says of its flows (docs/stack-log.md), if it was started with
# the word stack-log.
unikernel_stack_log() {
    printf 'GET /stack-log HTTP/1.0\r\n\r\n' | nc -w "$(patient 20)" "$(address "$1")" 80 | tr -d '\r' | sed '1,/^$/d'
}
# unikernel_staged NAME: whether the backend has a queue's pages staged.
unikernel_staged() { [ "$(unikernel_figure "$1" staged_pages)" -ge 272 ]; }

# unikernel_echoes NAME KIB: whether so much comes back as it was.
unikernel_echoes() {
    dd if=/dev/urandom bs=1024 count="$2" of=$LAB/sent 2>/dev/null
    nc -w "$(patient 20)" "$(address "$1")" 7 <$LAB/sent | head -c $(($2 * 1024)) >$LAB/echoed
    cmp $LAB/sent $LAB/echoed || fail "$1 echoed something else"
}

# hostile_start NAME VIF WORD...: makes a guest that attacks its backend (tests/hostile). It stays when
# it ends, so that what it said last can be read.
hostile_start() {
    _one=$1
    unikernel_config "$_one" 16 "$2" $(shift 2; echo "$@")
    sed -i 's|^kernel = .*|kernel = "/lab/hostile"|; s|"destroy"|"preserve"|' "$LAB/guests/$_one.cfg"
    echo 'on_poweroff = "preserve"' >>"$LAB/guests/$_one.cfg"
    guest_create "$_one"
}

# hostile_said NAME: how far it is.
hostile_said() { xenstore-read "/local/domain/$(domid "$1")/data/hostile"; }
# hostile_over NAME: whether it has ended; what it said last then begins with "over" if a frontend that
# keeps the rules was served after each attack.
hostile_over() {
    xl list "$1" | awk 'NR == 2 { ended = $5 ~ /[sc]/ } END { exit !ended }'
}

# unikernel_said NAME PATTERN: the lines of its console that have it.
unikernel_said() { grep -E "$2" "/var/log/xen/console/guest-$1.log"; }

# iperf2_server WHERE: Debian's iperf 2 there, by TCP and by UDP, until the scenario's end. It tells
# what it counts as numbers with commas between them.
iperf2_server() {
    on "$1" '
        iperf -s -y C >/run/lab/iperf2 2>&1 &
        iperf -s -u -w 2M -y C >/run/lab/iperf2-udp 2>&1 &
        until [ "$(ss -Hltun | grep -c ":5001")" = 2 ]; do usleep 100000; done' ||
        fail "no iperf in $1"
}
# iperf2_server_end WHERE
iperf2_server_end() { on "$1" "killall iperf; while pidof iperf >/dev/null; do usleep 100000; done"; }
# iperf2_got WHERE: bytes of all tests by TCP that it served; iperf2_lost WHERE: whether it counted a
# test by UDP, and no more than a quarter as lost.
iperf2_got() { on "$1" "awk -F, 'NF >= 9 { n += \$8 } END { print n + 0 }' /run/lab/iperf2"; }
iperf2_few_lost() {
    on "$1" "awk -F, 'NF >= 13 { found = 1; bad = \$11 * 4 > \$12 } END { exit !found || bad }' /run/lab/iperf2-udp"
}

# iperf2_sends FROM NAME BYTES: Debian's iperf in FROM sends so many bytes to a unikernel that serves.
iperf2_sends() {
    _before=$(unikernel_figure "$2" iperf_received_bytes)
    _said=$(on "$1" "iperf -c $(address "$2") -n $3 -f m") || fail "iperf from $1: $_said"
    await 20 $((_before + $3)) "bytes that $2 received" unikernel_figure "$2" iperf_received_bytes
    say "  iperf 2, $1 to $2: $(echo "$_said" | awk '/bits\/sec/ { rate = $(NF - 1) " " $NF } END { print rate }')"
}

# iperf2_takes NAME TO BYTES [WORD...]: a unikernel of that name sends so many bytes to Debian's iperf
# in TO, or to a unikernel there that serves; then it goes.
iperf2_takes() {
    _sender=$1 _taker=$2 _amount=$3
    shift 3
    case $_taker in u*) _counts="unikernel_figure $_taker iperf_received_bytes" ;; *) _counts="iperf2_got $_taker" ;; esac
    _before=$($_counts)
    unikernel_start "$_sender" "iperf=client:$(address "$_taker"):bytes=$_amount" "$@"
    wait_for 60 unikernel_said "$_sender" "iperf: $_amount bytes to"
    await 20 $((_before + _amount)) "bytes that $_taker received of $_sender" $_counts
    say "  iperf 2, $_sender to $_taker: $(unikernel_said "$_sender" "iperf: " | sed 's/.*, \([0-9]*\) Mbit.*/\1 Mbit\/s/')"
    xl destroy "$_sender"
}

# unikernel_reboot NAME: `xl reboot` of one that was made with unikernel_on_reboot=restart.
unikernel_reboot() {
    _old=$(domid "$1")
    xl reboot "$1"
    wait_for 60 domid_is_not "$1" "$_old"
    wait_for 30 vif_connected "$1"
}

# unikernel_start_price NAME: what its start took, from its entry until its vif was connected.
unikernel_start_price() {
    _page=$(unikernel_page "$1")
    _calls=$(echo "$_page" | awk '$1 == "start_hypercalls" { print $2 }')
    _ran=$(echo "$_page" | awk '$1 == "start_ran_ns" { print $2 }')
    expect "${_calls:-0}" -ge 20 "hypercalls until it was connected"
    expect "${_calls:-0}" -le 2000 "hypercalls until it was connected"
    expect "${_ran:-0}" -gt 0 "nanoseconds for which it ran until it was connected"
    echo "connected after $_calls hypercalls and $_ran ns of its processor"
}

# unikernel_program NAME PROGRAM [WORD...]: an example (unikernel/examples) without a vif, until it
# shuts down. What it said is in its console's log.
unikernel_program() {
    cat >"$LAB/guests/$1.cfg" <<CONFIG
name = "$1"
type = "pvh"
kernel = "/lab/unikernel-$2"
memory = 16
vcpus = 1
max_event_channels = 8191
on_poweroff = "preserve"
on_crash = "preserve"
cmdline = "$(_name=$1; shift 2; echo "$*")"
CONFIG
    : >"/var/log/xen/console/guest-$1.log"
    guest_create "$1"
    wait_for 60 unikernel_ended "$1"
    xl destroy "$1"
}
# unikernel_ended NAME: whether it shut down, for whatever reason.
unikernel_ended() { xl list "$1" | awk 'NR == 2 { exit $5 !~ /s/ }'; }

# unikernel_checks WORD...: whether the platform passes its checks with these words.
unikernel_checks() {
    unikernel_program u9 check "$@"
    wait_for 20 unikernel_said u9 "^check: (passed|FAILED)|exception" >&2
    unikernel_said u9 "^check: passed" >&2 || fail "check $*: $(tail -n 3 /var/log/xen/console/guest-u9.log)"
    say "$(unikernel_said u9 'hypercalls' | tr -d '\r')"
}
