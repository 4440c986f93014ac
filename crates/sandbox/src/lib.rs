//! Limits on what the threads of a backend may ask of the kernel, once they parse bytes of guests.
//!
//! [`Sandbox::enter`] confines the process, [`Worker::confine`] a worker thread,
//! and [`Sandbox::close`] the control thread. The parts ([`Part`]):
//!
//! - **No new privileges** (`prctl`): no program that is run could give rights. Seccomp
//!   and landlock need it.
//! - **Capabilities**: the process keeps `CAP_NET_ADMIN`, which makes TAPs. A worker keeps
//!   none.
//! - **No programs** (seccomp, all threads): a thread that calls `execve`, traces another
//!   process, mounts, or loads code into the kernel ends the process ([`calls::FORBIDDEN`]).
//! - **Workers** (seccomp): a worker uses the descriptors that it has. It opens, runs and
//!   connects nothing.
//! - **Files** (landlock): the control thread, and each thread that it starts later, opens
//!   the files that [`Files`] lists, and makes no TCP connection.
//!
//! A kernel without one of them runs with the others: [`Sandbox::missing`] says which part is
//! missing and why. None of them can be undone.
//!
//! # What happens to a thread that does more
//!
//! On a worker there are three answers:
//!
//! - A call that no worker has a reason for, such as `execve`, `connect` or an `openat` for
//!   writing, ends the process by SIGSYS ([`calls::STOPPED`]). The kernel's log names the
//!   call. A thread that was taken over must not go on; a successor takes the vifs over, as
//!   after any crash.
//! - `openat` for reading fails with `EACCES`. The C library opens files by itself: glibc's
//!   allocator reads `/proc/sys/vm/overcommit_memory` when it first gives memory back, and a
//!   panic looks for symbols. Neither may end the process, and neither needs an answer.
//! - Every other call fails with `ENOSYS`, unless it is listed ([`calls::ALLOWED`]). The list
//!   says what is allowed, and not what is forbidden, because kernels get new calls, and a new
//!   call that opens a file must not pass. A C library that tries a new call gets the answer
//!   of an older kernel, for which it has a second way.
//!
//! # A helper
//!
//! A process beside a backend ([`Host::None`]) keeps no capability. It closes its files as the
//! control thread does.
//!
//! # The embedded host
//!
//! There a grant copy is `process_vm_readv` of another process's memory
//! ([`Host::Embedded`]). So workers may make that call, and the process keeps
//! `CAP_SYS_PTRACE`, and `CAP_DAC_OVERRIDE` for a folder of another user. Landlock forbids
//! that call to the control thread, which has to copy by mapping. The embedded host is no
//! isolation boundary anyway.
#![forbid(unsafe_code)]

pub mod calls;
mod capabilities;
mod error;
mod files;
mod filter;
mod offer;
mod sandbox;

pub use error::SandboxError;
pub use files::{Files, Use};
pub use offer::{Landlock, Offer};
pub use sandbox::{Host, Missing, Part, Sandbox, Worker};
