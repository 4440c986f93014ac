//! The command `grantway`: a backend, a frontend, an embedded host, and commands that show and
//! check them.
//!
//! # When to use it
//!
//! - To serve the vifs of Xen guests in place of xen-netback (`grantway backend`).
//! - To try, measure and debug the path on any Linux machine (`grantway demo`, `grantway bench`).
//!
//! To link a backend or a frontend into a program of your own, use the crates `grantway-backend`
//! and `grantway-frontend`.
//!
//! # Example
//!
//! Three processes on one machine, without Xen:
//!
//! ```text
//! grantway host --dir /tmp/gw &
//! grantway backend --host /tmp/gw --port echo &
//! grantway attach --host /tmp/gw --domain 1 ''
//! grantway frontend --host /tmp/gw --domain 1 --port generator:size=64 &
//! grantway show vifs --host /tmp/gw
//! ```
//!
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | [`cli`], [`args`] | the command line, and the arguments of its commands |
//! | [`overview`], [`generate`] | the help as a whole; man pages and completions |
//! | [`programs`] | the commands that other programs run: `bench`, `demo` and `iperf` |
//! | [`host`], [`attach`], [`list`] | the part of a toolstack, over [`grantway_command::toolstack`] |
//! | [`backend`], [`frontend`] | the two ends of a vif |
//! | [`claim`], [`confine`] | a backend is the only one of its domain, and gives up rights |
//! | [`notify`], [`uevent`], [`clock`] | a backend's message to the service manager, events for udev, and time |
//! | [`metrics`], [`trace`] | reports for Prometheus, and the packets that a backend shows |
//! | [`show`], [`report`], [`list`], [`top`], [`nodes`] | reports for people and for programs |
//! | [`ctl`] | commands to a running frontend |
//! | [`rules`] | rules files, and their counters |
//! | [`mod@flows`] | TCP flows of a capture or of a running backend |
//! | [`doctor`], [`plan`] | faults of this machine, and room for more vifs |
//! | [`running`], [`shares`] | running programs, and resources that all vifs share |
//!
//! [`grantway_command`] has the parts that all programs of the command share.
//!
//! # What it is not
//!
//! - It is not a library: each part with a use of its own is in another crate.
//! - It is not a toolstack for Xen: `xl` and XAPI stay as they are.
//!   what is allowed.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod backend;
mod claim;
mod cli;
mod clock;
mod config;
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
mod sample;
mod shares;
mod show;
mod terminal;
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
