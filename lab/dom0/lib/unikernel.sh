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
vif = [ '$3' ]
cmdline = "$(shift 3; echo "$*")"
on_reboot = "destroy"
on_crash = "destroy"
CONFIG
}

# unikernel_start NAME [WORD...]: makes one with a vif on xenbr0, until it is connected.
unikernel_start() {
    _one=$1
    shift
    unikernel_config "$_one" 16 bridge=xenbr0 "address=$(address "$_one")/24" "address=$(address6 "$_one")/64" "$@"
    guest_create "$_one"
    wait_for 30 vif_connected "$_one"
}

# unikernel_page NAME: what it says of itself. (busybox's own wget ends in a fault here.)
unikernel_page() { printf 'GET / HTTP/1.0\r\n\r\n' | nc -w "$(patient 20)" "$(address "$1")" 80; }
# unikernel_figure NAME FIGURE: a line of that.
unikernel_figure() { unikernel_page "$1" | awk -v name="$2" '$1 == name { print $2 }'; }
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
