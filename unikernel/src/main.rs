//! A Xen guest that is one program. It answers pings and serves TCP, is a server or a client of
//! iperf 2, or makes and judges test frames, as the words of its `cmdline` say
//! (`unikernel/README.md` has them).
//!
//! The program is the crate's library; here are its entry and its loop, on the platform of
//! [`grantway_bare`].
#![no_std]
#![no_main]

extern crate alloc;

mod guest;

use alloc::string::{String, ToString};
use grantway_bare::{Bare, Boot, Options, Shutdown, println, shutdown};
use grantway_frontend::Wishes;
use grantway_guest::frames::Frames;
use grantway_guest::serve::Serving;
use grantway_guest::words::{Task, Words, instant};
use grantway_stack::{Stack, StackConfig};
use guest::Guest;

grantway_bare::entry!(main);

fn main(boot: Boot) {
    match run(&boot) {
        Ok(end) => shutdown(end),
        Err(why) => {
            println!("grantway: {why}");
            shutdown(Shutdown::Crash)
        }
    }
}

fn run(boot: &Boot) -> Result<Shutdown, String> {
    let words = Words::parse(boot.arguments())?;
    for word in &words.unknown {
        println!("grantway: {word}: not a word of this program");
    }
    let platform = Bare::with(Options::of(boot)?).map_err(|e| e.to_string())?;
    println!("grantway: {}", platform.options());
    let wishes = Wishes { policy: words.policy, ..Wishes::default() };
    match words.task {
        Task::Frames(config) => {
            Guest::open(platform, Frames::new(config), wishes, words.polls)?.run()
        }
        Task::Serve(iperf) => {
            let now = platform.clock().now();
            let seed = now.as_nanos() as u64;
            let seed = seed ^ grantway_bare::random().unwrap_or(seed.rotate_left(32));
            let Words { addresses, dhcp, gateways, congestion, stack_log, .. } = words;
            let config = StackConfig { addresses, dhcp, gateways, seed };
            let stack = Stack::new(&config, instant(now)).map_err(|e| e.to_string())?;
            let own = || grantway_bare::figures().collect();
            let mut serving = Serving::new(stack, iperf, boot.memory(), congestion, seed, own)?;
            if stack_log {
                let clock = platform.clock();
                serving.log_flows(move || clock.wall());
            }
            Guest::open(platform, serving, wishes, words.polls)?.run()
        }
    }
}
