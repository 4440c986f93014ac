//! What a backend, or a frontend command, bridges to.
//!
//! Every port is a [`Port`]: frames in private memory, one at a time, with an
//! [`Offload`](grantway_netif::Offload) beside each; or, to [`Port::send_split`],
//! with a private head and the rest in pages that somebody else can write. Nothing
//! in here knows of rings or grants.
//!
//! | port | sends to | receives from |
//! |---|---|---|
//! | [`Tap`] | the host's network stack | the host's network stack |
//! | [`PcapInput`], [`PcapOutput`], [`PcapPort`] | a capture file | a capture file |
//! | [`Null`] | nowhere, counted | nothing |
//! | [`Echo`] | itself | what it was sent |
//! | [`Generator`] | nowhere, counted | numbered test frames |
//! | [`CheckPort`] | a [`Checker`] of such frames | nothing |
//! | [`Member`] | other vifs, by way of the backend's own bridge | the same |
//! | [`Mirror`] | another port, copied to a capture file | the same |
//!
//! [`PortSpec`] is how a command line names them. `unsafe` lives in
//! `tap/sys.rs`, the system calls that no crate wraps, and nowhere else.

#![deny(unsafe_code)]

mod address;
mod checker;
mod clock;
mod echo;
pub mod finish;
mod generator;
mod member;
mod mirror;
mod null;
pub mod pcap;
mod port;
mod spec;
mod split;
pub mod tap;
mod testframe;
mod timing;

pub use address::parse_address;
pub use checker::{CheckPort, Checker, CheckerConfig, FlowReport, Verdict};
pub use clock::{Clock, monotonic, uptime, wall};
pub use echo::Echo;
pub use generator::{Generator, GeneratorConfig, GeneratorError, Run, Stamp};
pub use member::Member;
pub use mirror::Mirror;
pub use null::Null;
pub use pcap::{CaptureError, CaptureFormat, PcapInput, PcapOutput, PcapPort};
pub use port::{
    BURST, CheckReport, Counters, DropReason, ETHERNET_HEADER, FrameMeta, FramePlace, Port,
    PortError, PortReport, RECV_BUFFER, SendError, SentBurst,
};
pub use spec::{PortSpec, SpecError, number};
pub use split::SplitFrame;
pub use tap::{Tap, TapConfig, TapError, TapOffloads, claims_folder};
pub use testframe::{MAGIC, TAG_LEN, TaggedAt, UDP_HEADERS};
