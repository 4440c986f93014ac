//! Checks of the platform that need a guest on real Xen: upcalls at any moment, and thousands of
//! event channels.

use crate::channels::Channels;
use crate::options::Wake;
use crate::platform::Bare;
use crate::sys::hypercall::{events, run};
use crate::sys::upcall;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::hint::black_box;
use core::time::Duration;
use grantway_hypervisor::{DomId, FrontendEvents, Port};

/// Least time until the timer's next upcall, the number of such times of which one is taken after
/// the other, and the step from one to the next: a processor may be busy elsewhere until just then,
/// again and again. In an emulator that runs one processor at a time it is, if the other one
/// computes: until the next timer, whosever that is. So most times are longer than a tick of an
/// operating system.
const TICK: Duration = Duration::from_micros(100);
const LENGTHS: u32 = 400;
const STEP: u32 = 37;
/// Upcalls that have to come in computations, and most that are waited for.
const WITHIN: u64 = 20;
const TICKS: u32 = 2000;
/// Rounds of work in a tick that never comes.
const ROUNDS: u64 = 100_000_000;

impl Bare {
    /// Computes while upcalls come, until some of them have interrupted the computation. The
    /// interrupted code has values in SSE registers and below its stack pointer. Returns the number
    /// of upcalls.
    ///
    /// # Errors
    ///
    /// Returns a message if a result differs from the computation without upcalls, or if no upcall
    /// came.
    pub fn check_upcalls(&self) -> Result<u64, String> {
        if self.options().wake != Wake::Upcall {
            return Err("this guest waits by polls".to_string());
        }
        // One that comes before the halt ends the wait.
        upcall::cut_short();
        let (expected, mut within) = (work(1), 0);
        for tick in 1..=TICKS {
            let seen = upcall::count();
            let length = TICK * (1 + tick * STEP % LENGTHS);
            run::set_timer(self.events.on_host(self.clock().now() + length));
            let (found, rounds) = upcall::during(|| {
                let mut rounds = 0;
                loop {
                    let found = work(1);
                    rounds += 1;
                    if found != expected || upcall::count() != seen || rounds > ROUNDS {
                        return (found, rounds);
                    }
                }
            });
            if found != expected {
                return Err(format!("{found:?} after {tick} upcalls, {expected:?} without them"));
            }
            if rounds > ROUNDS {
                return Err(format!("upcall {tick} does not come"));
            }
            // One round may have been interrupted before it began.
            within += u64::from(rounds > 1);
            // The timer's port is taken off, so that it makes an upcall again.
            self.events.look();
            if within == WITHIN {
                return Ok(tick.into());
            }
        }
        Err(format!("{within} of {TICKS} upcalls came in computations, expected {WITHIN}"))
    }

    /// Makes `count` event channels by which the guest signals itself. Signals each of them in
    /// turn, and then all of them at once. Returns the highest port.
    ///
    /// # Errors
    ///
    /// Returns a message if a port was refused, or a signal was lost or reported twice.
    pub fn check_channels(&self, count: usize) -> Result<u32, String> {
        let text = |error: grantway_hypervisor::Error| error.to_string();
        let mut set = Channels::new(self.events.clone());
        let mut ports: Vec<Port> = Vec::new();
        for _ in 0..count {
            ports.push(set.bind_own().map_err(text)?);
        }
        // A port for others is one like these.
        let other = set.alloc_unbound(DomId::ZERO).map_err(text)?;
        set.close(other);
        let mut told = Vec::new();
        for &port in &ports {
            set.notify(port).map_err(text)?;
            self.wait(None);
            set.poll(&mut |port| told.push(port)).map_err(text)?;
            let told = core::mem::take(&mut told);
            if told != [port] {
                return Err(format!("port {port} was signalled, and {told:?} was told"));
            }
        }
        for &port in ports.iter().rev() {
            events::send(port);
            events::send(port);
        }
        while told.len() < ports.len() {
            let before = told.len();
            self.wait(None);
            set.poll(&mut |port| told.push(port)).map_err(text)?;
            if told.len() == before {
                return Err(format!("{before} of {} ports were told", ports.len()));
            }
        }
        told.sort_unstable();
        ports.sort_unstable();
        match told == ports {
            true => Ok(ports.last().map_or(0, |port| port.0)),
            false => Err("ports were told that were not signalled, or twice".to_string()),
        }
    }
}

/// Computes with numbers of both kinds, in functions that call none, as the compiler keeps their
/// values below the stack pointer.
#[inline(never)]
fn work(seed: u64) -> (u64, f64) {
    let mut words = [0_u64; 12];
    let mut parts = [1.0_f64; 6];
    for round in 0..64_u64 {
        for (at, word) in (1_u64..).zip(black_box(&mut words)) {
            *word = word.rotate_left(7) ^ seed.wrapping_mul(at + round);
        }
        for (at, part) in (1_u32..).zip(black_box(&mut parts)) {
            *part = (*part + f64::from(at)) * 0.75;
        }
    }
    (words.iter().fold(0, |sum, word| sum ^ word), parts.iter().sum())
}
