//! The nodes.
//!
//! [`Ethernet`], [`Ipv4`], [`Ipv6`], [`Arp`], [`Transport`] and [`Fragments`] check a frame's
//! headers and write down what they say. The nodes behind read only that.

//! [`AntiSpoof`], [`Firewall`], [`Classifier`], [`Mirror`] and [`Limit`] do what rules say.
//! [`Bridge`] says where frames go, and [`Flows`] counts. [`Gro`] merges; in a graph without rules,
//! [`Segments`] reads headers for it.

mod arp;
pub mod bridge;
pub mod classifier;
mod ethernet;
pub mod firewall;
mod flows;
mod fragments;
mod gro;
mod ipv4;
mod ipv6;
mod limit;
mod mirror;
mod segments;
pub mod spoof;
mod transport;

pub use arp::Arp;
pub use bridge::Bridge;
pub use classifier::Classifier;
pub use ethernet::Ethernet;
pub use firewall::Firewall;
pub use flows::{FLOWS_MAX, Flows};
pub use fragments::{FRAGMENTED_MAX, Fragments};
pub use gro::Gro;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use limit::Limit;
pub use mirror::{Mirror, SharedCapture};
pub use segments::Segments;
pub use spoof::AntiSpoof;
pub use transport::{Checks, Transport};
