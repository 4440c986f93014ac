//! Checks of the platform itself, which need a real Xen: upcalls in the middle of computations, and
//! more event channels than bits of a page.
//!
//! Its arguments are those of `grantway-bare` (`events=`, `channels=`), and `ports=5000`, the
//! number of event channels. The configuration has to allow them (`max_event_channels`).
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
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

fn run(boot: &Boot) -> Result<(), String> {
    let options = Options::of(boot)?;
    let platform = Bare::with(options).map_err(|e| e.to_string())?;
    if platform.options() != options {
        return Err(format!("{} in place of {options}", platform.options()));
    }
    if options.wake == Wake::Upcall {
        println!("check: {} upcalls in computations", platform.check_upcalls()?);
    }
    let count = boot.argument("ports").unwrap_or("100");
    let count = count.parse().map_err(|_| format!("ports={count}: expected a number"))?;
    let before = Hypercalls::now().total();
    let highest = platform.check_channels(count)?;
    let calls = Hypercalls::now().total() - before;
    println!("check: {options}: {count} ports up to {highest}, {calls} hypercalls");
    Ok(())
}
