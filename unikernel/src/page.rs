//! The page that the guest shows.

use crate::services::Counts;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::time::Duration;
use grantway_stack::DeviceStats;

/// Returns the answer to a request: a head, and the page.
pub fn page(now: Duration, staged: usize, counts: Counts, device: &DeviceStats) -> Vec<u8> {
    let mut text = String::new();
    let mut line = |name: &str, value: u64| {
        let _ = writeln!(text, "{name} {value}");
    };
    line("host_seconds", now.as_secs());
    line("staged_pages", staged as u64);
    line("echoed_bytes", counts.echoed);
    line("taken_bytes", counts.taken);
    line("pages", counts.pages);
    for (name, value) in grantway_bare::figures().chain(device.fields()) {
        line(name, value);
    }
    let head = format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    [head, text].concat().into_bytes()
}
