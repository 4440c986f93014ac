# A real systemd beside dom0's first process, with the Debian packages. It is the first of
# process and mount namespaces of its own, and has the scenario's group: so it ends as the
# scenario does.

# packages [OPTIONS...] ACTION NAMES: dpkg as an administrator calls it; -i takes names, too.
packages() {
    _files=
    for _word in "$@"; do
        case $_word in
            grantway*) [ "$_action" != -i ] || _word=$(echo /lab/package/"$_word"_*.deb) ;;
            *) _action=$_word ;;
        esac
        _files="$_files $_word"
    done
    # There is no ldconfig, and busybox would take its own dpkg.
    in_systemd /usr/bin/dpkg --force-bad-path $_files >&2
}

# install_backend: the packages of the backend, without what forbids the kernel's netback.
install_backend() {
    packages -i grantway grantway-backend
    rm /lib/modprobe.d/grantway.conf
}

# unit_setting NAME LINES: more for the unit, as an operator's `systemctl edit` gives it.
unit_setting() {
    mkdir -p /run/systemd/system/grantway-backend.service.d
    printf '[Service]\n%s\n' "$2" >"/run/systemd/system/grantway-backend.service.d/$1.conf"
}
unit_setting_off() { rm "/run/systemd/system/grantway-backend.service.d/$1.conf"; }

# systemd_start [TARGET]: starts it, until it answers.
systemd_start() {
    mkdir -p /run/systemd/system /var/tmp /home
    # All that it logs.
    echo on >/proc/sys/kernel/printk_devkmsg
    [ -s /etc/machine-id ] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
    # There is no journal.
    unit_setting lab "StandardOutput=append:$LAB/logs/backend
StandardError=append:$LAB/logs/backend
TimeoutStartSec=600"
    unshare -m -p -u -f --mount-proc sh -c '
        mount -t xenfs xenfs /proc/xen
        exec env -i container=lab PATH=/usr/sbin:/usr/bin \
            /usr/lib/systemd/systemd --system --unit='${1:-basic.target}' --show-status=no --log-target=kmsg' >$LAB/logs/systemd 2>&1 </dev/null &
    _unshare=$!
    wait_for 30 systemd_answers
    systemd_pid=$(cat "/proc/$_unshare/task/$_unshare/children")
    systemd_pid=${systemd_pid% }
}
# systemd_stop: as by a power cut.
systemd_stop() {
    kill -9 "$systemd_pid"
    wait "$_unshare" || true
    rm /run/systemd/private
}
systemd_answers() { [ -S /run/systemd/private ]; }

# in_systemd COMMAND...: in its namespaces; systemctl: the command there.
in_systemd() { nsenter -t "$systemd_pid" -m -p "$@"; }
systemctl() { in_systemd /usr/bin/systemctl --no-pager "$@"; }

# options_file [OPTIONS...]: the lines of a file that has these options.
options_file() {
    while [ $# -gt 0 ]; do
        printf '%s = ' "${1#--}"
        shift
        case ${1---} in
            --*) echo true; continue ;;
            *[!0-9]*) printf '"%s"\n' "$1" ;;
            *) echo "$1" ;;
        esac
        shift
    done
}

# unit_serves [OPTIONS...]: the unit with these options of the backend, started or started anew;
# it has come back as systemd was told READY=1.
unit_serves() {
    options_file "$@" >/etc/grantway/backend.toml
    unit_options="${unit_options-} $*"
    systemctl daemon-reload
    # A unit that is passed over is no failure to it.
    systemctl restart grantway-backend && [ "$(unit_says ActiveState)" = active ] ||
        fail "the unit does not start with $*: $(tail -n 3 $LAB/logs/backend; systemctl status grantway-backend 2>&1)"
}
unit_says() { systemctl show -p "$1" --value grantway-backend; }
# unit_process FIELD: of its main process's status.
unit_process() { in_systemd sed -n "s/^$1:[[:space:]]*//p" "/proc/$(unit_says MainPID)/status"; }
