//! The keys by which a backend tells what it offers.

use crate::policy::Policy;
use crate::state::checksums::Checksums;
use grantway_hypervisor::{Error as PlatformError, Store, transaction};
use grantway_netif::keys;

/// Features that a backend offers to the frontend of one vif.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// Most queues of the vif.
    pub queues: u32,
    /// Best buffer policy.
    pub policy: Policy,
    /// If checksums are full, the guest is asked to leave none blank. A guest that leaves checksums
    /// blank all the same is served.
    pub checksums: Checksums,
}

impl Offer {
    /// Returns the keys of the backend's folder that tell the offer, with their values. They come
    /// before the state InitWait. The keys `mac` and `mtu` are the toolstack's own. `carrier` stays 1:
    /// a guest is not told if the link of the vif's port goes down.
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
