//! The platform of a Xen guest without an operating system (a unikernel): PVH, 64-bit, one
//! processor.
//!
//! # When to use it
//!
//! To write a guest that is one Rust program. Xen's toolstack loads it, and [`entry!`] names its
//! main function. The platform has everything that
//! [`grantway_frontend`](https://docs.rs/grantway-frontend) requires.
//!
//! # Example
//!
//! A whole guest. Its build needs a linker script and has no standard library, so this example is
//! not compiled as a test: `unikernel/examples/smallest.rs` is a guest that is, and `unikernel/`
//! has one with a vif.
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//!
//! use grantway_bare::{Bare, Boot, FrontendPlatform, StoreOps, println};
//!
//! grantway_bare::entry!(main);
//!
//! fn main(boot: Boot) {
//!     println!("arguments: {}", boot.arguments());
//!     match Bare::new() {
//!         Ok(platform) => {
//!             println!("domain {}", platform.domain());
//!             let name = platform.frontend_store().and_then(|mut store| store.read_text("name"));
//!             println!("name: {name:?}");
//!         }
//!         Err(error) => println!("{error}"),
//!     }
//!     // The guest ends when main returns.
//! }
//! ```
//!
//! # Items
//!
//! | Item | Content |
//! |---|---|
//! | [`entry!`] | makes a function the guest's program |
//! | [`Bare`] | the platform: grants, event channels, and the store |
//! | [`Options`] | ways of the hypervisor to choose from |
//! | [`Boot`] | what the toolstack gave the guest |
//! | [`Clock`] | time since the host started |
//! | [`println!`], [`Console`] | the guest's console |
//! | [`figures`] | counters of the guest: hypercalls by kind, upcalls, run time |
//! | [`shutdown`] | ends the guest |
//!
//! Text that is printed before the console exists goes to port 0xe9. Xen's log shows it with
//! `guest_loglvl=all`.
//!
//! # Memory
//!
//! The first 4 GiB of addresses are mapped one to one. The heap is the largest run of the guest's
//! memory below 3.5 GiB. Pages of Xen are mapped behind it.
//!
//! # Execution
//!
//! There is one processor, and there are no threads. A program that waits ([`Bare::wait`]) gives
//! the processor to Xen until one of its event channels is signalled. Interrupts are off otherwise,
//! so no other code runs beside `main`:
//!
//! - With [`Wake::Upcall`], Xen raises an interrupt. Its handler runs on its own stack, clears
//!   Xen's flag and returns. Then the program looks at its event channels. The wait is `sti; hlt`,
//!   which Xen treats as `SCHEDOP_block`. A single-shot timer ends it in time.
//! - With [`Wake::Poll`], each wait passes all ports to Xen (`SCHEDOP_poll`), so there are at most
//!   128.
//!
//! # Guarantees and limits
//!
//! - [`Bare::new`] or [`Bare::with`] must be called once, before all other items except
//!   [`println!`] and [`shutdown`].
//! - Sets of event channels, store connections and runs of granted pages may be dropped at any
//!   time, also after [`Bare::suspend`] has returned in another domain. A drop of one from before
//!   the suspend does not change anything of the new domain.
//! - x86-64 only. `no_std` with `alloc`: the crate brings a heap.
//!
//! # What it is not
//!
//! - It is not an operating system: there are no threads, files or processes.
//! - It has no network stack: `grantway-stack` has one, and `grantway-frontend` the network driver.
//! - It is not a backend platform: it does not map or copy grants of others.
//!
//! # Tests
//!
//! The tests run as programs of an operating system, without the boot code and without Xen. They
//! test the tables, rings, queues and clocks in memory, with a small model of Xen behind the
//! hypercalls (`sys/hypercall/fake.rs`). [`Bare::check_upcalls`] and [`Bare::check_channels`] test
//! a guest on real Xen.
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

/// Makes a function the guest's program. The function gets a [`Boot`]. The guest ends when the
/// function returns.
///
/// The macro also defines the global allocator and the panic handler of the program. The library
/// does not define them outside of this macro, so any program can depend on it.
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
