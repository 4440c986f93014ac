//! Tests of the platform on a real Xen. On another machine they print that they are skipped.
//!
//! The program runs by itself in any domain that has the three devices:
//!
//! - `on_xen` grants to its own domain, and so needs no other; `on_xen grants`, `copies`, `events`
//!   and `store` are parts of it;
//! - `on_xen serve P` in domain S and `on_xen peer S` in domain P are the two ends of a test across
//!   domains: S grants to P, which maps and copies;
//! - `on_xen costs` prints the costs of operations on this machine.

mod check;
mod copies;
mod costs;
mod events;
mod grants;
mod peers;
mod store;

use check::Checks;
use grantway_hypervisor::{DomId, FrontendPlatform, Platform};
use grantway_xen::{OpenError, Xen};
use std::process::ExitCode;

fn main() -> ExitCode {
    let xen = match Xen::open() {
        Ok(xen) => xen,
        Err(OpenError::NotXen { .. }) => {
            grantway_needs::skip("needs Xen (/dev/xen/evtchn)");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("FAILED to open: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Arguments choose a part of the tests, or an end of the test across domains.
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!("domain {} on {}", xen.domain(), xen.host());
    let mut checks = Checks::default();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [end @ ("serve" | "peer"), number] => match number.parse().map(DomId) {
            Ok(other) if end == "serve" => peers::serve(&mut checks, &xen, other),
            Ok(other) => peers::peer(&mut checks, &xen, other),
            Err(e) => checks.check("the other's number", || Err(format!("{number}: {e}"))),
        },
        ["costs"] => costs::all(&mut checks, &xen),
        ["grants"] => grants::all(&mut checks, &xen),
        ["copies"] => copies::all(&mut checks, &xen),
        ["events"] => events::all(&mut checks, &xen),
        ["store"] => store::all(&mut checks, &xen),
        // `cargo test` may pass arguments of its own.
        _ => {
            grants::all(&mut checks, &xen);
            copies::all(&mut checks, &xen);
            events::all(&mut checks, &xen);
            store::all(&mut checks, &xen);
        }
    }
    checks.finish()
}
