# The Debian packages by dpkg, in a real systemd: what is installed serves after the next boot, and
# what is removed leaves running guests to xen-netback.
# boot: pv
# timeout: 300
# needs: grantway-xen package
# order: 1
only_grantway
without_netback
bridge_up
bridge_up xenbr1 1
systemd_start
# kept_away: whether modprobe is told to leave xen-netback out.
kept_away() { modprobe -c | grep -qE '^(blacklist|install) xen.netback'; }
# kind INTERFACE: whose it is.
kind() { [ -e "/sys/class/net/$1/tun_flags" ] && echo tun || echo netback; }

# A workstation has the command, and loses nothing.
packages -i grantway
grantway --version >&2
refuse kept_away
refuse systemctl cat grantway-backend.service >&2

with_netback
packages -i grantway-backend grantway-frontend
for unit in grantway-backend grantway-backend-domU; do
    expect "$(systemctl is-enabled $unit)" = enabled "$unit after installation"
done
expect "$(unit_says ActiveState)" = inactive "the unit, as long as xen-netback serves"
kept_away
without_netback
refuse modprobe xen-netback >&2
say "installed: enabled, not started, xen-netback kept away"

# The next boot.
systemd_stop
systemd_start multi-user.target
active() { [ "$(unit_says ActiveState)" = active ]; }
wait_for 30 active
guest_start g1 vif=bridge=xenbr0 vif=bridge=xenbr1,vifname=dmz0
expect "$(kind "$(vif_of g1)") $(kind dmz0)" = "tun tun" "interfaces"
guest_net g1 eth1 1
pings dom0 g1
iperf_server dom0
tcp g1 dom0
say "the next boot: the guest has its network"

# An upgrade: the successor takes over.
_pid=$(unit_says MainPID)
guest_dmesg_mark g1
packages -i grantway grantway-backend
expect "$(unit_says MainPID)" != "$_pid" "the process after an upgrade"
pings dom0 g1
expect "$(guest_dmesg_since g1)" = "" "what the guest's kernel said"

# A removal that would leave guests without a network is refused, and changes nothing.
in_systemd mount -t tmpfs none /usr/lib/modules/*/kernel/drivers/net/xen-netback
refuse packages -r grantway-backend
expect "$(unit_says ActiveState)" = active "the unit after a removal that was refused"
pings dom0 g1
in_systemd umount /usr/lib/modules/*/kernel/drivers/net/xen-netback

# Removed: xen-netback goes on.
load_start g1 dom0
packages -r grantway-frontend grantway-backend
expect "$(kind "$(vif_of g1)") $(kind dmz0)" = "netback netback" "interfaces"
load_goes_on g1
load_stop g1
vif_connected g1
vif_connected g1 1
pings dom0 g1
ping_address g1 dom0 10.0.1.1 5 ""
tcp g1 dom0
tcp g1 dom0 -R
refuse kept_away
refuse systemctl is-enabled grantway-backend >&2
expect "$(guest_dmesg_since g1)" = "" "what the guest's kernel said"
say "removed: a connection went on with xen-netback"
xl destroy g1
nothing_left
without_netback

# Again, with a backend that was stopped before.
packages -i grantway-backend
systemctl start grantway-backend
guest_start g2 vif=bridge=xenbr0
pings dom0 g2
systemctl stop grantway-backend
packages -r grantway-backend
expect "$(kind "$(vif_of g2)")" = netback "interface"
pings dom0 g2
xl destroy g2
nothing_left
without_netback
packages -i grantway-backend
expect "$(systemctl is-enabled grantway-backend)" = enabled "the unit after a second installation"
packages --purge grantway-backend grantway-frontend grantway
expect "$(ls -d /etc/grantway /etc/default/grantway* /var/lib/grantway /usr/lib/grantway /etc/systemd/system/*/grantway* 2>/dev/null)" = "" "what a purge leaves"
