//! Checks of the platform itself, which need a real Xen: upcalls in the middle of computations, and
//! more event channels than bits of a page.
//!
//! Its arguments are those of `grantway-bare` (`events=`, `channels=`), and `ports=5000`, the
//! number of event channels. The configuration has to allow them (`max_event_channels`); more than
//! 128 need `events=upcall`. With `fault=stack` it fills its stack in place of all that, which has
//! to end it by an exception.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use core::hint::black_box;
use grantway_bare::{Bare, Boot, Hypercalls, Options, Shutdown, Wake, println, shutdown};

grantway_bare::entry!(main);

fn main(boot: Boot) {
    match run(&boot) {
        Ok(()) => println!("check: passed"),
        Err(why) => {
            println!("check: FAILED: {why}");
            shutdown(Shutdown::Crash)
        }
    }
}

/// Calls itself until the stack is full.
#[inline(never)]
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if frame[0] == u64::MAX { 0 } else { descend(depth + 1) ^ black_box(frame)[1] }
}

fn run(boot: &Boot) -> Result<(), String> {
    match boot.argument("fault") {
        None => {}
        Some("stack") => return Err(format!("{} came back", descend(0))),
        Some(other) => return Err(format!("fault={other}: expected stack")),
    }
    let options = Options::of(boot)?;
    let platform = Bare::with(options).map_err(|e| e.to_string())?;
    if platform.options() != options {
        return Err(format!("{} in place of {options}", platform.options()));
    }
    if options.wake == Wake::Upcall {
        println!("check: {} upcalls, some in computations", platform.check_upcalls()?);
    }
    let count = boot.argument("ports").unwrap_or("100");
    let count = count.parse().map_err(|_| format!("ports={count}: expected a number"))?;
    let before = Hypercalls::now().total();
    let highest = platform.check_channels(count)?;
    let calls = Hypercalls::now().total() - before;
    println!("check: {options}: {count} ports up to {highest}, {calls} hypercalls");
    Ok(())
}
