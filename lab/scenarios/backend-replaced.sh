# The domain of the backend crashes, and another one takes its place: our frontend follows.
# boot: pv
# timeout: 300
# needs: grantway-xen
# order: 1
only_grantway
# driver NAME: a driver domain that serves.
driver() {
    guest_start "$1" memory=320 modules=tun,bridge extra=driver_domain=1
    # What xl says there of processors is nothing to it.
    guest_run -t 60 "$1" '. /lab/dom0/lib.sh; xl devd 2>/dev/null && bridge_up && start_backend' ||
        fail "the driver domain $1 does not come up"
}
# attach DRIVER: until the script there has run, which xl devd gives up if the backend takes more
# than 10 s to offer itself.
attach() {
    for _try in 1 2 3 4 5; do
        xl network-attach g1 bridge=xenbr0 backend="$1" >&2
        ! hotplugged "/local/domain/$(domid "$1")/backend/vif/$(domid g1)/0/hotplug-status" || return 0
        xl network-detach g1 0 >&2
    done
    fail "xl devd of $1 does not run the script"
}
hotplugged() (
    set +ex
    until=$(($(now_ms) + $(patient 15) * 1000))
    until [ "$(xenstore-read "$1" 2>/dev/null)" = connected ]; do
        [ "$(now_ms)" -lt $until ] || exit 1
        usleep 200000
    done
)
driver drv1
guest_start g1 modules=tun
attach drv1
frontend_start g1 --policy staging
pings g1 dom0 10
wait_for 20 frontend_staged g1
for number in 2 3; do
    # As a toolstack does it that is told of the crash.
    xl destroy "drv$((number - 1))"
    xl network-detach g1 0 >&2
    driver "drv$number"
    attach "drv$number"
    wait_for 30 vif_connected g1
    pings g1 dom0 10
    wait_for 20 frontend_staged g1
    expect "$(frontend_said g1 | grep -c 'link up')" = $number "connections of the frontend"
done
say "two crashes: $(frontend_said g1 | grep 'attached anew' | tail -n 1 | sed 's/.*INFO //')"
xl destroy g1
xl destroy drv3
nothing_left
