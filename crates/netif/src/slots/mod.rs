//! Chains of slots to packets, and back, for both rings and from both ends.
//!
//! The readers take private copies of consecutive slots. What a peer wrote
//! ends in one of three ways: a packet, a refusal (every slot is consumed and
//! answered, and the vif goes on), or a fatal error (the vif is disabled). The
//! lines between them are stock netback's and stock netfront's.

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
