//! Counters of a device.

/// The counters of a device since it was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DeviceStats {
    /// Frames that the stack made, before any was cut.
    pub tx_frames: u64,
    /// Frames of these that were handed on longer than a segment, to be cut by others.
    pub tx_large: u64,
    /// Segments that were cut here, since the backend does not cut.
    pub tx_cut: u64,
    /// Times that a frame waited for room.
    pub tx_waited: u64,
    /// Frames that cannot be sent at all: longer than the vif's MTU and not TCP, not to be cut, or
    /// refused by the link.
    pub tx_too_long: u64,
    /// Messages of DHCP that were not sent, since a server had the client send too many.
    pub tx_dhcp_held: u64,
    /// Frames that the stack was given.
    pub rx_frames: u64,
    /// Frames of these that came longer than a segment.
    pub rx_large: u64,
    /// Frames with a wrong checksum that no one vouched for.
    pub rx_bad_checksum: u64,
    /// Frames whose headers are malformed, or fragments of packets.
    pub rx_malformed: u64,
    /// Segments that their times show to be older than their numbers, which are only acknowledged.
    pub rx_old: u64,
}

impl DeviceStats {
    /// Returns names and values, for tables and for machines.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tx_frames", self.tx_frames),
            ("tx_large", self.tx_large),
            ("tx_cut", self.tx_cut),
            ("tx_waited", self.tx_waited),
            ("tx_too_long", self.tx_too_long),
            ("tx_dhcp_held", self.tx_dhcp_held),
            ("rx_frames", self.rx_frames),
            ("rx_large", self.rx_large),
            ("rx_bad_checksum", self.rx_bad_checksum),
            ("rx_malformed", self.rx_malformed),
            ("rx_old", self.rx_old),
        ]
        .into_iter()
    }
}
