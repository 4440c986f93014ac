//! A panic of any thread ends the process at once. A backend that lost a worker is of no use to
//! that worker's guests, and keeps them from its successor. The successor goes on by the journals,
//! so the guests see a pause.

/// Makes each panic end the process from now on, after the usual message.
pub fn end_the_process() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        std::process::abort();
    }));
}
