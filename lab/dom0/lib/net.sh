# Bridges, and the vifs' interfaces.

# bridge_up [NAME [NET]]: a bridge with dom0's address on it.
bridge_up() {
    _bridge=${1:-xenbr0} _net=${2:-0}
    ip link add name "$_bridge" type bridge stp_state 0 forward_delay 0
    ip link set "$_bridge" up
    ip addr add "10.0.$_net.1/24" dev "$_bridge"
    ip addr add "fd0$_net::1/64" dev "$_bridge" nodad
}

# nic_up: the machine's network card, on the bridge.
nic_up() {
    modprobe e1000e
    wait_for 15 [ -e /sys/class/net/eth0 ]
    ip link set eth0 master xenbr0
    ip link set eth0 up
    wait_for 15 grep -qx 1 /sys/class/net/eth0/carrier
}

# no_interface NAME: whether it is gone.
no_interface() { [ ! -e "/sys/class/net/$1" ]; }

# vif_of NAME [DEVID]: the name of a guest's interface in dom0.
vif_of() { echo "vif$(domid "$1").${2:-0}"; }

# vifs_left: the names of all such interfaces.
vifs_left() { ls /sys/class/net | grep -E '^vif' || true; }

# counter INTERFACE NAME: one of its statistics, such as rx_packets.
counter() { cat "/sys/class/net/$1/statistics/$2"; }

# mean_size INTERFACE rx|tx COMMAND...: sets $size to the bytes a packet had while
# COMMAND ran. More than the MTU says that segmentation was left to the other side.
mean_size() {
    _dev=$1 _way=$2
    shift 2
    _bytes=$(counter "$_dev" "${_way}_bytes") _packets=$(counter "$_dev" "${_way}_packets")
    "$@"
    size=$((($(counter "$_dev" "${_way}_bytes") - _bytes) / ($(counter "$_dev" "${_way}_packets") - _packets + 1)))
}

# vif_state NAME [DEVID]: xenbus states of backend and frontend, such as "4 4".
vif_state() {
    _front=/local/domain/$(domid "$1")/device/vif/${2:-0}
    _back=$(xenstore-read "$_front/backend") || return 1
    echo "$(xenstore-read "$_back/state") $(xenstore-read "$_front/state")"
}
vif_connected() { [ "$(vif_state "$@")" = "4 4" ]; }
