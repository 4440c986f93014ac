//! The guest's console: a page of two rings, of which the toolstack reads one.
//!
//! Frames of the network may make a guest print, and the toolstack may read slowly or not at all.
//! So a text that finds no room waits, but all waits together are bounded: a byte that found room
//! earns one look, and [`LOOKS`] may be kept. Text that finds no room then is dropped. Its bytes
//! are counted, and the console says so where it goes on.

use crate::sys::{self, hypercall, memory};
use core::fmt::{self, Write};
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
/// Most looks for room, all texts together, while the toolstack reads nothing.
const LOOKS: u32 = 1000;

/// Guest's console, as a [`core::fmt::Write`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Console;

static OUTPUT: Mutex<Option<(Output, Port)>> = Mutex::new(None);

/// Finds the console anew, in a guest that was restored.
pub(crate) fn renew() {
    *OUTPUT.lock() = None;
}

/// Writes a text to the guest's console. [`println!`](crate::println) calls it.
pub fn print(text: fmt::Arguments<'_>) {
    // A panic while something is printed ends the guest, and is not shown there.
    if let Some(mut output) = OUTPUT.try_lock() {
        if output.is_none() {
            *output = open();
        }
        if let Some((output, port)) = &mut *output {
            let port = *port;
            return output.print(text, &mut |again| {
                hypercall::events::send(port);
                if again {
                    hypercall::run::pause();
                }
            });
        }
    }
    // No console yet, or none at all: Xen's log has it, or QEMU's.
    let _ = Emergency.write_fmt(text);
}

fn open() -> Option<(Output, Port)> {
    let [frame, port] = PARAMETERS.map(hypercall::parameter);
    Some((Output::new(memory::toolstack_page(frame?)?), Port(port? as u32)))
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        print(format_args!("{text}"));
        Ok(())
    }
}

/// The port of Xen's log, or of QEMU's.
struct Emergency;

impl Write for Emergency {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(sys::emergency);
        Ok(())
    }
}

/// The ring that the toolstack reads.
struct Output {
    page: SharedPage,
    /// Looks for room that are left.
    looks: u32,
    /// Bytes that were dropped since the ring last had room.
    dropped: u64,
}

/// A text on its way to the ring.
struct Text<'a> {
    output: &'a mut Output,
    /// Signals the toolstack; if true, lets it run.
    signal: &'a mut dyn FnMut(bool),
    /// True once a byte of the text found no room: none behind it is shown.
    cut: bool,
}

impl Output {
    fn new(page: SharedPage) -> Self {
        Self { page, looks: LOOKS, dropped: 0 }
    }

    /// Writes a text, and signals the toolstack once at its end.
    fn print(&mut self, text: fmt::Arguments<'_>, signal: &mut dyn FnMut(bool)) {
        let before = word(&self.page, OUT_WRITTEN);
        let dropped = core::mem::take(&mut self.dropped);
        let mut out = Text { output: self, signal, cut: false };
        if dropped > 0 {
            let _ = writeln!(out, "\n[{dropped} bytes dropped: the console was full]");
            if out.cut {
                // The note is no text of the guest's: it comes again, whole.
                out.output.dropped = dropped;
            }
        }
        let _ = out.write_fmt(text);
        // Whoever is full has been signalled.
        if word(&self.page, OUT_WRITTEN) != before {
            signal(false);
        }
    }
}

impl Text<'_> {
    /// Writes a byte. Returns false if there was no room for it in time.
    fn put(&mut self, byte: u8) -> bool {
        if append(&self.output.page, byte) {
            self.output.looks = (self.output.looks + 1).min(LOOKS);
            return true;
        }
        while self.output.looks > 0 {
            self.output.looks -= 1;
            (self.signal)(true);
            if append(&self.output.page, byte) {
                return true;
            }
        }
        false
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            // A terminal needs both.
            self.cut = self.cut || byte == b'\n' && !self.put(b'\r') || !self.put(byte);
            self.output.dropped += u64::from(self.cut);
        }
        Ok(())
    }
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

    /// Prints, and returns the number of signals. The reader takes so many bytes at each.
    fn print(output: &mut Output, text: &str, takes: u32) -> u32 {
        let (page, mut signals) = (output.page.clone(), 0);
        output.print(format_args!("{text}"), &mut |_| {
            signals += 1;
            take(&page, takes);
        });
        signals
    }

    /// Takes up to so many bytes, as the toolstack does.
    fn take(page: &SharedPage, most: u32) -> std::string::String {
        let (read, written) = (word(page, OUT_READ), word(page, OUT_WRITTEN));
        let count = written.wrapping_sub(read).min(most);
        let bytes = whole(page);
        let at = |n| char::from(bytes[OUT + (read.wrapping_add(n) % OUT_BYTES) as usize]);
        page.write_word(OUT_READ, read.wrapping_add(count)).unwrap();
        (0..count).map(at).collect()
    }

    #[test]
    fn a_toolstack_that_does_not_read_costs_a_bounded_number_of_signals() {
        let mut output = Output::new(SharedRun::private(1).page(0).unwrap());
        let line = "a line of thirty-two characters\n";
        let signals: u32 = (0..10_000).map(|_| print(&mut output, line, 0)).sum();
        assert!(signals <= LOOKS + OUT_BYTES, "{signals} signals");
        // A newline is two bytes in the ring. What was dropped is counted as it was printed.
        let kept = u64::from(OUT_BYTES / 33 * 32 + OUT_BYTES % 33);
        assert_eq!(output.dropped, 10_000 * 32 - kept);
        // The toolstack reads again, and is told.
        let came = take(&output.page, OUT_BYTES);
        assert!(came.starts_with("a line of") && came.len() == OUT_BYTES as usize);
        assert_eq!(print(&mut output, "the next\n", 0), 1, "one signal for a text");
        let note = std::format!("[{} bytes dropped: the console was full]", 320_000 - kept);
        assert_eq!(take(&output.page, OUT_BYTES), std::format!("\r\n{note}\r\nthe next\r\n"));
        assert_eq!(output.dropped, 0);
    }

    #[test]
    fn a_note_that_finds_no_room_comes_again() {
        let mut output = Output::new(SharedRun::private(1).page(0).unwrap());
        for _ in 0..100 {
            print(&mut output, "a line of thirty-two characters\n", 0);
        }
        let dropped = output.dropped;
        take(&output.page, 10);
        print(&mut output, "lost\n", 0);
        assert_eq!(output.dropped, dropped + 5);
        take(&output.page, OUT_BYTES);
        print(&mut output, "found\n", 0);
        let note = std::format!("[{} bytes dropped: the console was full]", dropped + 5);
        assert_eq!(take(&output.page, OUT_BYTES), std::format!("\r\n{note}\r\nfound\r\n"));
    }

    #[test]
    fn a_toolstack_that_reads_slowly_gets_everything() {
        let mut output = Output::new(SharedRun::private(1).page(0).unwrap());
        for _ in 0..1000 {
            print(&mut output, "a line of thirty-two characters\n", 3);
        }
        assert_eq!(output.dropped, 0);
    }

    #[test]
    fn a_flood_costs_no_more_signals_than_bytes_that_were_read() {
        // A reader that takes a byte at each tenth signal never makes room for long.
        let mut output = Output::new(SharedRun::private(1).page(0).unwrap());
        let (page, mut signals, mut taken) = (output.page.clone(), 0_u32, 0_u32);
        for _ in 0..10_000 {
            output.print(format_args!("a line\n"), &mut |_| {
                signals += 1;
                if signals % 10 == 0 {
                    taken += take(&page, 1).len() as u32;
                }
            });
        }
        assert!(taken > 0 && output.dropped > 0);
        assert!(signals <= LOOKS + 3 * (OUT_BYTES + taken), "{signals} signals, {taken} bytes");
    }
}
