//! A sandbox for the threads of a backend: limits on their system calls, files and capabilities,
//! since they parse bytes of guests.
//!
//! # When to use it
//!
//! Enter the sandbox before the first thread is started. Confine each worker before its first
//! packet, and close the control thread once it knows its files.
//!
//! # Example
//!
//! ```standalone_crate
//! use grantway_sandbox::{Files, Host, Part, Sandbox, Use};
//!
//! let mut sandbox = Sandbox::enter(Host::None);
//! let worker = sandbox.worker();
//! let confined = std::thread::spawn(move || worker.confine().is_ok()).join().expect("no panic");
//!
//! // The control thread may read /proc from now on, and no other folder.
//! sandbox.close(&Files::new().with("/proc", Use::Read));
//! for part in sandbox.held() {
//!     println!("holds: {}", part.held());
//! }
//! // A kernel may lack a part. Each message names the risk.
//! for missing in sandbox.missing() {
//!     println!("missing: {missing}");
//! }
//! if sandbox.held().contains(&Part::Files) {
//!     assert!(std::fs::File::open("/etc/passwd").is_err());
//! }
//! println!("worker confined: {confined}");
//! ```
//!
//! # Parts
//!
//! | [`Part`] | Mechanism | Threads | Effect |
//! |---|---|---|---|
//! | `Privileges` | `prctl` | all | no program that is run can get more rights; seccomp and landlock need it |
//! | `Capabilities` | `capset` | all | the process keeps `CAP_NET_ADMIN`, which makes TAPs; a worker keeps none |
//! | `Programs` | seccomp | all | a thread that runs a program, traces a process, mounts, or loads kernel code ends the process ([`calls::FORBIDDEN`]) |
//! | `Workers` | seccomp | workers | a worker uses the descriptors that it has; it opens, runs and connects nothing |
//! | `Files` | landlock | control thread, and threads that it starts later | opens only the files of [`Files`], and makes no TCP connection |
//!
//! [`Sandbox::enter`] confines the process, [`Worker::confine`] a worker thread, and
//! [`Sandbox::close`] the control thread.
//!
//! # System calls of a worker
//!
//! - A call that no worker needs, such as `execve`, `connect` or an `openat` for writing, ends the
//!   process by SIGSYS ([`calls::STOPPED`]). The kernel's log names the call. A compromised thread
//!   must not continue. A successor takes over the vifs, as after any crash.
//! - `openat` for reading fails with `EACCES`. The C library opens files by itself: glibc's
//!   allocator reads `/proc/sys/vm/overcommit_memory` when it first returns memory, and a panic
//!   reads symbols. Neither call may end the process, and both may fail.
//! - A call in [`calls::ALLOWED`] is carried out. Every other call fails with `ENOSYS`. New kernels
//!   get new calls, and a new call that opens a file must not pass, so the list has the allowed
//!   calls. A C library that tries a new call gets the answer of an older kernel, and uses its
//!   second way.
//!
//! # Guarantees and limits
//!
//! - No part can be undone.
//! - A kernel that lacks a part runs with the others: [`Sandbox::missing`] has the missing parts
//!   and the reasons.
//! - On the embedded host ([`Host::Embedded`]) a grant copy is `process_vm_readv` of another
//!   process's memory. So workers may make this call, and the process keeps `CAP_SYS_PTRACE`, and
//!   `CAP_DAC_OVERRIDE` for the folder of another user. Landlock forbids this call to the control
//!   thread, which copies by mapping instead.
//! - A helper process beside a backend ([`Host::None`]) keeps no capability.
//!
//! # What it is not
//!
//! - It does not isolate memory, time or network traffic: use cgroups and namespaces for these.
//! - It is not for general programs: the lists of calls are those of Grantway's workers.
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
