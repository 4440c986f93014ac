//! Requests of a device.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::path::Path;

/// Opens a device for reading and writing.
pub fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::empty())
}

/// A request whose answer is the return value, or is written into its argument.
struct Request {
    opcode: Opcode,
    argument: *mut c_void,
}

// SAFETY: the opcode and the argument are those that `request`'s caller vouches
// for, and the output is the return value alone.
unsafe impl Ioctl for Request {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<Self::Output> {
        Ok(out)
    }
}

/// Makes a request; gives its return value.
///
/// # Safety
///
/// `argument` is what the driver expects for `opcode`, valid for reads and
/// writes of as many bytes as the driver touches, and so is whatever it points
/// to.
pub unsafe fn request<T>(fd: impl AsFd, opcode: Opcode, argument: *mut T) -> Result<IoctlOutput> {
    let request = Request { opcode, argument: argument.cast() };
    // SAFETY: as the caller promised.
    unsafe { rustix::ioctl::ioctl(fd, request) }
}
