//! Ports: the networks behind a backend's vifs, such as a TAP, a capture file or a traffic
//! generator.
//!
//! # When to use it
//!
//! - To connect vifs to something other than a kernel's network, by a [`Port`] of your own.
//! - To send and receive frames by a TAP or a packet socket, with unfinished checksums and large
//!   frames.
//! - To make numbered frames, and to find the lost ones ([`Generator`], [`CheckPort`]).
//! - To read and write captures in bounded memory ([`pcap`]).
//!
//! # Example
//!
//! The port `echo` gives back the frames that it was sent.
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use grantway_netif::Offload;
//! use grantway_ports::{PortSpec, RECV_BUFFER};
//!
//! let spec: PortSpec = "echo".parse()?;
//! let mut port = spec.open()?;
//! port.send(&[0xff; 60], Offload::default())?;
//! port.flush()?;
//!
//! let mut buf = vec![0; RECV_BUFFER];
//! let frame = port.recv(&mut buf)?.expect("one frame");
//! assert_eq!((frame.len, &buf[..60]), (60, &[0xff; 60][..]));
//! assert_eq!(port.report().counters.sent, 1);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Ports
//!
//! | port | sends to | receives from |
//! |---|---|---|
//! | [`Tap`] | the host's network stack | the host's network stack |
//! | [`VhostTap`] | the host's network stack, by a thread of the kernel | the host's network stack |
//! | [`Packet`] | the wire behind an interface | the wire behind an interface |
//! | [`PcapPort`] | a capture file | a capture file |
//! | [`Null`] | nowhere, counted | nothing |
//! | [`Echo`] | itself | the frames that it was sent |
//! | [`Generator`] | nowhere, counted | numbered test frames |
//! | [`CheckPort`] | a [`Checker`] of numbered test frames | nothing |
//! | [`Member`] | other vifs, through the backend's own bridge | other vifs, through that bridge |
//!
//! # Other types
//!
//! | Type | Content |
//! |---|---|
//! | [`PortControl`], [`Probe`] | changes to a port, and reports on it |
//! | [`PortSpec`] | the name of a port on a command line |
//! | [`SplitFrame`], [`SplitRoom`] | frames whose rest is in pages that a peer can still write |
//! | [`finish`] | checksums and segmentation in software |
//! | [`quantity`] | numbers, rates and times as people write them |
//! | [`TextFault`], [`nearest`] | a fault in a file that people write, and the name that was meant |
//! | [`TestFrames`], [`Checker`] | the frames of the generator, and their check |
//!
//! # Guarantees and limits
//!
//! - A port never waits. One thread uses it at a time.
//! - A frame has an [`Offload`](grantway_netif::Offload) beside it: its unfinished checksum or
//!   segmentation.
//! - A frame that cannot be sent is dropped and counted by its reason ([`DropReason`]).
//! - `unsafe` code is only in `tap/sys.rs`, `packet/sys.rs` and `vhost/sys.rs`. These have the
//!   system calls that no other crate has, and memory that a thread of the kernel uses.
//! - Without the feature `std`, the crate has only what needs no operating system: [`finish`],
//!   [`quantity`], [`TestFrames`] and [`Checker`].
//!
//! # What it is not
//!
//! - It does not know rings or grants: `grantway-backend` does.
//! - It is not a switch: `grantway-vector` has the nodes of the backend's bridge.

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
#[cfg(feature = "std")]
mod fault;
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
#[cfg(feature = "std")]
pub use fault::{TextFault, line_of, nearest};
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
