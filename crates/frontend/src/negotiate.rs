//! Negotiation of the two ends through the store.

use crate::refs::{CtrlRefs, QueueRefs};
use crate::{SendError, VifError};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use grantway_hypervisor::{Error as PlatformError, FrontendStore, StoreErrno};
use grantway_netif::headers::{Payload, payload};
use grantway_netif::keys::{self, QUEUE_PREFIX, QueueKey, queue_path};
use grantway_netif::xenbus::Reopen;
use grantway_netif::{GsoKind, Offload};
use grantway_netif::{Policy, PolicyFeatures};

/// Features that the guest asks for. The backend decides which of them it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// True for frames over several pages, which may be longer than 4096 bytes.
    pub scatter_gather: bool,
    /// True for large TCP frames, which the backend or their receiver cuts into segments.
    pub gso: bool,
    /// True for frames whose checksum is not filled in yet.
    pub checksum: bool,
    /// True for one event channel per direction.
    pub split_events: bool,
    /// Number of queues. Each grants 274 pages, and 402 once it was busy. 0 means 1.
    pub queues: u16,
    /// True for a control ring. It grants three pages, and staging needs it.
    pub control: bool,
    /// The best buffer policy to use. If the backend does not offer it, the next best is used.
    pub policy: Policy,
    /// Beginning of a connection if the vif had one before.
    pub reopen: Reopen,
}

impl Default for Wishes {
    /// Returns a wish for everything, on one queue, by the best policy that both ends support.
    fn default() -> Self {
        Self {
            scatter_gather: true,
            gso: true,
            checksum: true,
            split_events: true,
            queues: 1,
            control: true,
            policy: Policy::Staging,
            reopen: Reopen::Initialising,
        }
    }
}

/// Features that the backend offers and the guest asks for. They limit the frames that may be sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BackendFeatures {
    /// True for frames over several slots.
    pub scatter_gather: bool,
    /// True if the backend accepts large TCP frames over IPv4.
    pub gso_tcpv4: bool,
    /// True if the backend accepts large TCP frames over IPv6.
    pub gso_tcpv6: bool,
    /// True if the backend accepts blank checksums over IPv4.
    pub checksum_ipv4: bool,
    /// True if the backend accepts blank checksums over IPv6.
    pub checksum_ipv6: bool,
    /// True for one event channel per direction.
    pub split_events: bool,
    /// Number of queues: 1 or more once the backend's features were read.
    pub queues: u16,
    /// True if the vif has a control ring.
    pub control: bool,
    /// The buffer policy that was agreed on.
    pub policy: Policy,
    /// True if the toolstack wrote that the backend is trusted, or wrote nothing. Only then are
    /// frames lent in their pages.
    pub trusted: bool,
}

impl BackendFeatures {
    /// Reads the backend's features, and keeps those that are wished for.
    pub(crate) fn read(
        store: &mut dyn FrontendStore,
        backend: &str,
        wishes: Wishes,
        trusted: bool,
    ) -> Result<Self, PlatformError> {
        let most = peek(store, &format!("{backend}/{}", keys::MULTI_QUEUE_MAX_QUEUES))?;
        // A value that is no number, or is missing, means a backend of one queue.
        let staging = peek(store, &format!("{backend}/{}", keys::FEATURE_STAGING))?;
        let most = most.and_then(|text| text.trim().parse().ok()).unwrap_or(1);
        let mut flag = |key: &str| -> Result<bool, PlatformError> {
            Ok(peek(store, &format!("{backend}/{key}"))?.is_some_and(|v| v.trim() == "1"))
        };
        let scatter_gather = wishes.scatter_gather && flag(keys::FEATURE_SG)?;
        // A large frame takes several slots.
        let gso = wishes.gso && wishes.checksum && scatter_gather;
        let control = wishes.control && flag(keys::FEATURE_CTRL_RING)?;
        // A backend that says nothing about staging is asked over the ring.
        let staging = control && staging.is_none_or(|value| value.trim() != "0");
        Ok(Self {
            scatter_gather,
            gso_tcpv4: gso && flag(keys::FEATURE_GSO_TCPV4)?,
            gso_tcpv6: gso && flag(keys::FEATURE_GSO_TCPV6)?,
            checksum_ipv4: wishes.checksum && !flag(keys::FEATURE_NO_CSUM_OFFLOAD)?,
            checksum_ipv6: wishes.checksum && flag(keys::FEATURE_IPV6_CSUM_OFFLOAD)?,
            split_events: wishes.split_events && flag(keys::FEATURE_SPLIT_EVENT_CHANNELS)?,
            policy: wishes
                .policy
                .agreed(PolicyFeatures { persistent: flag(keys::FEATURE_PERSISTENT)?, staging }),
            trusted,
            control,
            queues: wishes.queues.min(u32::min(most, u16::MAX.into()) as u16).max(1),
        })
    }

    /// Refuses segmentation that the backend does not offer.
    #[inline]
    pub(crate) fn admit_segments(&self, offload: Offload) -> Result<(), SendError> {
        let segments = match offload.gso.map(|gso| gso.kind) {
            Some(GsoKind::Tcpv4) => self.gso_tcpv4,
            Some(GsoKind::Tcpv6) => self.gso_tcpv6,
            // netif cannot carry it.
            Some(GsoKind::Udp) => false,
            None => true,
        };
        match segments {
            true => Ok(()),
            false => Err(SendError::NotOffered { what: "segmentation left to do" }),
        }
    }

    /// Refuses a blank checksum that the backend does not offer to fill in. `head` has the first
    /// bytes of the frame.
    pub(crate) fn admit_blank(&self, head: &[u8]) -> Result<(), SendError> {
        let (blank, what) = match payload(head) {
            Payload::Ipv6(_) => (self.checksum_ipv6, "a blank checksum over IPv6"),
            _ => (self.checksum_ipv4, "a blank checksum"),
        };
        if blank { Ok(()) } else { Err(SendError::NotOffered { what }) }
    }
}

/// Returns all nodes that the backend needs, each with its value.
pub(crate) fn nodes_of(
    queues: &[QueueRefs],
    ctrl: Option<CtrlRefs>,
    wishes: Wishes,
    policy: Policy,
) -> Vec<(String, String)> {
    let count = queues.len() as u32;
    // A queue's event channels have one node if both directions share one, and two otherwise.
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (number, refs) in (0..).zip(queues) {
        let mut put = |key, value: u32| {
            pairs.push((queue_path(number, count, key).to_string(), value.to_string()));
        };
        put(QueueKey::TxRingRef, refs.tx_ring.0);
        put(QueueKey::RxRingRef, refs.rx_ring.0);
        if refs.tx_event == refs.rx_event {
            put(QueueKey::EventChannel, refs.tx_event.0);
        } else {
            put(QueueKey::EventChannelTx, refs.tx_event.0);
            put(QueueKey::EventChannelRx, refs.rx_event.0);
        }
    }
    if count > 1 {
        pairs.push((keys::MULTI_QUEUE_NUM_QUEUES.to_string(), count.to_string()));
    }
    if let Some(ctrl) = ctrl {
        pairs.push((keys::CTRL_RING_REF.to_string(), ctrl.ring.0.to_string()));
        pairs.push((keys::EVENT_CHANNEL_CTRL.to_string(), ctrl.event.0.to_string()));
    }
    let flags = [
        (keys::REQUEST_RX_COPY, true),
        (keys::FEATURE_RX_NOTIFY, true),
        (keys::FEATURE_SG, wishes.scatter_gather),
        (keys::FEATURE_GSO_TCPV4, wishes.gso && wishes.checksum && wishes.scatter_gather),
        (keys::FEATURE_GSO_TCPV6, wishes.gso && wishes.checksum && wishes.scatter_gather),
        (keys::FEATURE_NO_CSUM_OFFLOAD, !wishes.checksum),
        (keys::FEATURE_IPV6_CSUM_OFFLOAD, wishes.checksum),
        (keys::FEATURE_PERSISTENT, policy == Policy::Persistent),
    ];
    for (key, on) in flags {
        pairs.push((key.to_string(), u8::from(on).to_string()));
    }
    pairs
}

/// Writes the nodes of [`nodes_of`], within a transaction.
pub(crate) fn write_nodes(
    store: &mut dyn FrontendStore,
    frontend: &str,
    nodes: &[(String, String)],
) -> Result<(), PlatformError> {
    // Nodes that an earlier connection wrote in another shape would be read again.
    for name in store.list(frontend)? {
        if is_of_a_connection(&name) {
            store.remove(&format!("{frontend}/{name}"))?;
        }
    }
    for (key, value) in nodes {
        store.write(&format!("{frontend}/{key}"), value.as_bytes())?;
    }
    Ok(())
}

/// Returns true if a node of the frontend's folder belongs to one connection: its rings, or the XDP
/// headroom of a driver that had the vif before.
fn is_of_a_connection(name: &str) -> bool {
    const OTHERS: [&str; 4] = [
        keys::MULTI_QUEUE_NUM_QUEUES,
        keys::CTRL_RING_REF,
        keys::EVENT_CHANNEL_CTRL,
        keys::XDP_HEADROOM,
    ];
    OTHERS.contains(&name)
        || name.starts_with(QUEUE_PREFIX)
        || QueueKey::ALL.iter().any(|key| name == key.as_str())
}

/// Returns the value of a node of the backend, or `None` if the node is missing or hidden. If a
/// folder of the backend is gone, we may not read its parents. Then the store answers that reading
/// is denied.
pub(crate) fn peek(
    store: &mut dyn FrontendStore,
    path: &str,
) -> Result<Option<String>, PlatformError> {
    match store.read_text(path) {
        Err(PlatformError::Store { errno: StoreErrno::Eacces, .. }) => Ok(None),
        other => other,
    }
}

/// Returns a text of the backend in a form fit for a log: one line, short, without control
/// characters.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let escaped: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
    format!("\"{escaped}\"{rest}")
}

/// Reads a key that must be a number.
pub(crate) fn number(
    store: &mut dyn FrontendStore,
    path: &str,
    expected: &'static str,
) -> Result<u32, VifError> {
    let found = peek(store, path)?;
    found.as_deref().and_then(|text| text.trim().parse().ok()).ok_or_else(|| VifError::Key {
        path: path.to_string(),
        found: found.map_or_else(|| "nothing".to_string(), |found| shown(&found)),
        expected,
    })
}
