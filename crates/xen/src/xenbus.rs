//! The kernel's connection to the store, as a stream of messages.
//!
//! `/dev/xen/xenbus` takes each message by one write(2). A refusal of the store comes back as an
//! answer, with two exceptions. A refused watch (a malformed path, a quota) and a message longer
//! than a page are errors of that write. A client would take either for the end of its connection,
//! so here they become the answers that xenstored's socket would have given.

use grantway_hypervisor::StoreErrno;
use grantway_xenstore::wire::{HEADER_LEN, Header, MessageType, encode};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The device, and the answers that are made in its place.
#[derive(Debug)]
pub struct Xenbus<D = File> {
    device: D,
    /// Descriptor that is readable while `device` or `wake` is.
    ready: OwnedFd,
    /// Descriptor that is readable while `answers` is not empty.
    wake: OwnedFd,
    answers: Vec<u8>,
    /// True if the last read may have ended within a message.
    within: bool,
}

impl Xenbus {
    /// Opens the device.
    pub fn open(path: &Path) -> Result<Self> {
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        Self::over(File::options().read(true).write(true).custom_flags(nonblock).open(path)?)
    }
}

impl<D: Read + Write + AsFd> Xenbus<D> {
    /// Makes a connection of an open device, which does not block.
    fn over(device: D) -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (fd, data) in [(device.as_fd(), 0), (wake.as_fd(), 1)] {
            epoll::add(&ready, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN)?;
        }
        Ok(Self { device, ready, wake, answers: Vec::new(), within: false })
    }

    /// Answers a message in place of the store, if the store has a name for the error.
    fn answer(&mut self, message: &[u8], errno: Errno) -> Option<()> {
        let name = name(errno)?;
        let header = Header::from_bytes(message.first_chunk::<HEADER_LEN>()?);
        let kind = MessageType::Error.number();
        let answer =
            encode(kind, header.req_id, header.tx_id, &[name.as_str().as_bytes(), b"\0"]).ok()?;
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok()?;
        self.answers.extend(answer);
        Some(())
    }

    fn take(&mut self, bytes: &mut [u8]) -> usize {
        let count = bytes.len().min(self.answers.len());
        for (to, from) in bytes.iter_mut().zip(self.answers.drain(..count)) {
            *to = from;
        }
        if self.answers.is_empty() {
            // The descriptor does not block, and its value does not matter.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        count
    }
}

/// Returns the store's name of a kernel's error, if there is one.
fn name(errno: Errno) -> Option<StoreErrno> {
    Some(match errno {
        Errno::INVAL => StoreErrno::Einval,
        Errno::ACCESS => StoreErrno::Eacces,
        Errno::EXIST => StoreErrno::Eexist,
        Errno::NOENT => StoreErrno::Enoent,
        Errno::NOMEM => StoreErrno::Enomem,
        Errno::NOSPC => StoreErrno::Enospc,
        Errno::TOOBIG => StoreErrno::E2big,
        Errno::PERM => StoreErrno::Eperm,
        Errno::BUSY => StoreErrno::Ebusy,
        _ => return None,
    })
}

impl<D: Read + Write + AsFd> Read for Xenbus<D> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        if !self.answers.is_empty() && !self.within {
            return Ok(self.take(bytes));
        }
        // The driver fills a buffer as far as it can, so a buffer that is not full ends with a
        // message.
        match self.device.read(bytes) {
            Ok(count) => {
                self.within = count == bytes.len();
                Ok(count)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.within = false;
                if self.answers.is_empty() { Err(e) } else { Ok(self.take(bytes)) }
            }
            Err(e) => Err(e),
        }
    }
}

impl<D: Read + Write + AsFd> Write for Xenbus<D> {
    /// Takes one whole message.
    fn write(&mut self, message: &[u8]) -> Result<usize> {
        self.device.write(message).or_else(|e| {
            let errno = match Errno::from_io_error(&e) {
                // The driver gives this error for a message longer than its page.
                Some(Errno::INVAL) if message.len() > 4096 => Some(Errno::TOOBIG),
                errno => errno,
            };
            match errno.and_then(|errno| self.answer(message, errno)) {
                Some(()) => Ok(message.len()),
                None => Err(e),
            }
        })
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<D> AsFd for Xenbus<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_hypervisor::{Error, FrontendStore, StoreOps};
    use grantway_xenstore::Client;
    use std::os::unix::net::UnixStream;

    /// A device that refuses its first messages, and answers further messages itself.
    #[derive(Debug)]
    struct Driver {
        refusals: Vec<Errno>,
        ours: UnixStream,
        store: UnixStream,
    }

    impl Driver {
        fn refusing(refusals: &[Errno]) -> Xenbus<Self> {
            let (ours, store) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            Xenbus::over(Self { refusals: refusals.to_vec(), ours, store }).unwrap()
        }
    }

    impl Read for Driver {
        fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
            self.ours.read(bytes)
        }
    }

    impl Write for Driver {
        fn write(&mut self, message: &[u8]) -> Result<usize> {
            if !self.refusals.is_empty() {
                return Err(self.refusals.remove(0).into());
            }
            let header = Header::from_bytes(message.first_chunk().unwrap());
            let answer = encode(header.kind, header.req_id, 0, &[b"value"]).unwrap();
            self.store.write_all(&answer)?;
            Ok(message.len())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    impl AsFd for Driver {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.ours.as_fd()
        }
    }

    fn errno<T>(result: std::result::Result<T, Error>) -> Option<StoreErrno> {
        match result {
            Err(Error::Store { errno, .. }) => Some(errno),
            _ => None,
        }
    }

    #[test]
    fn a_refused_watch_ends_no_connection() {
        let mut client = Client::over(Driver::refusing(&[Errno::NOSPC, Errno::INVAL]));
        assert_eq!(errno(client.watch("a", "t")), Some(StoreErrno::Enospc));
        assert_eq!(errno(client.watch("/a b", "t")), Some(StoreErrno::Einval));
        assert_eq!(client.read("a"), Ok(b"value".to_vec()));
        assert_eq!(client.next_event(), Ok(None));
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let mut client = Client::over(Driver::refusing(&[Errno::INVAL]));
        assert_eq!(errno(client.write("a", &[0; 4090])), Some(StoreErrno::E2big));
        assert_eq!(client.read("a"), Ok(b"value".to_vec()));
    }

    #[test]
    fn an_error_that_is_no_refusal_ends_the_connection() {
        let mut client = Client::over(Driver::refusing(&[Errno::PIPE]));
        assert!(matches!(client.read("a"), Err(Error::Gone { .. })));
    }

    #[test]
    fn an_answer_of_ours_never_lands_within_another() {
        let mut xenbus = Driver::refusing(&[]);
        let event = encode(15, 0, 0, &[&[b'x'; 30]]).unwrap();
        (&xenbus.device.store).write_all(&event).unwrap();
        let mut bytes = [0; 20];
        assert_eq!(xenbus.read(&mut bytes).unwrap(), 20);
        let message = encode(4, 77, 0, &[b"a\0t\0"]).unwrap();
        xenbus.answer(&message, Errno::EXIST).unwrap();
        // The buffer is full again, then come the rest and, only after it, our answer.
        assert_eq!(xenbus.read(&mut bytes).unwrap(), 20);
        assert_eq!(xenbus.read(&mut bytes).unwrap(), 6);
        let mut answer = [0; 64];
        let count = xenbus.read(&mut answer).unwrap();
        assert_eq!(answer[..count], encode(16, 77, 0, &[b"EEXIST\0"]).unwrap());
        assert_eq!(xenbus.read(&mut answer).unwrap_err().kind(), ErrorKind::WouldBlock);
        // A message that ends with the buffer has no rest.
        (&xenbus.device.store).write_all(&event).unwrap();
        assert_eq!(xenbus.read(&mut [0; 46]).unwrap(), 46);
        xenbus.answer(&message, Errno::EXIST).unwrap();
        assert_eq!(xenbus.read(&mut answer).unwrap(), count);
    }
}
