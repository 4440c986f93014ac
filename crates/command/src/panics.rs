//! A panic ends the process at once, whichever thread it is of. A backend that lost a
//! worker is of no use to that worker's guests, and keeps its successor from them, which goes
//! on by the journals: they see a pause.

/// From now on, after the usual words.
pub fn end_the_process() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        std::process::abort();
    }));
}
