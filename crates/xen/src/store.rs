//! The place of the store, and the number that it gives to this domain.

use crate::device::refused;
use crate::open::OpenError;
use crate::xenbus::Xenbus;
use grantway_hypervisor::{DomId, Error, Store};
use grantway_xenstore::wire::{Decoder, MessageType, encode};
use grantway_xenstore::{Client, permission};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Advice if there is no store.
pub const START: &str = "in domain 0 start xenstored; in a guest look for xenbus in dmesg";

/// Time limit for an answer of a store that is a device. Its answers come from another domain, and
/// never come if xenstored does not run.
const PATIENCE: Duration = Duration::from_secs(5);

/// The place of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAt {
    /// xenstored's socket, in its own domain.
    Socket(PathBuf),
    /// The kernel's connection.
    Device(PathBuf),
}

impl StoreAt {
    /// Returns the first of `sockets` that exists, or else the device.
    pub fn find(sockets: &[PathBuf], device: PathBuf) -> Self {
        match sockets.iter().find(|socket| socket.exists()) {
            Some(socket) => Self::Socket(socket.clone()),
            None => Self::Device(device),
        }
    }

    /// Makes a new connection.
    pub fn connect(&self) -> Result<Box<dyn Store>, Error> {
        self.connected(false)
    }

    /// Returns a connection that waits while this domain has as many transactions as it may have.
    pub fn connect_patiently(&self) -> Result<Box<dyn Store>, Error> {
        self.connected(true)
    }

    fn connected(&self, patient: bool) -> Result<Box<dyn Store>, Error> {
        Ok(match self {
            Self::Socket(socket) => boxed(Client::connect(socket)?, patient),
            Self::Device(device) => {
                let bus = Xenbus::open(device).map_err(|e| unopened(device, &e))?;
                boxed(Client::over(bus), patient)
            }
        })
    }

    /// Returns the number of this domain, by the store; `None` if the store does not have it. Only
    /// domain 0 has xenstored's socket.
    pub fn own_domain(&self) -> Result<Option<DomId>, OpenError> {
        match self {
            Self::Socket(socket) => match UnixStream::connect(socket) {
                Ok(_) => Ok(Some(DomId::ZERO)),
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    Err(OpenError::StoreDead { socket: socket.clone() })
                }
                Err(_) => Client::connect(socket).map(|_| Some(DomId::ZERO)).map_err(Into::into),
            },
            Self::Device(device) => {
                let mut file = File::options().read(true).write(true).open(device);
                let file = file.as_mut().map_err(|e| unopened(device, e))?;
                ask(file, PATIENCE).map_err(|silence| silence.into_error(device))
            }
        }
    }
}

fn unopened(device: &Path, e: &std::io::Error) -> Error {
    refused(device, Errno::from_io_error(e).unwrap_or(Errno::IO), START)
}

/// Reason for which the store did not give our number.
#[derive(Debug)]
enum Silence {
    /// The store does not answer.
    Quiet,
    /// The store's answer is no number of a domain.
    Confused(String),
    /// The store cannot be reached.
    Broken(std::io::Error),
}

impl Silence {
    fn into_error(self, device: &Path) -> OpenError {
        match self {
            Self::Quiet => {
                OpenError::StoreSilent { device: device.to_owned(), seconds: PATIENCE.as_secs() }
            }
            Self::Confused(found) => OpenError::Platform(Error::Protocol {
                what: "this domain's number in xenstore (domid)",
                found,
                expected: "0 to 32751",
            }),
            Self::Broken(e) => OpenError::Platform(Error::Os {
                call: format!("asking {}", device.display()),
                reason: e.to_string(),
                remedy: START,
            }),
        }
    }
}

/// Reads `domid`, which every toolstack writes into a domain's own folder. Returns `None` if the
/// store refuses.
fn ask(
    transport: &mut (impl Read + Write + AsFd),
    patience: Duration,
) -> Result<Option<DomId>, Silence> {
    let question = encode(MessageType::Read.number(), 1, 0, &[b"domid\0"])
        .map_err(|e| Silence::Confused(e.to_string()))?;
    transport.write_all(&question).map_err(Silence::Broken)?;
    // Events may come before the answer, and the answer may come in parts.
    let end = Instant::now() + patience;
    let (mut decoder, mut chunk) = (Decoder::new(), [0; 4096]);
    loop {
        while let Some(message) =
            decoder.next_message().map_err(|e| Silence::Confused(e.to_string()))?
        {
            let kind = message.header.kind;
            if kind == MessageType::Error.number() {
                return Ok(None);
            }
            if kind == MessageType::Read.number() {
                return match permission::domain(&message.payload) {
                    Some(domain) if domain.0 < DomId::FIRST_RESERVED => Ok(Some(domain)),
                    _ => Err(Silence::Confused(message.payload.escape_ascii().to_string())),
                };
            }
        }
        // A silent store is an error once the time is over.
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(transport, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&left)) {
            Ok(0) => return Err(Silence::Quiet),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(Silence::Broken(e.into())),
        }
        match transport.read(&mut chunk) {
            Ok(0) => return Err(Silence::Broken(ErrorKind::UnexpectedEof.into())),
            Ok(n) => decoder.push(chunk.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Silence::Broken(e)),
        }
    }
}

fn boxed<T>(client: Client<T>, patient: bool) -> Box<dyn Store>
where
    Client<T>: Store + 'static,
    T: grantway_xenstore::Transport,
{
    Box::new(if patient { client.patient() } else { client })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(messages: &[(MessageType, &[u8])]) -> Result<Option<DomId>, Silence> {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        for (kind, payload) in messages {
            theirs.write_all(&encode(kind.number(), 1, 0, &[payload]).unwrap()).unwrap();
        }
        let answer = ask(&mut ours, Duration::from_millis(20));
        let mut question = [0; 22];
        theirs.read_exact(&mut question).unwrap();
        assert_eq!(question[16..], *b"domid\0");
        answer
    }

    #[test]
    fn the_store_says_who_we_are() {
        let event = (MessageType::WatchEvent, &b"a\0b\0"[..]);
        assert_eq!(answered(&[event, (MessageType::Read, b"17")]).unwrap(), Some(DomId(17)));
        assert_eq!(answered(&[(MessageType::Error, b"ENOENT\0")]).unwrap(), None);
    }

    #[test]
    fn the_store_may_say_nothing_or_nonsense() {
        let text = |silence: Silence| silence.into_error(Path::new("/dev/xen/xenbus")).to_string();
        let quiet = text(answered(&[]).unwrap_err());
        assert_eq!(
            quiet,
            "no answer from /dev/xen/xenbus in 5 s: xenstored does not run; start it in domain 0"
        );
        for nonsense in [&b"x"[..], b"", b"32752", b"-1", b"0\0"] {
            let error = answered(&[(MessageType::Read, nonsense)]).unwrap_err();
            assert!(text(error).contains("expected 0 to 32751"));
        }
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(text(ask(&mut ours, PATIENCE).unwrap_err()).contains("start xenstored"));
    }
}
