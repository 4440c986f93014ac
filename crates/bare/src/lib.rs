//! The platform of a Xen guest that has no operating system: a PVH guest in 64-bit mode, on one
//! processor, with everything that [`grantway_frontend`](https://docs.rs/grantway-frontend) asks
//! of its platform.
//!
//! Such a guest is a program of its own: its loader is Xen's toolstack, and `main` is what it does
//! ([`entry!`]).
//!
//! - [`Bare`] is the platform: grants, event channels and the store.
//! - [`Clock`] tells the time since the host started.
//! - [`println!`] writes to the guest's console.
//! - [`shutdown`] ends the guest.
//!
//! Memory is one heap over the largest run of what the guest was given, below 3.5 GiB. There are no
//! threads and no interrupts: whoever waits gives its processor to Xen until one of its event
//! channels is signalled (`SCHEDOP_poll`), so no code runs beside `main`.
//!
//! Tests of this crate are programs of an operating system. They have neither the start nor Xen,
//! and look at what is kept in memory: tables, rings and clocks.
#![no_std]
#![cfg(target_arch = "x86_64")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod boot;
mod channels;
mod clock;
mod console;
mod grants;
mod platform;
mod store;
mod stores;
mod sys;

pub use boot::Boot;
pub use clock::Clock;
pub use console::{Console, print};
pub use grantway_hypervisor::{FrontendPlatform, FrontendStore, StoreOps};
pub use platform::Bare;
#[cfg(not(test))]
#[doc(hidden)]
pub use sys::heap::Heap;
pub use sys::hypercall::{Shutdown, shutdown};
pub use sys::random::random;

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
