//! The guest's console: a page of two rings, of which the toolstack reads one.

use crate::sys::{self, hypercall, memory};
use core::fmt;
use grantway_hypervisor::Port;
use grantway_ring::SharedPage;
use spin::Mutex;

/// The guest's parameters for its console (`HVM_PARAM_CONSOLE_PFN`, `_EVTCHN`).
const PARAMETERS: [u32; 2] = [17, 18];
/// Offset and bytes of what we write (`xencons_interface`), and the place of its indices.
const OUT: usize = 1024;
const OUT_BYTES: u32 = 2048;
const OUT_READ: usize = 3080;
const OUT_WRITTEN: usize = 3084;
/// Looks for room before the rest of a text is dropped: nobody may be reading.
const LOOKS: u32 = 1000;

/// The console, for [`core::fmt::Write`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Console;

static PAGE: Mutex<Option<(SharedPage, Port)>> = Mutex::new(None);

fn page() -> Option<(SharedPage, Port)> {
    // Whoever panics while the page is looked for says nothing, and ends.
    let mut page = PAGE.try_lock()?;
    if page.is_none() {
        let [frame, port] = PARAMETERS.map(hypercall::parameter);
        *page = Some((memory::toolstack_page(frame?)?, Port(port? as u32)));
    }
    page.clone()
}

/// Finds the console anew, in a guest that was restored.
pub(crate) fn renew() {
    *PAGE.lock() = None;
}

/// Writes to the console.
pub fn print(text: fmt::Arguments<'_>) {
    let _ = fmt::Write::write_fmt(&mut Console, text);
}

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Some((page, port)) = page() else {
            // No console yet, or none at all: Xen's log has it, or QEMU's.
            text.bytes().for_each(sys::emergency);
            return Err(fmt::Error);
        };
        for &byte in text.as_bytes() {
            // A terminal needs both.
            if byte == b'\n' && !put(&page, port, b'\r') || !put(&page, port, byte) {
                return Err(fmt::Error);
            }
        }
        hypercall::events::send(port);
        Ok(())
    }
}

/// Writes a byte. Returns false if there was no room for it in time.
fn put(page: &SharedPage, port: Port, byte: u8) -> bool {
    for _ in 0..LOOKS {
        if append(page, byte) {
            return true;
        }
        hypercall::events::send(port);
        hypercall::run::pause();
    }
    false
}

/// Writes a byte behind those that wait. Returns false if the ring is full, or if its indices make
/// no sense.
fn append(page: &SharedPage, byte: u8) -> bool {
    let written = word(page, OUT_WRITTEN);
    if written.wrapping_sub(word(page, OUT_READ)) >= OUT_BYTES {
        return false;
    }
    let at = OUT + (written % OUT_BYTES) as usize;
    let _ = page.write(at, &[byte]);
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    let _ = page.write_word(OUT_WRITTEN, written.wrapping_add(1));
    true
}

fn word(page: &SharedPage, at: usize) -> u32 {
    let mut bytes = [0; 4];
    let _ = page.read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_ring::{PAGE_SIZE, SharedRun};

    fn whole(page: &SharedPage) -> [u8; PAGE_SIZE] {
        let mut bytes = [0; PAGE_SIZE];
        page.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn text_goes_around_the_ring_until_it_is_full() {
        // The last is the end of the words, where the indices go on at 0.
        for start in [0, 7, OUT_BYTES - 1, u32::MAX - 5] {
            let page = SharedRun::private(1).page(0).unwrap();
            page.write_word(OUT_READ, start).unwrap();
            page.write_word(OUT_WRITTEN, start).unwrap();
            let byte = |n: u32| (n % 251) as u8 + 1;
            assert!((0..OUT_BYTES).all(|n| append(&page, byte(n))));
            let full = whole(&page);
            assert!(!append(&page, 0), "it is full");
            assert_eq!(whole(&page), full);
            for n in 0..OUT_BYTES {
                let at = (start.wrapping_add(n) % OUT_BYTES) as usize;
                assert_eq!(full[OUT + at], byte(n), "byte {n} from {start}");
            }
            assert_eq!(word(&page, OUT_WRITTEN), start.wrapping_add(OUT_BYTES));
            assert!(full[..OUT].iter().all(|byte| *byte == 0), "the ring of input");
            // A reader that takes a byte makes room for one.
            page.write_word(OUT_READ, start.wrapping_add(1)).unwrap();
            assert!(append(&page, 9) && !append(&page, 9));
        }
    }

    #[test]
    fn indices_that_make_no_sense_write_nothing() {
        for (read, written) in [(1, 0), (0, OUT_BYTES), (0, OUT_BYTES + 1), (u32::MAX, 1 << 31)] {
            let page = SharedRun::private(1).page(0).unwrap();
            page.write_word(OUT_READ, read).unwrap();
            page.write_word(OUT_WRITTEN, written).unwrap();
            let before = whole(&page);
            assert!(!append(&page, 1), "{read} {written}");
            assert_eq!(whole(&page), before);
        }
    }
}
