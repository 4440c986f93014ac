//! Ports: the ends that a backend, or a frontend command, bridges vifs to.
//!
//! Every port is a [`Port`]: it carries frames in private memory, with an
//! [`Offload`](grantway_netif::Offload) beside each. [`Port::send_split`] takes frames with a
//! private head whose rest lies in pages that their sender can still write. [`PortControl`] changes
//! a port, and [`Probe`] reports on it. Nothing in here knows of rings or grants.
//!
//! | port | sends to | receives from |
//! |---|---|---|
//! | [`Tap`] | the host's network stack | the host's network stack |
//! | [`Packet`] | the wire behind an interface | that wire |
//! | [`PcapPort`] | a capture file | a capture file |
//! | [`Null`] | nowhere, counted | nothing |
//! | [`Echo`] | itself | what it was sent |
//! | [`Generator`] | nowhere, counted | numbered test frames |
//! | [`CheckPort`] | a [`Checker`] of numbered test frames | nothing |
//! | [`Member`] | other vifs, through the backend's own bridge | other vifs, through that bridge |
//!
//! [`PortSpec`] is the name of a port on a command line. `unsafe` lives only in `tap/sys.rs` and
//! `packet/sys.rs`, which have the system calls that no crate wraps.

#![deny(unsafe_code)]

mod address;
mod checker;
mod clock;
mod echo;
pub mod finish;
mod generator;
mod member;
mod null;
mod offloads;
pub mod packet;
pub mod pcap;
mod port;
mod spec;
mod split;
pub mod tap;
mod testframe;
mod timing;
mod vnet;

pub use address::parse_address;
pub use checker::{CheckPort, Checker, CheckerConfig, FlowReport, Verdict};
pub use clock::{Clock, monotonic, uptime, wall};
pub use echo::Echo;
pub use generator::{Generator, GeneratorConfig, GeneratorError, Run, Stamp};
pub use member::Member;
pub use null::Null;
pub use offloads::TapOffloads;
pub use packet::{LinkState, Packet, PacketError, PacketLink};
pub use pcap::{CaptureError, CaptureFormat, PcapPort};
pub use port::{
    BURST, CheckReport, Counters, DropReason, ETHERNET_HEADER, FrameMeta, FramePlace, Port,
    PortCaps, PortControl, PortError, PortReport, Probe, RECV_BUFFER, Readiness, SendError,
    SentBurst,
};
pub use spec::{PortSpec, SpecError, number};
pub use split::{FRAME_PAGES, SplitFrame, SplitMeta, SplitRoom};
pub use tap::{Tap, TapConfig, TapError, claims_folder};
pub use testframe::{MAGIC, TAG_LEN, TaggedAt, UDP_HEADERS};
