//! Counters of a queue.

/// The counters of one queue since it connected.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets handed to the backend.
    pub tx_packets: u64,
    /// Bytes of those packets.
    pub tx_bytes: u64,
    /// Slots of those packets, extras included.
    pub tx_slots: u64,
    /// Slots that the backend answered with an error or as dropped.
    pub tx_errors: u64,
    /// Times that a frame found no free slot or page.
    pub tx_full: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of those packets.
    pub rx_bytes: u64,
    /// Slots received, extras and refused packets included.
    pub rx_slots: u64,
    /// Packets dropped because the backend answered a slot with an error.
    pub rx_errors: u64,
    /// Packets dropped because the caller's buffer was too short for them.
    pub rx_too_large: u64,
    /// Frames that were lent in their pages, by [`Queue::recv_lent`](crate::Queue::recv_lent) or
    /// [`Queue::recv_lent_burst`](crate::Queue::recv_lent_burst).
    pub rx_lent: u64,
    /// Frames that were copied although the caller asked for lent ones: too many pages were lent,
    /// or the backend is not trusted.
    pub rx_copied: u64,
    /// Signals received from the backend.
    pub interrupts: u64,
    /// Calls that moved at least one packet: bursts sent, and receive calls that found a packet.
    pub turns: u64,
    /// Signals sent to the backend.
    pub notifies: u64,
}

impl QueueStats {
    /// Adds the counters of another queue.
    pub fn add(&mut self, other: &Self) {
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_slots += other.tx_slots;
        self.tx_errors += other.tx_errors;
        self.tx_full += other.tx_full;
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.rx_slots += other.rx_slots;
        self.rx_errors += other.rx_errors;
        self.rx_too_large += other.rx_too_large;
        self.rx_lent += other.rx_lent;
        self.rx_copied += other.rx_copied;
        self.interrupts += other.interrupts;
        self.turns += other.turns;
        self.notifies += other.notifies;
    }

    /// Returns the name and the value of each counter.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tx_packets", self.tx_packets),
            ("tx_bytes", self.tx_bytes),
            ("tx_slots", self.tx_slots),
            ("tx_errors", self.tx_errors),
            ("tx_full", self.tx_full),
            ("rx_packets", self.rx_packets),
            ("rx_bytes", self.rx_bytes),
            ("rx_slots", self.rx_slots),
            ("rx_errors", self.rx_errors),
            ("rx_too_large", self.rx_too_large),
            ("rx_lent", self.rx_lent),
            ("rx_copied", self.rx_copied),
            ("interrupts", self.interrupts),
            ("turns", self.turns),
            ("notifies", self.notifies),
        ]
        .into_iter()
    }
}
