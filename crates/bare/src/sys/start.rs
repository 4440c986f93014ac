//! The start: what the loader left in memory is read once, the heap begins, and the program runs.

use super::exceptions;
use super::guard;
use super::heap;
use super::hypercall::run::{Shutdown, shutdown};
use super::{hypercall, memory, task};
use crate::Boot;
use alloc::string::String;
use core::ops::Range;

/// First word of what the loader leaves (`XEN_HVM_START_MAGIC_VALUE`).
const MAGIC: u32 = 0x336e_c578;
/// Longest text of arguments, in bytes.
const ARGUMENTS_MAX: usize = 4096;
/// Type of memory in the map that is plain memory.
const RAM: u32 = 1;
/// End of the addresses that are mapped.
const MAPPED: u64 = 4 << 30;
/// End of the memory that is used: Xen's pages come behind it.
const USED: u64 = memory::WINDOW as u64;

/// `hvm_start_info`, of version 1 and later.
#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    arguments: u64,
    rsdp: u64,
    map: u64,
    map_entries: u32,
    reserved: u32,
}

/// `hvm_memmap_table_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapEntry {
    address: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

unsafe extern "C" {
    /// End of the image, from the linker's script.
    static grantway_image_end: u8;
}

unsafe extern "Rust" {
    /// The program ([`entry!`](crate::entry)).
    safe fn grantway_main(boot: Boot);
}

/// Continues behind `entry`. `info` is the address of [`StartInfo`].
pub(super) extern "C" fn start(info: u32) -> ! {
    task::begin();
    exceptions::begin();
    guard::begin();
    if !hypercall::install() {
        crate::println!("grantway: this is no guest of Xen's");
        shutdown(Shutdown::Crash);
    }
    // SAFETY: the loader leaves it there, aligned, and nothing else has the memory before the heap
    // begins.
    let info = unsafe { (info as usize as *const StartInfo).read() };
    if info.magic != MAGIC || info.version == 0 {
        shutdown(Shutdown::Crash);
    }
    let memory = largest(info);
    // The text may lie in that memory, so it is read before.
    let mut text = [0; ARGUMENTS_MAX];
    let length = read_text(info.arguments, &mut text);
    // SAFETY: plain memory behind the image, which nothing else uses from now on: the loader's
    // leavings were read.
    unsafe { heap::begin(memory.start, memory.end) };
    let arguments = String::from_utf8_lossy(&text[..length]).into_owned();
    grantway_main(Boot::new(arguments, memory.end - memory.start));
    shutdown(Shutdown::PowerOff)
}

/// Returns the largest run of plain memory behind the image and below Xen's pages.
fn largest(info: StartInfo) -> Range<usize> {
    let image = core::ptr::addr_of!(grantway_image_end) as u64;
    let entries = (0..info.map_entries as usize).map(|at| {
        let entry = info.map as usize + at * size_of::<MapEntry>();
        // SAFETY: the loader leaves so many entries there, aligned to 8 bytes.
        unsafe { (entry as *const MapEntry).read() }
    });
    let runs = entries.filter(|entry| entry.kind == RAM).map(|entry| {
        let end = entry.address.saturating_add(entry.bytes).min(USED);
        entry.address.max(image)..end
    });
    let run = runs.max_by_key(|run| run.end.saturating_sub(run.start)).unwrap_or(0..0);
    // Both are below 4 GiB.
    run.start as usize..run.end.max(run.start) as usize
}

/// Copies a text that ends in a NUL. Returns its length, which is cut to the room.
fn read_text(address: u64, room: &mut [u8]) -> usize {
    if address == 0 || address >= MAPPED {
        return 0;
    }
    for (at, place) in room.iter_mut().enumerate() {
        // SAFETY: the loader's text ends in a NUL, and lies below 4 GiB as all that it leaves.
        let byte = unsafe { (address as usize as *const u8).add(at).read() };
        if byte == 0 {
            return at;
        }
        *place = byte;
    }
    room.len()
}
