//! The keys by which the two ends negotiate through the store, from the backend's side.

use crate::VifError;
use crate::ids::CtrlRefs;
use crate::ids::QueueRefs;
use crate::policy::Policy;
use crate::state::checksums::Checksums;
use grantway_hypervisor::{Error as PlatformError, GrantRef, Port, Store, StoreErrno, transaction};
use grantway_netif::keys::{self, QueueKey, queue_path};
use grantway_netif::slots::rx::XDP_HEADROOM_MAX;
use grantway_ports::TapOffloads;

/// Features that a backend offers to the frontend of one vif.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// Most queues of the vif.
    pub queues: u32,
    /// Best buffer policy.
    pub policy: Policy,
    /// If checksums are full, the guest is asked to leave nothing unfinished. A guest that does so
    /// all the same is served.
    pub checksums: Checksums,
}

impl Offer {
    /// Returns the keys of the backend's folder that tell the offer, with their values. They come
    /// before the state InitWait.
    #[must_use]
    pub fn keys(self) -> [(&'static str, u32); 16] {
        let Self { queues, policy, checksums } = self;
        let full = u32::from(checksums.are_full());
        [
            (keys::FEATURE_SG, 1),
            (keys::FEATURE_GSO_TCPV4, 1 - full),
            (keys::FEATURE_GSO_TCPV6, 1 - full),
            (keys::FEATURE_RX_COPY, 1),
            (keys::FEATURE_RX_FLIP, 0),
            (keys::FEATURE_IPV6_CSUM_OFFLOAD, 1 - full),
            (keys::FEATURE_NO_CSUM_OFFLOAD, full),
            (keys::FEATURE_SPLIT_EVENT_CHANNELS, 1),
            (keys::FEATURE_MULTICAST_CONTROL, 1),
            (keys::FEATURE_DYNAMIC_MULTICAST_CONTROL, 1),
            (keys::FEATURE_XDP_HEADROOM, 1),
            (keys::FEATURE_CTRL_RING, 1),
            (keys::FEATURE_PERSISTENT, policy.offered().persistent.into()),
            (keys::FEATURE_STAGING, policy.offered().staging.into()),
            (keys::MULTI_QUEUE_MAX_QUEUES, queues),
            (keys::CARRIER, 1),
        ]
    }
}

/// Writes the features that this backend offers: only features that work. Nothing is written if the
/// folder is gone.
pub(crate) fn advertise(
    store: &mut dyn Store,
    backend: &str,
    offer: Offer,
) -> Result<(), PlatformError> {
    let state = format!("{backend}/{}", keys::STATE);
    transaction(store, |store| {
        if store.read_text(&state)?.is_none() {
            // A folder that the toolstack removed must not come back to life.
            return Ok(());
        }
        for (key, value) in offer.keys() {
            store.write(&format!("{backend}/{key}"), value.to_string().as_bytes())?;
        }
        Ok(())
    })
}

/// Most queues that a frontend may publish, as an error says it.
const QUEUES_EXPECTED: &str = "a number of queues from 1 to multi-queue-max-queues";

/// Rings and features that a frontend published of one vif. Each field names
/// its key of `netif.h`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontendKeys {
    /// Queues of the frontend, in order: `tx-ring-ref`, `rx-ring-ref`, and `event-channel` or
    /// `event-channel-tx` and `event-channel-rx`.
    pub queues: Vec<QueueRefs>,
    /// Control ring of the frontend, if it has one, by which it may stage pages: `ctrl-ring-ref`
    /// and `event-channel-ctrl`.
    pub ctrl: Option<CtrlRefs>,
    /// True if the frontend accepts frames over several pages: `feature-sg`.
    pub scatter_gather: bool,
    /// True if the frontend signals that it posted pages: `feature-rx-notify`.
    pub rx_notify: bool,
    /// True if the frontend wants multicast frames only to addresses that it lists:
    /// `request-multicast-control`.
    pub multicast: bool,
    /// True if the frontend accepts blank checksums over IPv6, which have a key of their own:
    /// `feature-ipv6-csum-offload`.
    pub checksum_ipv6: bool,
    /// Unfinished frames that the frontend accepts, but for blank checksums over IPv6: no
    /// `feature-no-csum-offload`, and `feature-gso-tcpv4` and `feature-gso-tcpv6`.
    pub offloads: TapOffloads,
    /// True if the frontend uses the same pages again and again: `feature-persistent`.
    pub persistent: bool,
}

impl FrontendKeys {
    /// Describes a frontend with these queues that has no control ring and none of the features.
    #[must_use]
    pub fn new(queues: Vec<QueueRefs>) -> Self {
        Self {
            queues,
            ctrl: None,
            scatter_gather: false,
            rx_notify: false,
            multicast: false,
            checksum_ipv6: false,
            offloads: TapOffloads::NONE,
            persistent: false,
        }
    }

    /// Returns the keys with at most `most` queues, and with no large frames that other features
    /// rule out.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`] for no queue or too many.
    pub(crate) fn checked(self, most: u32) -> Result<Self, VifError> {
        let found = self.queues.len();
        if !(1..=most as usize).contains(&found) {
            return Err(VifError::Key {
                path: keys::MULTI_QUEUE_NUM_QUEUES.into(),
                found: found.to_string(),
                expected: QUEUES_EXPECTED,
            });
        }
        Ok(self.consistent())
    }

    /// Returns the keys without large frames that other features rule out. Segments have blank
    /// checksums, and an interface leaves no large frame unfinished without its checksum.
    fn consistent(self) -> Self {
        let TapOffloads { checksum, tso4, tso6, .. } = self.offloads;
        let large = self.scatter_gather && checksum;
        let offloads = TapOffloads {
            checksum,
            tso4: large && tso4,
            tso6: large && tso6 && self.checksum_ipv6,
            uso: false,
        };
        Self { offloads, ..self }
    }

    /// Returns the unfinished frames that the vif's port may give if large ones are cut for a guest
    /// that accepts none. One large frame costs a port less than its segments. The segments'
    /// checksums are left blank if the guest accepts that. Frames of several datagrams are cut for
    /// every guest; the kernel has them for both versions of IP or for none.
    pub(crate) fn offloads_with_cutting(&self) -> TapOffloads {
        let tso4 = self.offloads.checksum;
        TapOffloads { tso4, tso6: tso4 && self.checksum_ipv6, uso: tso4, ..self.offloads }
    }

    /// Returns the keys as they are in force under these checksums: if checksums are full, the
    /// frontend accepts nothing unfinished.
    pub(crate) fn under(self, checksums: Checksums) -> Self {
        match checksums {
            Checksums::Offload => self,
            Checksums::Full => Self { checksum_ipv6: false, offloads: TapOffloads::NONE, ..self },
        }
    }

    /// Reads the keys from the frontend's folder of a store, once, into owned values, and returns
    /// them.
    ///
    /// # Errors
    ///
    /// [`VifError::Key`], also for more queues than `most`;
    /// [`VifError::NoRxCopy`]; [`VifError::Platform`].
    pub fn read(store: &mut dyn Store, frontend: &str, most: u32) -> Result<Self, VifError> {
        // A frontend that wants pages flipped cannot be served at all, so this is judged first.
        let copy = text(store, frontend, keys::REQUEST_RX_COPY)?;
        if copy.as_deref() != Some("1") {
            let found = copy.map_or_else(|| "missing".into(), |found| shown(&found));
            return Err(VifError::NoRxCopy { path: frontend.into(), found });
        }
        // A frontend without the key has one queue.
        let count = match text(store, frontend, keys::MULTI_QUEUE_NUM_QUEUES)? {
            None => 1,
            Some(found) => match found.parse() {
                Ok(count) if (1..=most).contains(&count) => count,
                _ => {
                    return Err(VifError::Key {
                        path: format!("{frontend}/{}", keys::MULTI_QUEUE_NUM_QUEUES),
                        found: shown(&found),
                        expected: QUEUES_EXPECTED,
                    });
                }
            },
        };
        let queues = (0..count).map(|number| queue(store, frontend, number, count));
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let ctrl = ctrl(store, frontend)?;
        let scatter_gather = flag(store, frontend, keys::FEATURE_SG)?;
        let checksum = !flag(store, frontend, keys::FEATURE_NO_CSUM_OFFLOAD)?;
        let checksum_ipv6 = flag(store, frontend, keys::FEATURE_IPV6_CSUM_OFFLOAD)?;
        // Large frames depend on other features (`consistent`). A key that cannot count is not read.
        let large = scatter_gather && checksum;
        let offloads = TapOffloads {
            checksum,
            tso4: large && flag(store, frontend, keys::FEATURE_GSO_TCPV4)?,
            tso6: large && checksum_ipv6 && flag(store, frontend, keys::FEATURE_GSO_TCPV6)?,
            uso: false,
        };
        let multicast = flag(store, frontend, keys::REQUEST_MULTICAST_CONTROL)?;
        let rx_notify = flag(store, frontend, keys::FEATURE_RX_NOTIFY)?;
        let persistent = flag(store, frontend, keys::FEATURE_PERSISTENT)?;
        Ok(Self {
            queues,
            ctrl,
            scatter_gather,
            rx_notify,
            multicast,
            checksum_ipv6,
            offloads,
            persistent,
        })
    }
}

/// Returns the headroom that the frontend asks for; 0 if it asks for none, or hides that it does.
///
/// # Errors
///
/// [`VifError::Key`] for what is no number, or more than [`XDP_HEADROOM_MAX`];
/// [`VifError::Platform`].
pub(crate) fn headroom(store: &mut dyn Store, frontend: &str) -> Result<u16, VifError> {
    let path = format!("{frontend}/{}", keys::XDP_HEADROOM);
    let found = match store.read_text(&path) {
        Err(PlatformError::Store { errno: StoreErrno::Eacces, .. }) => None,
        found => found?,
    };
    let Some(found) = found else { return Ok(0) };
    let headroom = found.trim().parse().ok().filter(|headroom| *headroom <= XDP_HEADROOM_MAX);
    headroom.ok_or_else(|| VifError::Key {
        path,
        found: shown(&found),
        expected: "a number of bytes up to 2048",
    })
}

/// Returns the control ring, or `None` if the frontend has none.
fn ctrl(store: &mut dyn Store, frontend: &str) -> Result<Option<CtrlRefs>, VifError> {
    let mut get = |key: &str| {
        let path = format!("{frontend}/{key}");
        let found = store.read_text(&path)?;
        Ok::<_, VifError>((path, found))
    };
    let ring = get(keys::CTRL_RING_REF)?;
    if ring.1.is_none() {
        return Ok(None);
    }
    let ring = GrantRef(must(ring, "a grant reference")?);
    let event = Port(must(get(keys::EVENT_CHANNEL_CTRL)?, "an event channel")?);
    Ok(Some(CtrlRefs { ring, event }))
}

/// Returns the number in a node that was read, given with its path.
fn must((path, found): (String, Option<String>), expected: &'static str) -> Result<u32, VifError> {
    let value = found.as_deref().and_then(|text| text.trim().parse().ok());
    value.ok_or_else(|| VifError::Key {
        path,
        found: found.map_or_else(|| "nothing".into(), |found| shown(&found)),
        expected,
    })
}

fn queue(
    store: &mut dyn Store,
    frontend: &str,
    number: u32,
    count: u32,
) -> Result<QueueRefs, VifError> {
    let mut get = |key| {
        let path = format!("{frontend}/{}", queue_path(number, count, key));
        let found = store.read_text(&path)?;
        Ok::<_, VifError>((path, found))
    };
    let tx_ring = GrantRef(must(get(QueueKey::TxRingRef)?, "a grant reference")?);
    let rx_ring = GrantRef(must(get(QueueKey::RxRingRef)?, "a grant reference")?);
    let split = get(QueueKey::EventChannelTx)?;
    let (tx_event, rx_event) = if split.1.is_some() {
        let tx = must(split, "an event channel")?;
        (Port(tx), Some(Port(must(get(QueueKey::EventChannelRx)?, "an event channel")?)))
    } else {
        (Port(must(get(QueueKey::EventChannel)?, "an event channel")?), None)
    };
    Ok(QueueRefs { tx_ring, rx_ring, tx_event, rx_event })
}

/// Returns a guest's words for a log: on one line, without control characters, at most 40
/// characters of them.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let escaped: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
    format!("\"{escaped}\"{rest}")
}

fn text(store: &mut dyn Store, base: &str, key: &str) -> Result<Option<String>, PlatformError> {
    let text = store.read_text(&format!("{base}/{key}"))?;
    Ok(text.map(|text| text.trim().to_string()))
}

fn flag(store: &mut dyn Store, base: &str, key: &str) -> Result<bool, PlatformError> {
    Ok(text(store, base, key)?.as_deref() == Some("1"))
}
