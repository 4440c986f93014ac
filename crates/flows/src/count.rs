//! Packets and bytes, and those that belong to no flow in the report.

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

impl Count {
    /// Adds packets and their bytes.
    pub(crate) fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Packets that no flow in the report has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Skipped {
    /// Not of TCP.
    pub other: Count,
    /// TCP that cannot be read: fragments, or headers that are cut or damaged.
    pub unread: Count,
    /// Of flows that were not followed, or were forgotten for larger ones.
    pub forgotten: Count,
    /// How many flows were forgotten.
    pub forgotten_flows: u64,
    /// Packets that were lost before they came here.
    pub lost: u64,
}
