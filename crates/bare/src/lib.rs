//! The platform of a Xen guest that has no operating system: a PVH guest in 64-bit mode, on one
//! processor, with everything that [`grantway_frontend`](https://docs.rs/grantway-frontend) asks
//! of its platform.
//!
//! Such a guest is a program of its own: its loader is Xen's toolstack, and `main` is what it does
//! ([`entry!`]). `unikernel/examples/smallest.rs` is the smallest one, `unikernel/` one with a vif.
//!
//! - [`Bare`] is the platform: grants, event channels and the store. [`Options`] choose between
//!   ways of the hypervisor's.
//! - [`Clock`] tells the time since the host started.
//! - [`println!`] writes to the guest's console. Before there is one, text goes to port 0xe9: Xen's
//!   log has it, with `guest_loglvl=all`.
//! - [`figures`] are the guest's counters: hypercalls by kind, upcalls, the time for which it ran.
//! - [`shutdown`] ends the guest.
//!
//! # Memory
//!
//! The first 4 GiB of addresses are mapped to themselves. The heap is the largest run of memory that
//! the guest was given, below 3.5 GiB; pages of Xen's come behind it.
//!
//! # Who runs when
//!
//! There is one processor, and there are no threads. A program that waits ([`Bare::wait`]) gives its
//! processor to Xen until one of its event channels is signalled. Interrupts are off otherwise, so
//! no code runs beside `main`:
//!
//! - With [`Wake::Upcall`] Xen makes an interrupt. The handler runs on a stack of its own, clears
//!   Xen's flag and returns; the program then looks at what was signalled. `sti; hlt` is the wait,
//!   which Xen takes for `SCHEDOP_block`, and a single-shot timer ends it in time.
//! - With [`Wake::Poll`] each wait names all ports to Xen (`SCHEDOP_poll`), so there are 128 at most.
//!
//! # Who may call what
//!
//! [`Bare::new`] or [`Bare::with`] is called once, and all else afterwards, but for `println!` and
//! `shutdown`, which work from the beginning of `main`. Sets of event channels, connections to the
//! store and runs of granted pages may be dropped at any time, also after [`Bare::suspend`] has
//! returned in another domain: what is of before that changes nothing of afterwards.
//!
//! # Tests
//!
//! Tests of this crate are programs of an operating system. They have neither the start nor Xen,
//! and look at what is kept in memory: tables, rings, queues and clocks, with a small Xen of their
//! own behind the hypercalls (`sys/hypercall/fake.rs`). [`Bare::check_upcalls`] and
//! [`Bare::check_channels`] are for a guest on a real one.
#![no_std]
#![cfg(target_arch = "x86_64")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod boot;
mod channels;
mod check;
mod clock;
mod console;
mod events;
mod fifo;
mod figures;
mod grants;
mod options;
mod platform;
mod store;
mod stores;
mod sys;

pub use boot::Boot;
pub use clock::Clock;
pub use console::{Console, print};
pub use figures::{Start, figures, started};
pub use grantway_hypervisor::{FrontendPlatform, FrontendStore, StoreOps};
pub use options::{Layout, Options, Wake};
pub use platform::Bare;
#[cfg(not(test))]
#[doc(hidden)]
pub use sys::heap::Heap;
pub use sys::hypercall::count::Hypercalls;
pub use sys::hypercall::run::{Shutdown, ran, shutdown};
pub use sys::random::random;
pub use sys::upcall::count as upcalls;

/// Makes a function the guest's program. It gets what the toolstack gave the guest ([`Boot`]), and
/// ends the guest when it returns. The heap and the end of a panic become the program's, too: this
/// library brings them with nothing else, so that it can be a dependency of any program.
///
/// ```ignore
/// #![no_std]
/// #![no_main]
///
/// grantway_bare::entry!(main);
///
/// fn main(boot: grantway_bare::Boot) {
///     grantway_bare::println!("arguments: {}", boot.arguments());
/// }
/// ```
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        // SAFETY: the only function of this name; the platform's own start calls it.
        #[unsafe(no_mangle)]
        extern "Rust" fn grantway_main(boot: $crate::Boot) {
            let main: fn($crate::Boot) = $main;
            main(boot)
        }

        #[global_allocator]
        static GRANTWAY_HEAP: $crate::Heap = $crate::Heap;

        #[panic_handler]
        fn grantway_panicked(info: &::core::panic::PanicInfo<'_>) -> ! {
            $crate::panicked(info)
        }
    };
}

/// Says why the program panicked, and ends the guest. For [`entry!`].
#[doc(hidden)]
pub fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("{info}");
    shutdown(Shutdown::Crash)
}

/// Writes a line to the guest's console.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {
        $crate::print(format_args!("{}\n", format_args!($($text)*)))
    };
}
