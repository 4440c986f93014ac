//! The smallest guest: it prints a line, waits for a second, and shuts down.
//!
//! `make unikernel` builds it beside the others, as `examples/smallest`.
#![no_std]
#![no_main]

use core::time::Duration;
use grantway_bare::{Bare, Boot, println};

grantway_bare::entry!(main);

fn main(boot: Boot) {
    println!("hello, {} KiB of heap", boot.memory() >> 10);
    match Bare::new() {
        Ok(platform) => platform.pause(platform.clock().now() + Duration::from_secs(1)),
        Err(why) => println!("{why}"),
    }
    // A guest whose `main` returns is shut down.
}
