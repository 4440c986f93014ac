//! The keys that a frontend publishes.

use crate::VifError;
use crate::ids::{CtrlRefs, QueueRefs};
use crate::state::checksums::Checksums;
use grantway_hypervisor::{Error as PlatformError, GrantRef, Port, Store, StoreErrno};
use grantway_netif::keys::{self, QueueKey, queue_path};
use grantway_netif::slots::rx::XDP_HEADROOM_MAX;
use grantway_ports::TapOffloads;

/// Most queues that a frontend may publish, as an error says it.
const QUEUES_EXPECTED: &str = "a number of queues from 1 to multi-queue-max-queues";

/// Expected values of keys that name a ring's page, and an event channel.
const REF: &str = "a grant reference";
const EVENT: &str = "an event channel";

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
    /// Unfinished frames that the frontend accepts. `checksum` is true unless
    /// `feature-no-csum-offload` is 1; `tso4` and `tso6` are `feature-gso-tcpv4` and
    /// `feature-gso-tcpv6`, and count only with `feature-sg` and blank checksums; `uso` is ignored.
    pub offloads: TapOffloads,
    /// True if the frontend uses the same pages again and again: `feature-persistent`.
    pub persistent: bool,
}

impl FrontendKeys {
    /// Describes a frontend that published these queues and no other key but `request-rx-copy`. It
    /// accepts blank checksums over IPv4.
    #[must_use]
    pub fn new(queues: Vec<QueueRefs>) -> Self {
        Self {
            queues,
            ctrl: None,
            scatter_gather: false,
            rx_notify: false,
            multicast: false,
            checksum_ipv6: false,
            offloads: TapOffloads { checksum: true, ..TapOffloads::NONE },
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

    /// Takes the keys that `get` returns by their names, such as `tx-ring-ref` and, for several
    /// queues, `queue-0/tx-ring-ref`. A missing key is `None`. At most `most` queues are accepted:
    /// those of the [`Offer`](crate::Offer).
    ///
    /// ```
    /// use grantway_backend::FrontendKeys;
    ///
    /// let published = [
    ///     ("request-rx-copy", "1"),
    ///     ("tx-ring-ref", "8"),
    ///     ("rx-ring-ref", "9"),
    ///     ("event-channel", "15"),
    ///     ("feature-sg", "1"),
    /// ];
    /// let get = |key: &str| Some(published.iter().find(|(name, _)| *name == key)?.1.to_owned());
    /// let keys = FrontendKeys::parse(get, 1)?;
    /// assert!(keys.scatter_gather && keys.offloads.checksum);
    /// assert_eq!(keys.queues[0].tx_ring.0, 8);
    /// # Ok::<(), grantway_backend::VifError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`VifError::Key`], also for more queues than `most`; [`VifError::NoRxCopy`].
    pub fn parse(mut get: impl FnMut(&str) -> Option<String>, most: u32) -> Result<Self, VifError> {
        Words { folder: "frontend", get: &mut |key| Ok(get(key)) }.keys(most)
    }

    /// Reads the keys from the frontend's folder of a store, once, into owned values, and returns
    /// them.
    ///
    /// # Errors
    ///
    /// The errors of [`FrontendKeys::parse`]; [`VifError::Platform`].
    pub fn read(store: &mut dyn Store, frontend: &str, most: u32) -> Result<Self, VifError> {
        let get = &mut |key: &str| store.read_text(&format!("{frontend}/{key}"));
        Words { folder: frontend, get }.keys(most)
    }
}

/// Text of a frontend's keys by their names.
struct Words<'a> {
    /// The folder of the keys, for errors.
    folder: &'a str,
    get: &'a mut dyn FnMut(&str) -> Result<Option<String>, PlatformError>,
}

impl Words<'_> {
    fn keys(mut self, most: u32) -> Result<FrontendKeys, VifError> {
        // A frontend that wants pages flipped cannot be served at all, so this is judged first.
        let copy = self.text(keys::REQUEST_RX_COPY)?;
        if copy.as_deref() != Some("1") {
            let found = copy.map_or_else(|| "missing".into(), |found| shown(&found));
            return Err(VifError::NoRxCopy { path: self.folder.into(), found });
        }
        // A frontend without the key has one queue.
        let count = match self.text(keys::MULTI_QUEUE_NUM_QUEUES)? {
            None => 1,
            Some(found) => match found.parse() {
                Ok(count) if (1..=most).contains(&count) => count,
                _ => {
                    return Err(VifError::Key {
                        path: self.path(keys::MULTI_QUEUE_NUM_QUEUES),
                        found: shown(&found),
                        expected: QUEUES_EXPECTED,
                    });
                }
            },
        };
        let queues = (0..count).map(|number| self.queue(number, count));
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let ctrl = self.ctrl()?;
        let scatter_gather = self.flag(keys::FEATURE_SG)?;
        let checksum = !self.flag(keys::FEATURE_NO_CSUM_OFFLOAD)?;
        let checksum_ipv6 = self.flag(keys::FEATURE_IPV6_CSUM_OFFLOAD)?;
        // Large frames depend on other features (`consistent`). A key that cannot count is not read.
        let large = scatter_gather && checksum;
        let offloads = TapOffloads {
            checksum,
            tso4: large && self.flag(keys::FEATURE_GSO_TCPV4)?,
            tso6: large && checksum_ipv6 && self.flag(keys::FEATURE_GSO_TCPV6)?,
            uso: false,
        };
        let multicast = self.flag(keys::REQUEST_MULTICAST_CONTROL)?;
        let rx_notify = self.flag(keys::FEATURE_RX_NOTIFY)?;
        let persistent = self.flag(keys::FEATURE_PERSISTENT)?;
        Ok(FrontendKeys {
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

    fn path(&self, key: &str) -> String {
        format!("{}/{key}", self.folder)
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, PlatformError> {
        Ok((self.get)(key)?.map(|text| text.trim().to_string()))
    }

    fn flag(&mut self, key: &str) -> Result<bool, PlatformError> {
        Ok(self.text(key)?.as_deref() == Some("1"))
    }

    /// Returns the control ring, or `None` if the frontend has none.
    fn ctrl(&mut self) -> Result<Option<CtrlRefs>, VifError> {
        let Some(ring) = self.text(keys::CTRL_RING_REF)? else { return Ok(None) };
        let ring = GrantRef(self.judge(keys::CTRL_RING_REF, Some(ring), REF)?);
        let event = Port(self.number(keys::EVENT_CHANNEL_CTRL, EVENT)?);
        Ok(Some(CtrlRefs { ring, event }))
    }

    fn queue(&mut self, number: u32, count: u32) -> Result<QueueRefs, VifError> {
        let path = |key| queue_path(number, count, key);
        let tx_ring = GrantRef(self.number(&path(QueueKey::TxRingRef), REF)?);
        let rx_ring = GrantRef(self.number(&path(QueueKey::RxRingRef), REF)?);
        let split = path(QueueKey::EventChannelTx);
        let (tx_event, rx_event) = match self.text(&split)? {
            Some(tx) => {
                let tx = self.judge(&split, Some(tx), EVENT)?;
                let rx = self.number(&path(QueueKey::EventChannelRx), EVENT)?;
                (Port(tx), Some(Port(rx)))
            }
            None => (Port(self.number(&path(QueueKey::EventChannel), EVENT)?), None),
        };
        Ok(QueueRefs { tx_ring, rx_ring, tx_event, rx_event })
    }

    /// Returns the number of a key.
    fn number(&mut self, key: &str, expected: &'static str) -> Result<u32, VifError> {
        let found = self.text(key)?;
        self.judge(key, found, expected)
    }

    /// Returns the number in what was found for a key.
    fn judge(
        &self,
        key: &str,
        found: Option<String>,
        expected: &'static str,
    ) -> Result<u32, VifError> {
        let value = found.as_deref().and_then(|text| text.parse().ok());
        value.ok_or_else(|| VifError::Key {
            path: self.path(key),
            found: found.map_or_else(|| "nothing".into(), |found| shown(&found)),
            expected,
        })
    }
}

/// Returns the headroom that the frontend asks for; 0 if it asks for none, or hides that it does.
///
/// # Errors
///
/// The errors of [`headroom_of`]; [`VifError::Platform`].
pub(crate) fn headroom(store: &mut dyn Store, frontend: &str) -> Result<u16, VifError> {
    let path = format!("{frontend}/{}", keys::XDP_HEADROOM);
    let found = match store.read_text(&path) {
        Err(PlatformError::Store { errno: StoreErrno::Eacces, .. }) => None,
        found => found?,
    };
    headroom_of(found.as_deref(), &path)
}

/// Returns the headroom in the text of the key `xdp-headroom`, in bytes; 0 without the key.
///
/// # Errors
///
/// [`VifError::Key`] for what is no number, or more than [`XDP_HEADROOM_MAX`].
pub(crate) fn headroom_of(found: Option<&str>, path: &str) -> Result<u16, VifError> {
    let Some(found) = found else { return Ok(0) };
    let headroom = found.trim().parse().ok().filter(|headroom| *headroom <= XDP_HEADROOM_MAX);
    headroom.ok_or_else(|| VifError::Key {
        path: path.into(),
        found: shown(found),
        expected: "a number of bytes up to 2048",
    })
}

/// Returns a guest's words for a log: on one line, without control characters, at most 40
/// characters of them.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let escaped: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
    format!("\"{escaped}\"{rest}")
}
