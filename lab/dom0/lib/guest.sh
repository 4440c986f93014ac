# Guests: starting, asking, ending them.
# A guest is known by its name. The digits at the end of the name are its
# number, and make its addresses: g1 is 10.0.0.101 and fd00::101 on eth0.

# guest_config NAME [OPTION=VALUE...]: writes its xl configuration. Options:
#   type=pv|pvh          pv
#   memory=MIB           256
#   vcpus=N              1
#   vif=SPEC             as xl takes it; may be repeated; none: no network
#   modules=A,B          loaded at the start; xen-netfront
#   on_reboot=ACTION     restart
#   extra=TEXT           more for xl's file, such as driver_domain=1
guest_config() {
    _name=$1 _type=pv _memory=256 _vcpus=1 _vifs= _modules=xen-netfront _reboot=restart _extra=
    shift
    for _option in "$@"; do
        case $_option in
            type=*) _type=${_option#*=} ;;
            memory=*) _memory=${_option#*=} ;;
            vcpus=*) _vcpus=${_option#*=} ;;
            vif=*) _vifs="$_vifs'${_option#*=}'," ;;
            modules=*) _modules=${_option#*=} ;;
            on_reboot=*) _reboot=${_option#*=} ;;
            extra=*) _extra=${_option#*=} ;;
            *) fail "guest_config: unknown option $_option" ;;
        esac
    done
    # There is one kind on Arm.
    [ "$(uname -m)" != aarch64 ] || _type=pvh
    mkdir -p $LAB/guests
    cat >"$LAB/guests/$_name.cfg" <<CONFIG
name = "$_name"
type = "$_type"
kernel = "/lab/vmlinux"
ramdisk = "/lab/guest.cpio"
memory = $_memory
vcpus = $_vcpus
tsc_mode = "$(tsc_mode)"
cmdline = "console=hvc0 loglevel=6 panic=1 mitigations=off norandmaps cryptomgr.notests initcall_blacklist=crypto_kdf108_init,x509_key_init lab.name=$_name lab.modules=$_modules lab.backend=$(backend_kind) lab.slow=$(slowness)"
vif = [ $_vifs ]
on_reboot = "$_reboot"
on_crash = "destroy"
$_extra
CONFIG
}

# guest_start NAMES [OPTION=VALUE...]: makes them, which come up side by side, waits
# until they answer, and brings their interfaces up.
guest_start() {
    _starting=$1
    shift
    for _one in $_starting; do
        guest_config "$_one" "$@"
        guest_create "$_one"
    done
    for _one in $_starting; do
        guest_ready "$_one"
        _count=0
        for _option in "$@"; do
            case $_option in vif=*)
                guest_net "$_one" "eth$_count"
                _count=$((_count + 1))
                ;;
            esac
        done
    done
}

# tsc_mode: who reads the processor's counter for guests, as the runner was asked.
tsc_mode() { _mode=$(word lab.tsc); echo "${_mode:-default}"; }

# guest_create NAME: `xl create` and no more. How long libxl waits for a backend (10 s) and
# for a script (40 s) is built into it: where it was that, the guest is made again.
guest_create() {
    for _try in 1 2 3 4 5; do
        # xl leaves a process that waits for the guest's end, with our descriptors.
        if xl create "$LAB/guests/$1.cfg" >"$LAB/logs/xl-create-$1" 2>&1; then return 0; fi
        grep -qE 'because of timeout|timed out' "$LAB/logs/xl-create-$1" || break
        xl destroy "$1" >&2 || true
    done
    fail "xl create $1: $(tail -n 3 "$LAB/logs/xl-create-$1")"
}

# guest_ready NAME [SECONDS]: waits until the guest's agent answers.
guest_ready() { wait_for "${2:-60}" guest_answers "$1"; }
guest_answers() {
    _domid=$(domid "$1") || return
    timeout 1 xenstore-watch -n 2 "/local/domain/$_domid/data/lab/ready" >/dev/null 2>&1
    xenstore-exists "/local/domain/$_domid/data/lab/ready"
}

# domid NAME: the number of the domain of this name; fails if there is none.
domid() (
    set +ex
    known=
    [ ! -e "$LAB/guests/$1.domid" ] || read -r known <"$LAB/guests/$1.domid"
    if [ -z "$known" ] || [ "$(xenstore-read "/local/domain/$known/name" 2>/dev/null)" != "$1" ]; then
        known=$(xl domid "$1" 2>/dev/null)
        echo "$known" >"$LAB/guests/$1.domid"
    fi
    [ -n "$known" ] && echo "$known"
)

# guest_run [-t SECONDS] NAME COMMAND...: runs a shell command in the guest;
# its output (both streams) and its status are the guest's. 124: no answer; 125: there is no
# such guest, or it went, so that nobody answers.
guest_run() (
    set +ex
    time=60
    if [ "$1" = -t ]; then
        time=$2
        shift 2
    fi
    domain=$(domid "$1") || { echo "there is no guest $1"; exit 125; }
    at=/local/domain/$domain/data/lab
    name=$1
    shift
    read -r id </proc/sys/kernel/random/uuid
    xenstore-write "$at/run/$id" "$(printf '%s\n' "$*" | base64 -w 0)"
    until=$(($(now_ms) + $(patient "$time") * 1000))
    # A watch fires when it is set, and at what happens from then on: what happened before is seen
    # after a second. To look again and again would take the guest's time: a look is some programs.
    until timeout 1 xenstore-watch -n 2 "$at/done/$id" >/dev/null 2>&1
        answer=$(xenstore-read "$at/done/$id" 2>/dev/null); do
        xenstore-exists "/local/domain/$domain" || { echo "the guest $name went (it was domain $domain)"; exit 125; }
        [ "$(now_ms)" -lt $until ] || exit 124
    done
    if [ "${answer#* }" != 0 ]; then
        set --
        while [ $# -lt "${answer#* }" ]; do set -- "$@" "$at/out/$id/$#"; done
        xenstore-read "$@" | base64 -d
    fi
    xenstore-rm "$at/run/$id" "$at/done/$id" "$at/out/$id" 2>/dev/null
    exit "${answer% *}"
)

# guest_reboot NAME: `xl reboot`, until the new domain answers.
guest_reboot() {
    _old=$(domid "$1")
    xl reboot "$1"
    wait_for 60 domid_is_not "$1" "$_old"
    guest_ready "$1"
}
domid_is_not() { _now=$(domid "$1") && [ "$_now" != "$2" ]; }

# guest_save NAME, guest_restore NAME: through a file.
guest_save() { xl save "$1" "/var/lib/xen/save/$1" >&2; }
guest_restore() {
    xl restore "/var/lib/xen/save/$1" >"$LAB/logs/xl-restore-$1" 2>&1 ||
        fail "xl restore $1: $(tail -n 3 "$LAB/logs/xl-restore-$1")"
    rm "/var/lib/xen/save/$1"
    guest_ready "$1"
}

# guest_migrate NAME: `xl migrate` to this same host, until the new domain answers.
guest_migrate() {
    _old=$(domid "$1")
    xl migrate -s '' "$1" 'xl migrate-receive' >"$LAB/logs/xl-migrate-$1" 2>&1 ||
        fail "xl migrate $1: $(tail -n 3 "$LAB/logs/xl-migrate-$1")"
    wait_for 20 domid_is_not "$1" "$_old"
    guest_ready "$1"
}

# guest_net NAME [INTERFACE [NET [COMMAND]]]: waits for it, gives it its addresses,
# and runs COMMAND there; until its backend serves it. Its number is the vif's. NET is the third number of the IPv4 address, and the IPv6
# network: 0.
guest_net() {
    _if=${2:-eth0} _net=${3:-0}
    _host=$(guest_number "$1")
    guest_run "$1" "
        until [ -e /sys/class/net/$_if ]; do usleep 100000; done
        ip link set $_if up
        ip addr replace 10.0.$_net.$_host/24 dev $_if
        ip addr replace fd0$_net::$_host/64 dev $_if nodad
        until [ \"\$(cat /sys/class/net/$_if/carrier)\" = 1 ]; do usleep 100000; done
        ${4-}
    " >&2 || fail "$1: $_if does not come up (status $?)"
    # A netfront has its carrier before the backend has taken its rings up.
    wait_for 30 vif_connected "$1" "${_if##*[!0-9]}"
}

# guest_number NAME: 101 for g1.
guest_number() { echo $((100 + $(echo "$1" | sed 's/[^0-9]*//'))); }
# address NAME [NET], address6 NAME [NET]: of a guest, of dom0, or (IPv4 only) of what is `outside`
# behind the network card; what is one already stays.
address() {
    case $1 in
        dom0) echo "10.0.${2:-0}.1" ;;
        *.*) echo "$1" ;;
        outside) echo "10.0.${2:-0}.254" ;;
        *) echo "10.0.${2:-0}.$(guest_number "$1")" ;;
    esac
}
address6() { if [ "$1" = dom0 ]; then echo "fd0${2:-0}::1"; else echo "fd0${2:-0}::$(guest_number "$1")"; fi; }

# guest_dmesg_mark NAME; guest_dmesg_since NAME: what its kernel said since, but for what it
# says of an emulated processor that stood still: of its clocks, and where a task was then.
guest_dmesg_mark() { guest_run "$1" 'dmesg | wc -l >/run/lab/dmesg.mark'; }
guest_dmesg_since() {
    guest_run "$1" 'dmesg | tail -n +$(($(cat /run/lab/dmesg.mark) + 1))' | awk '
        { text = $0; sub(/^(<[0-9]+>)?\[ *[0-9.]+\] */, "", text) }
        text ~ /^(random|clocksource|tsc|sched_clock|hrtimer|perf|workqueue|sched|rcu|watchdog|NMI backtrace|TSC found unstable)/ || text ~ /blocked for more than/ {
            trace = text ~ /^(rcu|watchdog|NMI)|blocked for/
            next
        }
        trace && text ~ /^(\t|[ ?]|Call Trace|<\/?TASK>|<\/?IRQ>|CPU:|Modules linked in|Hardware name|Code:|R[A-Z0-9]+:|RIP|[CDEFG]S:|CR[0-9]|Task dump|task:|[a-z_0-9.]+\+0x)/ { next }
        { trace = 0; print }'
}

# guest_gone NAME: waits until no domain of that name is left.
guest_gone() { wait_for "${2:-30}" no_guest "$1"; }
no_guest() { ! xl domid "$1" >/dev/null 2>&1; }
