//! The pages that the guest shows.

use crate::flows::FlowsLog;
use crate::services::{Counts, Figures};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// Returns the answer to a request: a head, and the page.
#[must_use]
pub fn page(figures: &Figures<'_>, counts: Counts) -> Vec<u8> {
    let mut text = String::new();
    let mut line = |name: &str, value: u64| {
        let _ = writeln!(text, "{name} {value}");
    };
    line("host_seconds", figures.host.as_secs());
    line("staged_pages", figures.staged as u64);
    line("echoed_bytes", counts.echoed);
    line("taken_bytes", counts.taken);
    line("pages", counts.pages);
    line("given_up_connections", counts.given_up);
    line("iperf_tests", figures.iperf.tests);
    line("iperf_received_bytes", figures.iperf.received);
    line("iperf_sent_bytes", figures.iperf.sent);
    for (name, value) in (figures.own)().into_iter().chain(figures.device.fields()) {
        line(name, value);
    }
    answer("text/plain", text.into_bytes())
}

/// Returns the answer to a request for the log of flows.
#[must_use]
pub fn log(log: &FlowsLog) -> Vec<u8> {
    answer("application/jsonl", log.text())
}

fn answer(kind: &str, text: Vec<u8>) -> Vec<u8> {
    let head = format!(
        "HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    [head.into_bytes(), text].concat()
}
