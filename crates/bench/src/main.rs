//! Program that `grantway bench` and `grantway demo` run. It prints figures with the conditions
//! under which they hold.
//!
//! - [`cli`], [`args`]: the command line. [`packets`], [`latency`], [`papers`], [`peers`],
//!   [`stream`], [`tcp`], [`vector`], [`scale`]: the benches. [`demo`]: one bench for a first look.
//! - [`rig`]: processes; [`contest`]: several of them in turns; [`tally`]: the difference of two
//!   reports, which is a slice. [`tools`], [`namespace`]: programs of others.
//! - [`rings`]: from guests' rings to guests' rings in one process, for paper 002.
//! - [`slices`], [`stats`]: turns, dropped slices, pairs, medians; [`probe`]: the state of the
//!   machine.
//! - [`turns`]: both ends in one thread, for counters of instructions; [`prices`]: what those do not
//!   show.
//! - [`document`], [`progress`]: the printed output; [`fill`]: the rows as a page.
#![forbid(unsafe_code)]

mod args;
mod cli;
mod contest;
mod crew;
mod demo;
mod document;
mod fill;
mod latency;
mod namespace;
mod packets;
mod papers;
mod peers;
mod prices;
mod probe;
mod progress;
mod rig;
mod rings;
mod scale;
mod slices;
mod stats;
mod stream;
mod tally;
mod tcp;
mod tools;
mod turns;
mod vector;

use grantway_command::program::{Part, main as run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::<Part<cli::Command>>()
}
