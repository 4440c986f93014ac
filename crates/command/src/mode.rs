//! The way in which both ends wait when there is nothing to do.

use crate::args::WaitModeArg;
use grantway_backend::WaitMode;
use std::time::Duration;
use tracing::info;

/// Time that the adaptive mode looks before it sleeps.
const BUDGET: Duration = Duration::from_micros(50);

/// Returns the mode that was asked for, or the one that fits the machine. If this process has one
/// processor, it never spins. To be called before a thread is pinned, since a pinned thread has
/// only one processor.
pub fn wait_mode(asked: Option<WaitModeArg>) -> WaitMode {
    let fitting = WaitMode::fitting();
    let Some(asked) = asked else { return fitting };
    if asked != WaitModeArg::Interrupt && fitting == WaitMode::Interrupt {
        info!(
            "--mode {}: interrupt is used instead, because there is only one processor",
            asked.name()
        );
        return fitting;
    }
    match asked {
        WaitModeArg::Busy => WaitMode::Busy,
        WaitModeArg::Adaptive => WaitMode::Adaptive(BUDGET),
        WaitModeArg::Interrupt => WaitMode::Interrupt,
    }
}
