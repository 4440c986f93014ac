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
//! | [`VhostTap`] | the same, by a thread of the kernel | the same |
//! | [`Packet`] | the wire behind an interface | that wire |
//! | [`PcapPort`] | a capture file | a capture file |
//! | [`Null`] | nowhere, counted | nothing |
//! | [`Echo`] | itself | what it was sent |
//! | [`Generator`] | nowhere, counted | numbered test frames |
//! | [`CheckPort`] | a [`Checker`] of numbered test frames | nothing |
//! | [`Member`] | other vifs, through the backend's own bridge | other vifs, through that bridge |
//!
//! [`PortSpec`] is the name of a port on a command line. `unsafe` lives only in `tap/sys.rs`,
//! `packet/sys.rs` and `vhost/sys.rs`, which have the system calls that no crate wraps, and the memory
//! that a thread of the kernel uses, too.
//!
//! Without the feature `std` there is what needs no operating system: [`finish`], and the numbered
//! frames of the generator and the checker ([`TestFrames`], [`Checker`]).

#![cfg_attr(not(feature = "std"), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

mod address;
mod aligned;
mod checker;
#[cfg(feature = "std")]
mod clock;
#[cfg(feature = "std")]
mod echo;
pub mod finish;
mod frame;
mod frames;
#[cfg(feature = "std")]
mod generator;
#[cfg(feature = "std")]
mod member;
#[cfg(feature = "std")]
mod null;
#[cfg(feature = "std")]
mod offloads;
#[cfg(feature = "std")]
pub mod packet;
#[cfg(feature = "std")]
pub mod pcap;
#[cfg(feature = "std")]
mod port;
pub mod quantity;
#[cfg(feature = "std")]
mod spec;
#[cfg(feature = "std")]
mod split;
#[cfg(feature = "std")]
pub mod tap;
mod testframe;
#[cfg(feature = "std")]
mod timing;
#[cfg(feature = "std")]
pub mod vhost;
#[cfg(feature = "std")]
mod vnet;

pub use address::{parse_address, presence_frame};
pub use aligned::PageAligned;
#[cfg(feature = "std")]
pub use checker::CheckPort;
pub use checker::{Checker, CheckerConfig, FlowReport, Verdict};
#[cfg(feature = "std")]
pub use clock::{Clock, monotonic, uptime, wall};
#[cfg(feature = "std")]
pub use echo::Echo;
pub use frame::{BURST, DropReason, ETHERNET_HEADER, FrameMeta, FramePlace, RECV_BUFFER};
pub use frames::{GeneratorConfig, GeneratorError, Run, Stamp, TestFrames};
#[cfg(feature = "std")]
pub use generator::Generator;
#[cfg(feature = "std")]
pub use member::Member;
#[cfg(feature = "std")]
pub use null::Null;
#[cfg(feature = "std")]
pub use offloads::TapOffloads;
#[cfg(feature = "std")]
pub use packet::{LinkState, Packet, PacketError, PacketLink};
#[cfg(feature = "std")]
pub use pcap::{CaptureError, CaptureFormat, PcapPort};
#[cfg(feature = "std")]
pub use port::{
    CheckReport, Counters, Port, PortCaps, PortControl, PortError, PortReport, Probe, Readiness,
    SendError, SentBurst,
};
#[cfg(feature = "std")]
pub use spec::{PortSpec, SpecError};
#[cfg(feature = "std")]
pub use split::{FRAME_PAGES, SplitFrame, SplitMeta, SplitRoom};
#[cfg(feature = "std")]
pub use tap::{Tap, TapConfig, TapError, claims_folder};
pub use testframe::{MAGIC, TAG_LEN, TaggedAt, UDP_HEADERS};
#[cfg(feature = "std")]
pub use vhost::{VhostError, VhostTap};
