//! Names of a vif's xenstore nodes, below its frontend directory or its backend directory. Each
//! comment begins with the writer of the node.

use arrayvec::ArrayString;
use core::fmt::Write;

/// Both ends: the [`XenbusState`](crate::state::XenbusState), in decimal.
pub const STATE: &str = "state";
/// Backend directory, by the toolstack: "1" as long as the device should exist.
pub const ONLINE: &str = "online";
/// Frontend directory, by the toolstack: path of the backend directory.
pub const BACKEND: &str = "backend";
/// Frontend directory, by the toolstack: domain of the backend.
pub const BACKEND_ID: &str = "backend-id";
/// Backend directory, by the toolstack: path of the frontend directory.
pub const FRONTEND: &str = "frontend";
/// Backend directory, by the toolstack: domain of the frontend.
pub const FRONTEND_ID: &str = "frontend-id";
/// Both directories: the vif's number within its domain.
pub const HANDLE: &str = "handle";

/// By the toolstack: Ethernet address, `aa:bb:cc:dd:ee:ff`.
pub const MAC: &str = "mac";
/// By the toolstack: largest IP packet in bytes. Default: 1500.
pub const MTU: &str = "mtu";
/// By the toolstack: the bridge to join.
pub const BRIDGE: &str = "bridge";
/// By the toolstack: the hotplug script.
pub const SCRIPT: &str = "script";
/// By the toolstack: guest transmit credit, "bytes,microseconds".
pub const RATE: &str = "rate";
/// By the operator: "full" if every checksum must be complete on both sides of the vif, "offload"
/// otherwise. Only Grantway knows this node.
pub const CHECKSUM: &str = "checksum";
/// By the toolstack: name for the network device.
pub const VIFNAME: &str = "vifname";
/// By the toolstack: "0" if the frontend must not trust the backend.
pub const TRUSTED: &str = "trusted";
/// By the hotplug script: "connected" once the device is in its bridge.
pub const HOTPLUG_STATUS: &str = "hotplug-status";
/// By the backend, for the scripts: reason why hotplug failed.
pub const HOTPLUG_ERROR: &str = "hotplug-error";

/// Both ends: packets may have several pieces.
pub const FEATURE_SG: &str = "feature-sg";
/// Both ends: large segments of TCP over IPv4.
pub const FEATURE_GSO_TCPV4: &str = "feature-gso-tcpv4";
/// Both ends: large segments of TCP over IPv6.
pub const FEATURE_GSO_TCPV6: &str = "feature-gso-tcpv6";
/// Backend: it copies received packets into posted pages.
pub const FEATURE_RX_COPY: &str = "feature-rx-copy";
/// Backend: it exchanges pages. Obsolete: always "0".
pub const FEATURE_RX_FLIP: &str = "feature-rx-flip";
/// Both ends: "1" if IPv6 checksums may be left blank. Default: they may not.
pub const FEATURE_IPV6_CSUM_OFFLOAD: &str = "feature-ipv6-csum-offload";
/// Both ends: "1" if IPv4 checksums may not be left blank. Default: they may.
pub const FEATURE_NO_CSUM_OFFLOAD: &str = "feature-no-csum-offload";
/// Backend: it filters multicast packets for the frontend.
pub const FEATURE_MULTICAST_CONTROL: &str = "feature-multicast-control";
/// Backend: the multicast filter may be switched on and off in state Connected.
pub const FEATURE_DYNAMIC_MULTICAST_CONTROL: &str = "feature-dynamic-multicast-control";
/// Backend: it supports one event channel per direction.
pub const FEATURE_SPLIT_EVENT_CHANNELS: &str = "feature-split-event-channels";
/// Backend: it leaves the bytes free in front of received data that [`XDP_HEADROOM`] requests.
pub const FEATURE_XDP_HEADROOM: &str = "feature-xdp-headroom";
/// Backend: it supports a control ring.
pub const FEATURE_CTRL_RING: &str = "feature-ctrl-ring";
/// Both ends: grants stay mapped, and are used again. No stock network driver knows this node.
pub const FEATURE_PERSISTENT: &str = "feature-persistent";
/// Backend: "0" if it stages no pages although it has a control ring. Only Grantway writes this
/// node. If it is missing, the frontend asks over the ring.
pub const FEATURE_STAGING: &str = "feature-staging";
/// Frontend: it notifies the backend when it posts pages.
pub const FEATURE_RX_NOTIFY: &str = "feature-rx-notify";
/// Backend: largest number of queues that it supports.
pub const MULTI_QUEUE_MAX_QUEUES: &str = "multi-queue-max-queues";
/// Backend: "1" if the link is up, "0" if it is down. Default: up.
pub const CARRIER: &str = "carrier";

/// Frontend: number of queues that it uses. Default: 1.
pub const MULTI_QUEUE_NUM_QUEUES: &str = "multi-queue-num-queues";
/// Frontend, per queue: grant of the transmit ring.
pub const TX_RING_REF: &str = "tx-ring-ref";
/// Frontend, per queue: grant of the receive ring.
pub const RX_RING_REF: &str = "rx-ring-ref";
/// Frontend, per queue: event channel for both directions.
pub const EVENT_CHANNEL: &str = "event-channel";
/// Frontend, per queue: event channel for transmission.
pub const EVENT_CHANNEL_TX: &str = "event-channel-tx";
/// Frontend, per queue: event channel for reception.
pub const EVENT_CHANNEL_RX: &str = "event-channel-rx";
/// Frontend: grant of the control ring.
pub const CTRL_RING_REF: &str = "ctrl-ring-ref";
/// Frontend: event channel of the control ring.
pub const EVENT_CHANNEL_CTRL: &str = "event-channel-ctrl";
/// Frontend: it accepts copied receive data. Always "1".
pub const REQUEST_RX_COPY: &str = "request-rx-copy";
/// Frontend: it requests the multicast filter.
pub const REQUEST_MULTICAST_CONTROL: &str = "request-multicast-control";

/// Frontend: number of bytes to leave free in front of received data, for an XDP program. Default:
/// 0. It changes in state [`Reconfiguring`](crate::state::XenbusState::Reconfiguring).
pub const XDP_HEADROOM: &str = "xdp-headroom";

/// Node of a single queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueKey {
    /// [`TX_RING_REF`].
    TxRingRef,
    /// [`RX_RING_REF`].
    RxRingRef,
    /// [`EVENT_CHANNEL`].
    EventChannel,
    /// [`EVENT_CHANNEL_TX`].
    EventChannelTx,
    /// [`EVENT_CHANNEL_RX`].
    EventChannelRx,
}

impl QueueKey {
    /// All nodes of a queue.
    pub const ALL: [Self; 5] = [
        Self::TxRingRef,
        Self::RxRingRef,
        Self::EventChannel,
        Self::EventChannelTx,
        Self::EventChannelRx,
    ];

    /// Returns the name of the node.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TxRingRef => TX_RING_REF,
            Self::RxRingRef => RX_RING_REF,
            Self::EventChannel => EVENT_CHANNEL,
            Self::EventChannelTx => EVENT_CHANNEL_TX,
            Self::EventChannelRx => EVENT_CHANNEL_RX,
        }
    }
}

/// Prefix of the name of a queue's directory.
pub const QUEUE_PREFIX: &str = "queue-";

/// Length of the longest result of [`queue_key`], in bytes.
pub const QUEUE_KEY_BYTES: usize = QUEUE_PREFIX.len() + "4294967295".len();

/// Length of the longest result of [`queue_path`], in bytes.
pub const QUEUE_PATH_BYTES: usize = QUEUE_KEY_BYTES + 1 + EVENT_CHANNEL_TX.len();

/// Returns the name of a queue's directory, such as `queue-3`. Only a frontend with two or more
/// queues has these directories.
pub fn queue_key(queue: u32) -> ArrayString<QUEUE_KEY_BYTES> {
    let mut key = ArrayString::new();
    // The array holds the longest number, so this cannot fail.
    let _ = write!(key, "{QUEUE_PREFIX}{queue}");
    key
}

/// Returns the path of a queue's node below the frontend directory. With one queue it is the name
/// of the node, as `tx-ring-ref`. With `queues` of two or more it has a directory, as
/// `queue-3/tx-ring-ref`.
pub fn queue_path(queue: u32, queues: u32, key: QueueKey) -> ArrayString<QUEUE_PATH_BYTES> {
    let mut path = ArrayString::new();
    let _ = if queues > 1 {
        write!(path, "{QUEUE_PREFIX}{queue}/{}", key.as_str())
    } else {
        write!(path, "{}", key.as_str())
    };
    path
}
