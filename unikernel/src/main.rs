//! A Xen guest that is one program: it answers pings, echoes what it is sent by TCP, takes what is
//! sent to it, and shows a page with its own counters.
//!
//! Its arguments are words of the guest's `cmdline`:
//!
//! | word | | |
//! |---|---|---|
//! | `address=10.0.0.2/24` | an address with its network's bits; may be repeated | none |
//! | `address=dhcp` | an address, and its gateway, by DHCP | none |
//! | `gateway=10.0.0.1` | the way to other networks; one of each family | none |
//! | `policy=staging` | the buffer policy: `copy`, `persistent` or `staging` | `copy` |
//! | `congestion=none` | TCP's congestion control: `reno` or `none` | `reno` |
//!
//! | port | |
//! |---|---|
//! | 7 | echoes |
//! | 9 | takes |
//! | 80 | the page |
#![no_std]
#![no_main]

extern crate alloc;

mod guest;
mod page;
mod services;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use grantway_bare::{Bare, Boot, Shutdown, println, shutdown};
use grantway_frontend::{Policy, Wishes};
use grantway_stack::StackConfig;
use grantway_stack::smoltcp::socket::tcp::CongestionControl;
use guest::Guest;

grantway_bare::entry!(main);

/// Value of `address` that asks a server.
const DHCP: &str = "dhcp";

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
    let platform = Bare::new().map_err(|e| e.to_string())?;
    let seed = platform.clock().now().as_nanos() as u64;
    let config = StackConfig {
        addresses: all(boot, "address")?,
        dhcp: boot.all("address").any(|text| text == DHCP),
        gateways: all(boot, "gateway")?,
        seed: seed ^ grantway_bare::random().unwrap_or(seed.rotate_left(32)),
    };
    let policy = match boot.argument("policy") {
        None | Some("copy") => Policy::Copy,
        Some("persistent") => Policy::Persistent,
        Some("staging") => Policy::Staging,
        Some(other) => {
            return Err(format!("policy={other}: expected copy, persistent or staging"));
        }
    };
    let congestion = match boot.argument("congestion") {
        None | Some("reno") => CongestionControl::Reno,
        Some("none") => CongestionControl::None,
        Some(other) => return Err(format!("congestion={other}: expected reno or none")),
    };
    let wishes = Wishes { policy, ..Wishes::default() };
    Guest::open(platform, boot, &config, wishes, congestion)?.run()
}

/// Returns the addresses of an argument that may be repeated.
fn all<T: core::str::FromStr>(boot: &Boot, name: &str) -> Result<Vec<T>, String> {
    let values = boot.all(name).filter(|&text| text != DHCP).map(|text| {
        text.parse().map_err(|_| format!("{name}={text}: expected an address such as 10.0.0.2/24"))
    });
    values.collect()
}
