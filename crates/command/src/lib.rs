//! The parts that the programs of the command line share: `grantway`, and `grantway-bench` and
//! `grantway-iperf`, which it runs for its commands of these names.
//!
//! - [`program`]: start and end of a program, and the search for another. [`outline`]: a command
//!   line's definition, for the manual. [`args`]: options of several programs. [`error`], [`log`]
//!   and [`output`]: the end of a command, and its messages. [`panics`]: the end of a command that
//!   has a bug. [`table`] and [`report`]: figures as text, and as a page.
//! - [`place`]: the place in which a command runs. [`obstacle`]: things that keep a frontend from
//!   its vif. [`process`]: the processor and memory of a process. [`mode`], [`wait`] and
//!   [`patience`]: the ways to wait, and for how long. [`control`]: reports of running ends.
//! - [`toolstack`]: vifs in the store. [`footprint`]: the resources that one vif takes. [`limits`]:
//!   the limits of these resources.
#![forbid(unsafe_code)]

/// Version of the programs, with the commit and its date if the build knows them:
/// `0.1.0 (0123456789 2026-11-28)`.
pub const VERSION: &str = env!("GRANTWAY_VERSION");

pub mod args;
pub mod control;
pub mod error;
pub mod footprint;
pub mod input;
pub mod limits;
pub mod log;
pub mod mode;
pub mod obstacle;
pub mod outline;
pub mod output;
pub mod panics;
pub mod patience;
pub mod place;
pub mod process;
pub mod program;
pub mod report;
pub mod table;
pub mod toolstack;
pub mod wait;
