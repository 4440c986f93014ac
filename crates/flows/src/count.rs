//! Packets and bytes, and those that belong to no flow in the report.

/// Number of packets and of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Number of their bytes, headers included.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Packets that are in no flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// Packets that are not TCP.
    pub other: Count,
    /// TCP packets that cannot be read: fragments, or headers that are cut or damaged.
    pub unread: Count,
    /// Packets of flows that were not followed, or were forgotten for others.
    pub forgotten: Count,
    /// Number of flows that were forgotten.
    pub forgotten_flows: u64,
    /// Packets that were lost before they came here.
    pub lost: u64,
}
