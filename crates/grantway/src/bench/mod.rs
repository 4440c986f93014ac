//! `grantway bench`: figures with the conditions under which they hold.
//!
//! - [`args`]: the command line. [`packets`], [`latency`], [`seeds`], [`peers`],
//!   [`stream`], [`tcp`], [`vector`], [`scale`]: the commands; [`papers`]: what the papers measured.
//! - [`rig`]: processes; [`contest`]: several of them by turns; [`tally`]: what
//!   a slice was the difference of. [`tools`], [`namespace`]: programs of others.
//! - [`slices`], [`stats`]: turns, what is dropped, pairs, medians; [`probe`]: the
//!   state of the machine.
//! - [`turns`]: both ends in one thread, for counters of instructions.
//! - [`document`], [`progress`]: what is printed; [`report`]: the same as a page.

pub mod args;
pub mod contest;
pub mod document;
pub mod latency;
pub mod namespace;
pub mod packets;
pub mod papers;
pub mod peers;
pub mod probe;
pub mod progress;
pub mod report;
pub mod rig;
pub mod scale;
pub mod seeds;
pub mod slices;
pub mod stats;
pub mod stream;
pub mod tally;
pub mod tcp;
pub mod tools;
pub mod turns;
pub mod vector;

use crate::error::CommandError;
use args::{BenchArgs, BenchWhat};

/// Runs the bench that was asked for.
///
/// # Errors
///
/// The command line asks for something that cannot be, or a part of the rig
/// failed.
pub fn run(args: &BenchArgs) -> Result<(), CommandError> {
    match &args.what {
        BenchWhat::Packets(args) => packets::run(args),
        BenchWhat::Latency(args) => latency::run(args),
        BenchWhat::Seeds(args) => seeds::run(args),
        BenchWhat::Peers(args) => peers::run(args),
        BenchWhat::Stream(args) => stream::run(args),
        BenchWhat::Tcp(args) => tcp::run(args),
        BenchWhat::Turns(args) => turns::run(args),
        BenchWhat::Vector(args) => vector::run(args),
        BenchWhat::Lists(args) => vector::count::run(args),
        BenchWhat::Scale(args) => scale::run(args),
        BenchWhat::Guests(args) => scale::guests::run(args),
    }
}
