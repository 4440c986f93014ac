//! Checks of the platform that need a guest on real Xen: upcalls in computations, and thousands of
//! event channels. No verdict depends on when this guest gets a processor.

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

/// Computations that an upcall interrupts, and upcalls of the timer that are waited for.
const COMPUTATIONS: u64 = 256;
const TICKS: u64 = 20;
/// Time until the timer's upcall.
const TICK: Duration = Duration::from_millis(1);
/// Rounds of a computation.
const ROUNDS: u64 = 64;
/// Computations in a tick that never comes.
const NEVER: u64 = 100_000_000;

impl Bare {
    /// Computes, and signals this guest itself in the middle of that: Xen makes the upcall behind the
    /// instruction of the hypercall, whatever else the machine does. The interrupted code has values
    /// in SSE registers and below its stack pointer. Then computes until upcalls of the timer come,
    /// at any instruction. Returns the number of upcalls.
    ///
    /// # Errors
    ///
    /// Returns a message if a result differs from the computation without upcalls, if no upcall
    /// came, or if a signal was lost.
    pub fn check_upcalls(&self) -> Result<u64, String> {
        if self.options().wake != Wake::Upcall {
            return Err("this guest waits by polls".to_string());
        }
        // One that comes before the halt ends the wait.
        upcall::cut_short();
        let text = |error: grantway_hypervisor::Error| error.to_string();
        let mut set = Channels::new(self.events.clone());
        let port = set.bind_own().map_err(text)?;
        let (expected, before) = (work(1, None), upcall::count());
        let differs = |found: (u64, f64), n: u64| match found == expected {
            true => Ok(()),
            false => Err(format!("{found:?} in computation {n}, {expected:?} without upcalls")),
        };
        for n in 1..=COMPUTATIONS {
            let seen = upcall::count();
            let signal = Signal { round: n % ROUNDS, port: port.0 };
            let found = upcall::during(|| work(1, Some(&signal)));
            differs(found, n)?;
            if upcall::count() == seen {
                return Err(format!("no upcall came in computation {n}, expected one"));
            }
            let mut told = Vec::new();
            set.poll(&mut |port| told.push(port)).map_err(text)?;
            if told != [port] {
                return Err(format!("computation {n} signalled {port}, and {told:?} was told"));
            }
        }
        for tick in 1..=TICKS {
            let seen = upcall::count();
            run::set_timer(self.events.on_host(self.clock().now() + TICK));
            let found = upcall::during(|| {
                (0..NEVER)
                    .map(|_| work(1, None))
                    .find(|&found| found != expected || upcall::count() != seen)
            });
            let found = found.ok_or_else(|| format!("upcall {tick} of the timer does not come"))?;
            differs(found, COMPUTATIONS + tick)?;
            // The timer's port is taken off, so that it makes an upcall again.
            self.events.look();
        }
        Ok(upcall::count() - before)
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

/// A signal in the middle of a computation.
struct Signal {
    round: u64,
    port: u32,
}

/// Computes with numbers of both kinds, in a function that calls none, as the compiler keeps its
/// values below the stack pointer. Signals a port at the beginning of a round.
#[inline(never)]
fn work(seed: u64, signal: Option<&Signal>) -> (u64, f64) {
    let mut words = [0_u64; 12];
    let mut parts = [1.0_f64; 6];
    for round in 0..ROUNDS {
        if let Some(signal) = signal
            && signal.round == round
        {
            upcall::signal_here(&signal.port);
        }
        for (at, word) in (1_u64..).zip(black_box(&mut words)) {
            *word = word.rotate_left(7) ^ seed.wrapping_mul(at + round);
        }
        for (at, part) in (1_u32..).zip(black_box(&mut parts)) {
            *part = (*part + f64::from(at)) * 0.75;
        }
    }
    (words.iter().fold(0, |sum, word| sum ^ word), parts.iter().sum())
}
