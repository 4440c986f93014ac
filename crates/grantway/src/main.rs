//! The command `grantway`: an embedded host, both ends of a vif, and commands that show and measure
//! them.
//!
//! - [`cli`]: the command line; [`args`]: arguments of its commands; [`programs`]: the commands that
//!   run in programs of their own: `bench`, `demo` and `iperf`. What all commands share is in
//!   [`grantway_command`].
//! - [`overview`]: the help of the command line as a whole.
//! - [`generate`]: man pages and completions, made from the command line.
//! - [`host`], [`attach`] (and detach), [`list`]: the part of a toolstack, over
//!   [`grantway_command::toolstack`].
//! - [`backend`], [`frontend`]: the two ends.
//! - [`claim`], [`confine`], [`notify`]: a backend is the only one of its domain, gives up rights,
//!   and tells a service manager that it serves. [`uevent`]: events by which udev learns of a vif.
//!   [`clock`]: its time.
//! - [`show`], [`report`]: the reports of both ends; [`trace`]: packets that a backend shows; [`ctl`]:
//!   questions to a frontend.
//! - [`rules`]: files of rules, and what they counted; [`nodes`]: what went through a backend's
//!   graph; [`running`]: a running backend; [`mod@flows`]: the flows of a capture; [`top`]: what
//!   backends do now; [`metrics`]: a backend's report for Prometheus; [`shares`]: what vifs share.
//! - [`doctor`]: what keeps a backend from serving; [`plan`]: if n vifs fit, by what each takes and
//!   what is allowed.
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
mod overview;
mod plan;
mod port_report;
mod programs;
mod report;
mod rules;
mod running;
mod shares;
mod show;
mod top;
mod trace;
mod uevent;
mod uplink;

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
