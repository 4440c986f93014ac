//! `grantway bench`: figures with the conditions under which they hold.
//!
//! - [`args`]: the command line. [`packets`], [`latency`], [`seeds`], [`stream`]:
//!   the commands; [`papers`]: what the papers measured.
//! - [`rig`]: processes; [`contest`]: several of them by turns; [`tally`]: what
//!   a slice was the difference of.
//! - [`slices`], [`stats`]: turns, what is dropped, pairs, medians; [`probe`]: the
//!   state of the machine.
//! - [`document`], [`progress`]: what is printed; [`report`]: the same as a page.

pub mod args;
pub mod contest;
pub mod document;
pub mod latency;
pub mod packets;
pub mod papers;
pub mod probe;
pub mod progress;
pub mod report;
pub mod rig;
pub mod seeds;
pub mod slices;
pub mod stats;
pub mod stream;
pub mod tally;

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
        BenchWhat::Stream(args) => stream::run(args),
    }
}
