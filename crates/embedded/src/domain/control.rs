//! A process's connection to its host.

use super::ConnectError;
use crate::host::CONTROL;
use crate::protocol::{Answer, Refusal, Request, decode, encode};
use crate::sys::{MESSAGE_MAX, receive, send};
use grantway_hypervisor::{DomId, Error, Port};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A connection with one request and one answer at a time. The host sees the process end when the
/// last holder of this drops it.
#[derive(Debug)]
pub struct Control {
    dir: PathBuf,
    socket: OwnedFd,
    /// Held for a request and its answer.
    buffer: Mutex<Box<[u8]>>,
}

/// Locks. A panic of another holder left nothing half done that matters.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// Connects to the host that serves `dir`.
    pub fn connect(dir: &Path) -> Result<Self, ConnectError> {
        let no_host = || ConnectError::NoHost { dir: dir.to_owned() };
        let address = SocketAddrUnix::new(dir.join(CONTROL)).map_err(|_| no_host())?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|reason| os_error("socket", reason))?;
        match rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address)) {
            Ok(()) => {}
            Err(
                Errno::NOENT
                | Errno::CONNREFUSED
                | Errno::NOTDIR
                | Errno::NOTSOCK
                | Errno::PROTOTYPE,
            ) => return Err(no_host()),
            Err(Errno::ACCESS) => {
                return Err(ConnectError::NotAllowed { dir: dir.to_owned() });
            }
            Err(reason) => return Err(os_error("connect", reason).into()),
        }
        Ok(Self {
            dir: dir.to_owned(),
            socket,
            buffer: Mutex::new(vec![0; MESSAGE_MAX].into_boxed_slice()),
        })
    }

    /// Returns the folder of the host.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a descriptor that shows a hang-up once the host is gone.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the error for a host that is gone.
    pub fn gone(&self) -> Error {
        Error::Gone { what: format!("the embedded host at {}", self.dir.display()) }
    }

    /// Asks, waits for the answer, and returns it. A refusal is an answer.
    pub fn ask(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), Error> {
        let Some(bytes) = encode(request) else {
            return Err(Error::Protocol {
                what: "a request to the embedded host",
                found: "one that is too long".to_owned(),
                expected: "at most 16 KiB",
            });
        };
        let mut buffer = lock(&self.buffer);
        send(&self.socket, &bytes, &[]).map_err(|_| self.gone())?;
        let message = receive(&self.socket, &mut buffer).map_err(|errno| match errno {
            Errno::MSGSIZE => os_error("recvmsg", Errno::MFILE),
            _ => self.gone(),
        })?;
        if message.bytes == 0 {
            return Err(self.gone());
        }
        let answer = decode(&buffer[..message.bytes]).ok_or_else(|| Error::Protocol {
            what: "an answer of the embedded host",
            found: format!("{} bytes that say nothing", message.bytes),
            expected: "a host of this version",
        })?;
        Ok((answer, message.fds))
    }

    /// Asks, waits for the answer, and returns it. A refusal is an error.
    pub fn request(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), Error> {
        match self.ask(request)? {
            (Answer::Refused(refusal), _) => Err(refused(refusal)),
            answered => Ok(answered),
        }
    }
}

/// Returns the error for an answer that does not fit its question.
pub fn unexpected(answer: &Answer) -> Error {
    Error::Protocol {
        what: "an answer of the embedded host",
        found: format!("{answer:?}"),
        expected: "the one that fits the question",
    }
}

/// Takes the next descriptor of an answer.
pub fn take(fds: &mut impl Iterator<Item = OwnedFd>) -> Result<OwnedFd, Error> {
    fds.next().ok_or_else(|| Error::Protocol {
        what: "an answer of the embedded host",
        found: "too few descriptors".to_owned(),
        expected: "all of them; check `ulimit -n`",
    })
}

/// Returns the error of a system call of ours.
pub fn os_error(call: &str, reason: Errno) -> Error {
    Error::Os {
        call: call.to_owned(),
        reason: reason.to_string(),
        remedy: match reason {
            Errno::MFILE | Errno::NFILE => "raise `ulimit -n`",
            Errno::NOMEM => "free memory, or raise vm.max_map_count",
            _ => "check `ulimit -n` and free memory",
        },
    }
}

/// Remedy for a domain that was not made.
pub const ATTACH_FIRST: &str = "attach a vif to it first: grantway attach";

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::NoDomain { domid } => {
            Error::NoDomain { domain: DomId(domid), remedy: ATTACH_FIRST }
        }
        Refusal::NotAlive { domid } => Error::NoDomain {
            domain: DomId(domid),
            remedy: "it was made but does not run: start its frontend",
        },
        Refusal::PortsFull { limit } => Error::Exhausted {
            what: "the table of event channels",
            limit: u64::from(limit),
            remedy: "use fewer queues, or start the host with --ports 131072",
        },
        Refusal::BadPort { domid, port, why } => {
            Error::Event { domain: DomId(domid), port: Port(port), why: why.why() }
        }
        Refusal::Leased { domid, pid } => Error::Os {
            call: format!("reaching the grants of domain {domid}"),
            reason: format!("process {pid} of this domain does"),
            remedy: "one process of a domain maps and copies a peer's grants: stop that one",
        },
        Refusal::Held { domid, pid } => Error::Os {
            call: format!("running domain {domid}"),
            reason: format!("process {pid} runs it"),
            remedy: "stop that process, or use another domain",
        },
        Refusal::Exists { name } => Error::Protocol {
            what: "making a domain",
            found: format!("one of that number with the name {name:?}"),
            expected: "the same name, or another number",
        },
        Refusal::NotPrivileged => Error::Protocol {
            what: "a toolstack's request",
            found: "another domain".to_owned(),
            expected: "domain 0",
        },
        Refusal::Version { host } => Error::Protocol {
            what: "the control protocol",
            found: format!("a host of version {host}"),
            expected: "the version of this program: start the host again from it",
        },
        Refusal::Confused => Error::Protocol {
            what: "a request to the embedded host",
            found: "one that makes no sense now".to_owned(),
            expected: "a request about what this process holds",
        },
        Refusal::Os { call, errno } => Error::Os {
            call: format!("the embedded host: {call}"),
            reason: Errno::from_raw_os_error(errno).to_string(),
            remedy: "raise the host's `ulimit -n`, or free memory",
        },
    }
}

impl From<Refusal> for ConnectError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Held { domid, pid } => Self::Held { domain: DomId(domid), pid },
            other => Self::Platform(refused(other)),
        }
    }
}
