//! Counters of a device.

/// The counters of a device since it was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DeviceStats {
    /// Frames from the stack, before any was cut.
    pub tx_frames: u64,
    /// Frames from the stack that left longer than a segment, and are cut elsewhere.
    pub tx_large: u64,
    /// Segments that were cut here, because the backend does not cut.
    pub tx_cut: u64,
    /// Times that a frame waited for room.
    pub tx_waited: u64,
    /// Frames that cannot be sent: longer than the vif's MTU and not to be cut, or refused by the
    /// link.
    pub tx_too_long: u64,
    /// DHCP messages that were not sent, because a server made the client send too many.
    pub tx_dhcp_held: u64,
    /// Frames for the stack.
    pub rx_frames: u64,
    /// Frames for the stack that were longer than a segment.
    pub rx_large: u64,
    /// Frames with a wrong checksum that the backend did not mark as checked.
    pub rx_bad_checksum: u64,
    /// Frames whose headers are malformed, or fragments of packets.
    pub rx_malformed: u64,
    /// Segments that were too old by their timestamps, and were only acknowledged.
    pub rx_old: u64,
}

impl DeviceStats {
    /// Returns the name and the value of each counter.
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
