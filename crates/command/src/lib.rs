//! What the programs of the command line have in common: `grantway`, and `grantway-bench`
//! and `grantway-iperf`, which it runs for its commands of these names.
//!
//! - [`program`]: how a program begins and ends, and finds another; [`outline`]: what its
//!   command line looks like, for who writes its manual. [`args`]: options of several
//!   programs; [`error`], [`log`] and [`output`]: how a command ends, and what it says on
//!   the way; [`panics`]: how it ends where it is wrong; [`table`] and [`report`]: figures as
//!   text, and as a page.
//! - [`place`]: where a command runs, and the [`obstacle`]s there; [`process`]: what a process
//!   has of the machine; [`mode`] and [`wait`]: what it waits on, and [`patience`]: how long;
//!   [`control`]: how running ends report.
//! - [`toolstack`]: vifs in the store; [`footprint`]: what one vif takes; [`limits`]: what is
//!   allowed.
#![forbid(unsafe_code)]

pub mod args;
pub mod control;
pub mod error;
pub mod footprint;
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
