//! `grantway bench lists`: the graph alone, under a counter of instructions
//! (`scripts/instructions`). The counter is toggled by the name of the function in which `case`
//! runs the graph.

use super::args::ListsArgs;
use super::case::{Case, Feed, Load, Traffic};
use grantway_command::error::CommandError;
use grantway_command::output;

/// Frames that are sent before the first counted one. Each flow is known by then.
const WARM_UP: usize = 8192;

/// Runs the command, and prints the number of counted frames.
///
/// # Errors
///
/// The rules cannot be compiled, or a frame had no receiver.
pub fn run(args: &ListsArgs) -> Result<(), CommandError> {
    let load = match (args.spoof, usize::from(args.rules)) {
        (true, _) => Load::Addresses,
        (false, 0) => Load::Nothing,
        (false, rules) => Load::Rules(rules),
    };
    let list = usize::from(args.list);
    let case = Case::new("", load, Traffic::Flows(4096), None);
    // The clock stands still, so that nothing depends on time.
    let mut feed = Feed::by(&case, list, || 0)?;
    for _ in 0..WARM_UP.div_ceil(list) {
        feed.turn(1, false);
    }
    let lists = args.packets.div_ceil(list);
    let went: u64 = (0..lists).map(|_| feed.turn(1, true)).sum();
    match went == (lists * list) as u64 {
        true => output::line(went.to_string()),
        false => Err(CommandError::Failed(format!("{went} of {} frames went", lists * list))),
    }
}
