//! The names of a vif's xenstore nodes, below its frontend or backend
//! directory.

use arrayvec::ArrayString;
use core::fmt::Write;

/// Both ends: the [`XenbusState`](crate::state::XenbusState), in decimal.
pub const STATE: &str = "state";
/// Backend directory, by the toolstack: "1" while the device is to exist.
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
/// By the toolstack: largest IP packet in bytes; 1500 where missing.
pub const MTU: &str = "mtu";
/// By the toolstack: the bridge to join.
pub const BRIDGE: &str = "bridge";
/// By the toolstack: the hotplug script.
pub const SCRIPT: &str = "script";
/// By the toolstack: guest transmit credit, "bytes,microseconds".
pub const RATE: &str = "rate";
/// By the operator: "full" where no checksum may be left blank on either side of the vif,
/// "offload" otherwise. Ours.
pub const CHECKSUM: &str = "checksum";
/// By the toolstack: name for the network device.
pub const VIFNAME: &str = "vifname";
/// By the toolstack: "0" where the frontend is not to trust the backend.
pub const TRUSTED: &str = "trusted";
/// By the hotplug script: "connected" once the device is in its bridge.
pub const HOTPLUG_STATUS: &str = "hotplug-status";
/// By the backend, for the scripts: why hotplug failed.
pub const HOTPLUG_ERROR: &str = "hotplug-error";

/// Packets in several pieces.
pub const FEATURE_SG: &str = "feature-sg";
/// Large TCP over IPv4.
pub const FEATURE_GSO_TCPV4: &str = "feature-gso-tcpv4";
/// Large TCP over IPv6.
pub const FEATURE_GSO_TCPV6: &str = "feature-gso-tcpv6";
/// Backend: copies into posted pages.
pub const FEATURE_RX_COPY: &str = "feature-rx-copy";
/// Backend: exchanges pages; obsolete, always "0".
pub const FEATURE_RX_FLIP: &str = "feature-rx-flip";
/// "1": IPv6 checksums may be left blank; off where missing.
pub const FEATURE_IPV6_CSUM_OFFLOAD: &str = "feature-ipv6-csum-offload";
/// "1": IPv4 checksums may not be left blank; they may where it is missing.
pub const FEATURE_NO_CSUM_OFFLOAD: &str = "feature-no-csum-offload";
/// Backend: filters multicast for the frontend.
pub const FEATURE_MULTICAST_CONTROL: &str = "feature-multicast-control";
/// Backend: the filter may be switched while Connected.
pub const FEATURE_DYNAMIC_MULTICAST_CONTROL: &str = "feature-dynamic-multicast-control";
/// Backend: one event channel for each direction.
pub const FEATURE_SPLIT_EVENT_CHANNELS: &str = "feature-split-event-channels";
/// Backend: leaves the bytes free in front of received data that [`XDP_HEADROOM`] asks for.
pub const FEATURE_XDP_HEADROOM: &str = "feature-xdp-headroom";
/// Backend: has a control ring.
pub const FEATURE_CTRL_RING: &str = "feature-ctrl-ring";
/// Both ends: grants stay mapped and are used again. Ours, from seed 000; no
/// stock driver knows it.
pub const FEATURE_PERSISTENT: &str = "feature-persistent";
/// Backend (ours): 0 where it stages no pages, although it has a control ring. One
/// that does not say is asked over the ring.
pub const FEATURE_STAGING: &str = "feature-staging";
/// Frontend: tells the backend when it posts pages.
pub const FEATURE_RX_NOTIFY: &str = "feature-rx-notify";
/// Backend: most queues it serves.
pub const MULTI_QUEUE_MAX_QUEUES: &str = "multi-queue-max-queues";
/// Backend: "1" link up, "0" link down; up where missing.
pub const CARRIER: &str = "carrier";

/// Frontend: queues used; 1 where missing.
pub const MULTI_QUEUE_NUM_QUEUES: &str = "multi-queue-num-queues";
/// Frontend, per queue: grant of the transmit ring.
pub const TX_RING_REF: &str = "tx-ring-ref";
/// Frontend, per queue: grant of the receive ring.
pub const RX_RING_REF: &str = "rx-ring-ref";
/// Frontend, per queue: event channel of both directions.
pub const EVENT_CHANNEL: &str = "event-channel";
/// Frontend, per queue: event channel of transmission.
pub const EVENT_CHANNEL_TX: &str = "event-channel-tx";
/// Frontend, per queue: event channel of reception.
pub const EVENT_CHANNEL_RX: &str = "event-channel-rx";
/// Frontend: grant of the control ring.
pub const CTRL_RING_REF: &str = "ctrl-ring-ref";
/// Frontend: event channel of the control ring.
pub const EVENT_CHANNEL_CTRL: &str = "event-channel-ctrl";
/// Frontend: takes copied receive data; always "1".
pub const REQUEST_RX_COPY: &str = "request-rx-copy";
/// Frontend: apply the multicast filter.
pub const REQUEST_MULTICAST_CONTROL: &str = "request-multicast-control";

/// Frontend: bytes to leave free in front of received data, for an XDP program; none if missing.
/// It changes while the frontend is
/// [`Reconfiguring`](crate::state::XenbusState::Reconfiguring).
pub const XDP_HEADROOM: &str = "xdp-headroom";

/// A node that each queue has of its own.
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
    /// Every one of them.
    pub const ALL: [Self; 5] = [
        Self::TxRingRef,
        Self::RxRingRef,
        Self::EventChannel,
        Self::EventChannelTx,
        Self::EventChannelRx,
    ];

    /// The node's name.
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

/// Beginning of the name of each queue's directory.
pub const QUEUE_PREFIX: &str = "queue-";

/// Longest result of [`queue_key`], in bytes.
pub const QUEUE_KEY_BYTES: usize = QUEUE_PREFIX.len() + "4294967295".len();

/// Longest result of [`queue_path`], in bytes.
pub const QUEUE_PATH_BYTES: usize = QUEUE_KEY_BYTES + 1 + EVENT_CHANNEL_TX.len();

/// The directory of queue `queue`, such as `queue-3`. Only a frontend with two
/// or more queues has it.
pub fn queue_key(queue: u32) -> ArrayString<QUEUE_KEY_BYTES> {
    let mut key = ArrayString::new();
    // The array holds the longest number, so this cannot fail.
    let _ = write!(key, "{QUEUE_PREFIX}{queue}");
    key
}

/// The path of a queue's node below the frontend directory: flat for the one
/// queue of a vif, `queue-3/tx-ring-ref` where `queues` is two or more.
pub fn queue_path(queue: u32, queues: u32, key: QueueKey) -> ArrayString<QUEUE_PATH_BYTES> {
    let mut path = ArrayString::new();
    let _ = if queues > 1 {
        write!(path, "{QUEUE_PREFIX}{queue}/{}", key.as_str())
    } else {
        write!(path, "{}", key.as_str())
    };
    path
}
