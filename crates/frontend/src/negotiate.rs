//! What the two ends tell each other through the store.

use crate::VifError;
use crate::queue::QueueRefs;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use grantway_hypervisor::{Error as PlatformError, Store, StoreErrno, transaction};
use grantway_netif::keys::{self, QueueKey, queue_path};

/// What the guest would like; what it gets depends on the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// Frames over several pages, and so longer than 4096 bytes.
    pub scatter_gather: bool,
    /// Large TCP frames that the receiving end segments, or never does.
    pub gso: bool,
    /// Frames whose checksum is still to be filled in.
    pub checksum: bool,
    /// An event channel for each direction.
    pub split_events: bool,
}

impl Default for Wishes {
    /// Everything.
    fn default() -> Self {
        Self { scatter_gather: true, gso: true, checksum: true, split_events: true }
    }
}

/// What the backend offers, as far as we wish for it: what may be sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BackendFeatures {
    /// Frames over several slots.
    pub scatter_gather: bool,
    /// Large TCP over IPv4.
    pub gso_tcpv4: bool,
    /// Large TCP over IPv6.
    pub gso_tcpv6: bool,
    /// Blank IPv4 checksums.
    pub checksum_ipv4: bool,
    /// Blank IPv6 checksums.
    pub checksum_ipv6: bool,
    /// An event channel for each direction.
    pub split_events: bool,
}

impl BackendFeatures {
    /// Reads what the backend wrote, and keeps what is wished for.
    pub(crate) fn read(
        store: &mut dyn Store,
        backend: &str,
        wishes: Wishes,
    ) -> Result<Self, PlatformError> {
        let mut flag = |key: &str| -> Result<bool, PlatformError> {
            Ok(peek(store, &format!("{backend}/{key}"))?.is_some_and(|v| v.trim() == "1"))
        };
        let scatter_gather = wishes.scatter_gather && flag(keys::FEATURE_SG)?;
        // A large frame takes several slots.
        let gso = wishes.gso && wishes.checksum && scatter_gather;
        Ok(Self {
            scatter_gather,
            gso_tcpv4: gso && flag(keys::FEATURE_GSO_TCPV4)?,
            gso_tcpv6: gso && flag(keys::FEATURE_GSO_TCPV6)?,
            checksum_ipv4: wishes.checksum && !flag(keys::FEATURE_NO_CSUM_OFFLOAD)?,
            checksum_ipv6: wishes.checksum && flag(keys::FEATURE_IPV6_CSUM_OFFLOAD)?,
            split_events: wishes.split_events && flag(keys::FEATURE_SPLIT_EVENT_CHANNELS)?,
        })
    }
}

/// Writes all that the backend needs, in one transaction: it reads none of it
/// before it sees Connected.
pub(crate) fn publish(
    store: &mut dyn Store,
    frontend: &str,
    queues: &[QueueRefs],
    wishes: Wishes,
) -> Result<(), PlatformError> {
    let count = queues.len() as u32;
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (number, refs) in queues.iter().enumerate() {
        let mut put = |key, value: u32| {
            pairs.push((queue_path(number as u32, count, key).to_string(), value.to_string()));
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
    let flags = [
        (keys::REQUEST_RX_COPY, true),
        (keys::FEATURE_RX_NOTIFY, true),
        (keys::FEATURE_SG, wishes.scatter_gather),
        (keys::FEATURE_GSO_TCPV4, wishes.gso && wishes.checksum && wishes.scatter_gather),
        (keys::FEATURE_GSO_TCPV6, wishes.gso && wishes.checksum && wishes.scatter_gather),
        (keys::FEATURE_NO_CSUM_OFFLOAD, !wishes.checksum),
        (keys::FEATURE_IPV6_CSUM_OFFLOAD, wishes.checksum),
    ];
    for (key, on) in flags {
        pairs.push((key.to_string(), u8::from(on).to_string()));
    }
    // What an earlier connection wrote in another shape would be read again.
    let stale = [keys::EVENT_CHANNEL, keys::EVENT_CHANNEL_TX, keys::EVENT_CHANNEL_RX];
    transaction(store, |store| {
        for key in stale {
            let path = format!("{frontend}/{key}");
            if store.read_text(&path)?.is_some() {
                store.remove(&path)?;
            }
        }
        for (key, value) in &pairs {
            store.write(&format!("{frontend}/{key}"), value.as_bytes())?;
        }
        Ok(())
    })
}

/// The value of a node of the backend's, which may be gone or hidden: once a
/// folder of the backend's is gone, its parents are none of ours to read, and
/// the store says so instead.
pub(crate) fn peek(store: &mut dyn Store, path: &str) -> Result<Option<String>, PlatformError> {
    match store.read_text(path) {
        Err(PlatformError::Store { errno: StoreErrno::Eacces, .. }) => Ok(None),
        other => other,
    }
}

/// A backend's words, fit for a log: in one line, without control characters,
/// and not long.
fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let escaped: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
    format!("\"{escaped}\"{rest}")
}

/// Reads a key that must be a number.
pub(crate) fn number(
    store: &mut dyn Store,
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
