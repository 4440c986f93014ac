//! The command `grantway`: an embedded host, both ends of a vif, and what shows
//! and measures them.
//!
//! - [`cli`]: the command line, with the arguments in [`args`]; [`programs`]: what of it programs of their own run: `bench`,
//!   `demo` and `iperf`. What all of them share is in [`grantway_command`].
//! - [`generate`]: man pages and completions, of the command line as it is.
//! - [`host`], [`attach`] (and detach), [`list`]: the part of a toolstack, over
//!   [`grantway_command::toolstack`].
//! - [`backend`], [`frontend`]: the two ends; [`claim`], [`confine`], [`notify`]: a backend is the only one
//!   of its domain, gives up rights, and tells a service manager that it serves; [`clock`]: its
//!   time; [`report`]: to whom both ends report; [`trace`]: how a backend shows what passes;
//!   [`ctl`]: what a frontend can be asked for.
//! - [`rules`]: files of rules, and what came of them; [`nodes`]: what went through a backend's
//!   graph; [`running`]: which backend; [`mod@flows`]: what flows of a capture did;
//!   [`top`]: what backends do, now; [`metrics`]: the same for Prometheus.
//! - [`doctor`]: what keeps a backend from serving; [`plan`]: whether so many vifs
//!   fit, by what each takes and what is allowed.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod backend;
mod claim;
mod cli;
mod clock;
mod confine;
mod ctl;
mod doctor;
mod flows;
mod frontend;
mod generate;
mod host;
mod list;
mod metrics;
mod nodes;
mod notify;
mod plan;
mod programs;
mod report;
mod rules;
mod running;
mod shares;
mod top;
mod trace;

use cli::Cli;
use grantway_command::program;
use std::process::ExitCode;

fn main() -> ExitCode {
    match programs::asked_for_help(std::env::args_os().skip(1)) {
        Some((command, program)) => {
            programs::run(program).map_or_else(|e| e.end(command), |()| ExitCode::SUCCESS)
        }
        None => program::main::<Cli>(),
    }
}
