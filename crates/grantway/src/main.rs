//! The command `grantway`: an embedded host, both ends of a vif, and what shows
//! and measures them.
//!
//! - [`cli`]: the command line; [`error`], [`log`] and [`output`]: how a
//!   command ends, and what it says on the way; [`panics`]: how it does where it is wrong.
//! - [`generate`]: man pages and completions, of the command line as it is.
//! - [`host`], [`attach`] (and detach), [`list`]: the part of a toolstack, over
//!   [`toolstack`].
//! - [`backend`], [`frontend`]: the two ends; [`claim`], [`confine`], [`notify`]: a backend is the only one
//!   of its domain, gives up rights, and tells a service manager that it serves;
//!   [`control`]: how both ends report, and [`report`] to whom;
//!   [`trace`]: how a backend shows what passes;
//!   [`ctl`]: what a frontend can be asked for; [`place`]: where they run; [`wait`]: what they wait on.
//! - [`iperf`]: TCP and UDP over a vif, in user space.
//! - [`rules`]: files of rules, and what came of them; [`nodes`]: what went through a backend's
//!   graph; [`running`]: which backend; [`mod@flows`]: what flows of a capture did;
//!   [`top`]: what backends do, now; [`metrics`]: the same for Prometheus.
//! - [`demo`], [`mod@bench`]: the path at work, and measured; [`table`].
//! - [`doctor`]: what keeps a backend from serving; [`plan`]: whether so many vifs
//!   fit, by what each takes ([`mod@footprint`]) and what is allowed ([`limits`]).
#![forbid(unsafe_code)]

mod attach;
mod backend;
mod bench;
mod claim;
mod cli;
mod confine;
mod control;
mod ctl;
mod demo;
mod doctor;
mod error;
mod flows;
mod footprint;
mod frontend;
mod generate;
mod host;
mod iperf;
mod limits;
mod list;
mod log;
mod metrics;
mod mode;
mod nodes;
mod notify;
mod output;
mod panics;
mod patience;
mod place;
mod plan;
mod report;
mod rules;
mod running;
mod shares;
mod table;
mod toolstack;
mod top;
mod trace;
mod wait;

use clap::Parser;
use cli::{Cli, Command};
use error::CommandError;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => return cli::refuse(&refused),
    };
    panics::end_the_process();
    match log::start(cli.verbose).and_then(|()| run(&cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CommandError::Reported) {
                eprintln!("{}", error.line(cli.command.name()));
            }
            error.exit_code()
        }
    }
}

fn run(command: &Command) -> Result<(), CommandError> {
    match command {
        Command::Host(args) => host::run(args),
        Command::Attach(args) => attach::attach(args),
        Command::Detach(args) => attach::detach(args),
        Command::List(args) => list::run(args),
        Command::Backend(args) => backend::run(args),
        Command::Frontend(args) => frontend::run(args),
        Command::Iperf(args) => iperf::run(args),
        Command::Ctl(args) => ctl::run(args),
        Command::Report(args) => report::run(args),
        Command::Top(args) => top::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Rules(args) => rules::run(args),
        Command::Graph(args) => nodes::run(args),
        Command::Flows(args) => flows::run(args),
        Command::Generate(args) => generate::run(args),
    }
}
