# The kernel's event `online` of a vif, by which XAPI has its hotplug script run: xen-netback raises
# it, and so do we, once for each vif; also from within the unit.
# boot: pv
# timeout: 240
# needs: grantway-xen package
# order: 1
only_grantway
bridge_up
# online NAME: how often it came for the guest's vif.
online() { grep -cx "online xen-backend backend/vif/$(domid "$1")/0" $LAB/logs/events || true; }
# Each event is handed to a program, by its environment.
printf '#!/bin/sh\necho "$ACTION $SUBSYSTEM $XENBUS_PATH" >>%s\n' $LAB/logs/events >/run/lab/listener
chmod +x /run/lab/listener
: >$LAB/logs/events
uevent /run/lab/listener >&2 &

with_netback
guest_start g1 vif=bridge=xenbr0
await 20 1 "events of xen-netback" online g1
xl destroy g1
nothing_left
without_netback
say "xen-netback: one event"

start_backend
guest_start g2 vif=bridge=xenbr0
await 20 1 "events of ours" online g2
pings dom0 g2
# A successor has nothing to raise.
kill_backend -9
start_backend
guest_start g3 vif=bridge=xenbr0
await 20 1 "events of ours" online g3
expect "$(online g2)" = 1 "events of a vif that was taken over"
pings dom0 g2
say "ours: one event, and none after a takeover"

# What the helper may do: it has no capability, and ends with the backend.
helper() { for _one in /proc/[0-9]*; do grep -qsz uevent-helper "$_one/cmdline" && echo "${_one#/proc/}"; done; true; }
_helper=$(helper)
expect "$(echo "$_helper" | wc -w)" = 1 "helpers"
expect "$(sed -n 's/^CapPrm:[[:space:]]*//p' "/proc/$_helper/status")" = 0000000000000000 "its capabilities"
expect "$(sed -n 's/^Seccomp:[[:space:]]*//p' "/proc/$_helper/status")" = 2 "its filter"
kill_backend -9
await 20 "" "helpers without a backend" helper
xl destroy g2
xl destroy g3

# The unit makes /sys read-only but for this.
systemd_start
install_backend
unit_serves
guest_start g4 vif=bridge=xenbr0
await 20 1 "events from within the unit" online g4
_written=$(in_systemd nsenter -t "$(unit_says MainPID)" -m sh -c 'for _one in /sys/*; do ! touch $_one || echo $_one; done')
expect "$_written" = /sys/devices "folders of /sys that the unit may write to"
say "the unit: one event"
xl destroy g4
