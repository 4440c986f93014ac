//! `grantway bench lists`: the graph alone, for whoever counts instructions
//! (`scripts/instructions`), which are toggled by the name of what `case` runs it in.

use super::args::ListsArgs;
use super::case::{Case, Feed, Load, Traffic};
use grantway_command::error::CommandError;
use grantway_command::output;

/// Frames that go by before the first is counted: each flow is known by then.
const WARM_UP: usize = 8192;

/// Runs the command, and prints how many frames are counted.
///
/// # Errors
///
/// The rules cannot be compiled.
pub fn run(args: &ListsArgs) -> Result<(), CommandError> {
    let load = match (args.spoof, usize::from(args.rules)) {
        (true, _) => Load::Addresses,
        (false, 0) => Load::Nothing,
        (false, rules) => Load::Rules(rules),
    };
    let list = usize::from(args.list);
    let case = Case::new("", load, Traffic::Flows(4096), None);
    // Nothing here is to depend on time.
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
