//! Chains of slots, to and from packets, for both rings and both ends.
//!
//! The parsers take private copies of consecutive slots. They have three results: a packet, a
//! refusal (every slot is consumed and answered, and the vif continues), or a fatal error (the vif
//! is disabled). Stock netback and stock netfront make the same distinction.

pub mod rx;
pub mod tx;

pub use rx::{
    RxFatal, RxFragment, RxLayout, RxOutcome, RxPacket, RxParsed, RxRefusal, RxSlot, RxWriteError,
    parse_rx, rx_slots_needed,
};
pub use tx::{
    Multicast, Outcome, Parsed, Refused, TxFatal, TxFragment, TxPacket, TxRefusal, TxResponses,
    TxWriteError, parse_tx, write_tx,
};
