//! Requests to a device.

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

/// A request that answers with its return value, or writes into its argument.
struct Request {
    opcode: Opcode,
    argument: *mut c_void,
}

// SAFETY: the caller of `request` vouches for the opcode and the argument, and the output is the
// return value alone.
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

/// Makes a request. Returns its return value.
///
/// # Safety
///
/// `argument` must be the argument that the driver expects for `opcode`. It must be valid for reads
/// and writes of as many bytes as the driver touches, and so must everything that it points to.
pub unsafe fn request<T>(fd: impl AsFd, opcode: Opcode, argument: *mut T) -> Result<IoctlOutput> {
    let request = Request { opcode, argument: argument.cast() };
    // SAFETY: the caller promised this.
    unsafe { rustix::ioctl::ioctl(fd, request) }
}
