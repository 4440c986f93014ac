//! Copies between the memory of processes.

use libc::{iovec, pid_t};
use rustix::io::Errno;

/// Most pairs of one call (`IOV_MAX`).
pub const PAIRS_MAX: usize = 1024;

/// Lets any process of the same user copy from and to our memory. The Yama module would allow it to
/// our ancestors only.
pub fn let_peers_reach_us() {
    // Without Yama there is no such option, and nothing to allow.
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
}

/// Copies of one call: pairs of our memory and a peer's.
///
/// A value is kept and reused from batch to batch, so that nothing is allocated in steady state.
#[derive(Debug, Default)]
pub struct Transfer {
    local: Vec<iovec>,
    remote: Vec<iovec>,
}

// SAFETY: the pointers in it are numbers to the kernel; they are followed only
// by the unsafe calls below, whose callers promise for them anew.
unsafe impl Send for Transfer {}

impl Transfer {
    /// Forgets all pairs.
    pub fn clear(&mut self) {
        self.local.clear();
        self.remote.clear();
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.local.len()
    }

    /// Returns true if no other pair fits.
    pub fn is_full(&self) -> bool {
        self.local.len() >= PAIRS_MAX
    }

    /// Adds `len` bytes at `local` here and at the address `remote` there.
    pub fn push(&mut self, local: *mut u8, remote: u64, len: usize) {
        self.local.push(iovec { iov_base: local.cast(), iov_len: len });
        self.remote.push(iovec { iov_base: remote as usize as *mut libc::c_void, iov_len: len });
    }

    /// Returns the bytes of pair `index`.
    pub fn bytes(&self, index: usize) -> usize {
        self.local.get(index).map_or(0, |pair| pair.iov_len)
    }

    /// Copies pairs `from..to` out of the peer's memory in one call. Returns the number of bytes
    /// copied, which end at a pair's end.
    ///
    /// # Safety
    ///
    /// The local side of each pair is valid for writes, and no reference to it
    /// is in use meanwhile.
    pub unsafe fn read(&self, pid: i32, from: usize, to: usize) -> Result<usize, Errno> {
        let (local, remote) = self.pairs(from, to)?;
        // SAFETY: the caller promised the local side; the kernel checks the
        // remote one.
        let copied = unsafe {
            libc::process_vm_readv(
                pid as pid_t,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        outcome(copied)
    }

    /// Copies pairs `from..to` into the peer's memory in one call. Returns the number of bytes
    /// copied.
    ///
    /// # Safety
    ///
    /// The local side of each pair is valid for reads, and nothing writes to it meanwhile. If `pid`
    /// is our own, the remote side is memory that no reference exists to.
    pub unsafe fn write(&self, pid: i32, from: usize, to: usize) -> Result<usize, Errno> {
        let (local, remote) = self.pairs(from, to)?;
        // SAFETY: the caller promised the local side; the kernel checks the
        // remote one.
        let copied = unsafe {
            libc::process_vm_writev(
                pid as pid_t,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        outcome(copied)
    }

    fn pairs(&self, from: usize, to: usize) -> Result<(&[iovec], &[iovec]), Errno> {
        match (self.local.get(from..to), self.remote.get(from..to)) {
            (Some(local), Some(remote)) => Ok((local, remote)),
            _ => Err(Errno::INVAL),
        }
    }
}

fn outcome(copied: isize) -> Result<usize, Errno> {
    usize::try_from(copied).map_err(|_| {
        let last = std::io::Error::last_os_error();
        Errno::from_raw_os_error(last.raw_os_error().unwrap_or(libc::EFAULT))
    })
}
