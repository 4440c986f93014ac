//! Memory that the kernel's thread uses, too, and the `ioctl`s of `/dev/vhost-net` (`linux/vhost.h`).

#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering},
};

use grantway_ring::VolatileSlice;
use rustix::{
    io::{Errno, Result},
    ioctl::{Getter, NoArg, Opcode, Setter, ioctl, opcode},
    mm::{MapFlags, ProtFlags, mmap_anonymous, munmap},
};

/// A private mapping, in which the kernel's thread reads and writes.
///
/// No reference to its bytes is ever made: they are copied, or read and written as atomic words.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the region owns its mapping, which belongs to no thread.
unsafe impl Send for Region {}
// SAFETY: as above. Words are atomic. Bytes that two threads copy at once are torn at worst, and no
// reference to them exists.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes, all zero. Their pages are taken when they are first written.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub fn new(len: usize) -> Result<Self> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses where the new mapping lies, so it takes the place of none.
        let base = unsafe { mmap_anonymous(null_mut(), len, rights, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    /// Returns the bytes of the region.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of a byte, as the kernel has it.
    pub fn address(&self, at: usize) -> u64 {
        (self.base.as_ptr().expose_provenance() + at) as u64
    }

    /// Returns a pointer to `len` bytes at `at`.
    ///
    /// # Panics
    ///
    /// If they do not lie within the region.
    #[inline]
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "bytes beyond the region");
        // SAFETY: the offset lies within the mapping, as was just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    #[inline]
    fn word<T>(&self, at: usize) -> *mut T {
        assert!(at.is_multiple_of(size_of::<T>()), "a word that is not aligned");
        self.place(at, size_of::<T>()).cast()
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: the word lies within the mapping and is aligned, as was checked. It is used as an
        // atomic only, by both sides.
        unsafe { AtomicU16::from_ptr(self.word(at)) }
    }

    /// Reads a word of 16 bits.
    #[inline]
    pub fn load16(&self, at: usize, order: Ordering) -> u16 {
        u16::from_le(self.half(at).load(order))
    }

    /// Writes a word of 16 bits.
    #[inline]
    pub fn store16(&self, at: usize, value: u16, order: Ordering) {
        self.half(at).store(value.to_le(), order);
    }

    /// Reads a word of 32 bits.
    #[inline]
    pub fn load32(&self, at: usize) -> u32 {
        // SAFETY: as in `half`.
        let word = unsafe { AtomicU32::from_ptr(self.word(at)) };
        u32::from_le(word.load(Ordering::Relaxed))
    }

    /// Writes a word of 32 bits.
    #[inline]
    pub fn store32(&self, at: usize, value: u32) {
        // SAFETY: as in `half`.
        let word = unsafe { AtomicU32::from_ptr(self.word(at)) };
        word.store(value.to_le(), Ordering::Relaxed);
    }

    /// Writes a word of 64 bits.
    #[inline]
    pub fn store64(&self, at: usize, value: u64) {
        // SAFETY: as in `half`.
        let word = unsafe { AtomicU64::from_ptr(self.word(at)) };
        word.store(value.to_le(), Ordering::Relaxed);
    }

    /// Copies bytes out.
    #[inline]
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let from = self.place(at, bytes.len());
        // SAFETY: the source lies within the mapping. `bytes` is no part of it, since nothing has a
        // reference to the mapping.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies bytes in.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: as in `read`, the other way.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes of a peer's page in, each read once.
    pub fn write_slice(&self, at: usize, bytes: &VolatileSlice<'_>) {
        let to = self.place(at, bytes.len());
        // SAFETY: the bytes lie within the mapping, and are initialised, as all of an anonymous
        // mapping is. The reference ends within this function, whose caller has not shown the bytes
        // to the kernel yet; nothing else has a reference to the mapping.
        let to = unsafe { std::slice::from_raw_parts_mut(to, bytes.len()) };
        // The slice has as many bytes.
        let _ = bytes.read(0, to);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is the region's own, and nothing refers to it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

const VHOST: u8 = 0xaf;
const GET_FEATURES: Opcode = opcode::read::<u64>(VHOST, 0x00);
const SET_FEATURES: Opcode = opcode::write::<u64>(VHOST, 0x00);
const SET_OWNER: Opcode = opcode::none(VHOST, 0x01);
/// The kernel's argument ends in an array without a length.
const SET_MEM_TABLE: Opcode = opcode::write::<u64>(VHOST, 0x03);
const SET_VRING_NUM: Opcode = opcode::write::<State>(VHOST, 0x10);
const SET_VRING_ADDR: Opcode = opcode::write::<Addresses>(VHOST, 0x11);
const SET_VRING_BASE: Opcode = opcode::write::<State>(VHOST, 0x12);
const SET_VRING_KICK: Opcode = opcode::write::<File>(VHOST, 0x20);
const SET_VRING_CALL: Opcode = opcode::write::<File>(VHOST, 0x21);
const NET_SET_BACKEND: Opcode = opcode::write::<File>(VHOST, 0x30);

/// `struct vhost_vring_state`.
#[repr(C)]
struct State {
    index: u32,
    number: u32,
}

/// `struct vhost_vring_file`.
#[repr(C)]
struct File {
    index: u32,
    fd: c_int,
}

/// `struct vhost_vring_addr`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Addresses {
    pub index: u32,
    /// Zero: nothing is logged.
    pub flags: u32,
    pub descriptors: u64,
    pub used: u64,
    pub available: u64,
    pub log: u64,
}

/// `struct vhost_memory` with one region.
#[repr(C)]
struct Memory {
    regions: u32,
    padding: u32,
    guest_address: u64,
    len: u64,
    user_address: u64,
    flags: u64,
}

fn set<const OPCODE: Opcode, T>(device: BorrowedFd<'_>, value: T) -> Result<()> {
    // SAFETY: each opcode here takes a pointer to the type that it is declared with, or to
    // `Memory`, and reads it. What the addresses in there lead to is up to the caller.
    unsafe { ioctl(device, Setter::<OPCODE, T>::new(value)) }
}

/// Returns the features that the device has.
pub(super) fn features(device: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: VHOST_GET_FEATURES writes a `u64` through the pointer.
    unsafe { ioctl(device, Getter::<GET_FEATURES, u64>::new()) }
}

/// Takes up features.
pub(super) fn set_features(device: BorrowedFd<'_>, features: u64) -> Result<()> {
    set::<SET_FEATURES, u64>(device, features)
}

/// Makes the device this process's, which starts its thread.
pub(super) fn set_owner(device: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: VHOST_SET_OWNER takes no argument.
    unsafe { ioctl(device, NoArg::<SET_OWNER>::new()) }
}

/// Lets the device read and write this region and nothing else. Addresses are those of the process.
///
/// The region has to outlive the device. A device that had a region which was unmapped would write
/// to whatever is mapped there later.
pub(super) fn set_memory(device: BorrowedFd<'_>, region: &Region) -> Result<()> {
    let (address, len) = (region.address(0), region.len() as u64);
    let memory = Memory {
        regions: 1,
        padding: 0,
        guest_address: address,
        len,
        user_address: address,
        flags: 0,
    };
    set::<SET_MEM_TABLE, Memory>(device, memory)
}

/// Sets a ring: its number of entries, its address, and its first index, which is 0.
pub(super) fn set_ring(device: BorrowedFd<'_>, entries: u32, at: Addresses) -> Result<()> {
    let index = at.index;
    set::<SET_VRING_NUM, State>(device, State { index, number: entries })?;
    set::<SET_VRING_BASE, State>(device, State { index, number: 0 })?;
    set::<SET_VRING_ADDR, Addresses>(device, at)
}

/// Sets the descriptors by which this process wakes the device, and the device this process.
pub(super) fn set_events(
    device: BorrowedFd<'_>,
    index: u32,
    kick: BorrowedFd<'_>,
    call: BorrowedFd<'_>,
) -> Result<()> {
    set::<SET_VRING_KICK, File>(device, File { index, fd: kick.as_raw_fd() })?;
    set::<SET_VRING_CALL, File>(device, File { index, fd: call.as_raw_fd() })
}

/// Gives a ring its TAP, from which on the device's thread works.
pub(super) fn set_backend(device: BorrowedFd<'_>, index: u32, tap: BorrowedFd<'_>) -> Result<()> {
    set::<NET_SET_BACKEND, File>(device, File { index, fd: tap.as_raw_fd() })
}
