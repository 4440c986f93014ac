//! A set of event channels: the ports of one waiter behind one descriptor.
//!
//! The driver masks a port when it fires, and puts it into a buffer. This set counts the signal and
//! unmasks the port at once. A later signal fires again, so no signal after a look at the counter
//! is lost.

use crate::counts::Counts;
use crate::device::os_error;
use crate::sys::{Evtchn, FIRED_BYTES};
use grantway_hypervisor::{Counters, DomId, Error, EventChannels, FrontendEvents, Port};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A set of event channels.
#[derive(Debug)]
pub struct EventSet {
    domain: DomId,
    evtchn: Evtchn,
    counts: Counts,
    counters: Arc<Counters>,
    buffer: Box<[u8]>,
}

impl EventSet {
    /// Makes a set without ports.
    pub fn new(domain: DomId, evtchn: Evtchn, counters: &Arc<Counters>) -> Self {
        Self {
            domain,
            evtchn,
            counts: Counts::default(),
            counters: Arc::clone(counters),
            buffer: vec![0; FIRED_BYTES].into_boxed_slice(),
        }
    }

    fn full(&self) -> Error {
        Error::Exhausted {
            what: "the domain's table of event channels (ports of this worker counted)",
            limit: self.counts.len() as u64,
            remedy: "use fewer queues, or give the domain max_event_channels=N in xl's configuration",
        }
    }

    fn not_ours(&self, port: Port) -> Error {
        let why = "found no port of this set of event channels with this number, expected one of its ports";
        Error::Event { domain: self.domain, port, why }
    }

    /// Moves signals that fired into the counters. Afterwards the descriptor is not readable,
    /// unless more signals came meanwhile.
    fn take(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        loop {
            let bytes = match self.evtchn.fired(&mut self.buffer) {
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::FBIG) => {
                    self.evtchn.reset().map_err(|errno| failed("reset", errno))?;
                    let all = self.counts.take_all(fired);
                    return unmask(&self.evtchn, &all);
                }
                Err(errno) => return Err(failed("read", errno)),
            };
            let ports = self.buffer.get(..bytes).unwrap_or_default();
            self.counts.take(ports, fired);
            unmask(&self.evtchn, ports)?;
            if bytes < self.buffer.len() {
                return Ok(());
            }
        }
    }

    /// Blocks until a port fires or the time is over.
    fn sleep(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let timeout = timeout.map(|left| Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = [PollFd::new(&self.evtchn, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(failed("poll", errno)),
        }
    }
}

fn unmask(evtchn: &Evtchn, mut ports: &[u8]) -> Result<(), Error> {
    while !ports.is_empty() {
        let part = ports.get(..FIRED_BYTES).unwrap_or(ports);
        match evtchn.unmask(part) {
            Ok(taken @ 1..) => ports = ports.get(taken..).unwrap_or_default(),
            Ok(0) => return Err(failed("write", Errno::IO)),
            Err(errno) => return Err(failed("write", errno)),
        }
    }
    Ok(())
}

fn failed(call: &str, errno: Errno) -> Error {
    os_error(format!("{call} of evtchn"), errno)
}

impl FrontendEvents for EventSet {
    fn alloc_unbound(&mut self, remote: DomId) -> Result<Port, Error> {
        let port = self.evtchn.bind_unbound(remote.0).map_err(|errno| match errno {
            Errno::NOSPC => self.full(),
            Errno::SRCH => no_domain(remote),
            errno => failed("bind (unbound)", errno),
        })?;
        self.counts.open(Port(port));
        Ok(Port(port))
    }

    fn close(&mut self, port: Port) {
        if self.counts.close(port) {
            // The port is ours, so this succeeds; if it were not ours, it would be closed already.
            let _ = self.evtchn.unbind(port.0);
        }
    }

    #[inline]
    fn notify(&mut self, port: Port) -> Result<(), Error> {
        match self.evtchn.notify(port.0) {
            Ok(()) => {
                Counters::add(&self.counters.notifies, 1);
                Ok(())
            }
            Err(Errno::NOTCONN | Errno::INVAL) => Err(self.not_ours(port)),
            Err(errno) => Err(failed("notify", errno)),
        }
    }

    fn poll(&mut self, fired: &mut dyn FnMut(Port)) -> Result<(), Error> {
        self.take(fired)
    }

    fn woken(&mut self) {
        Counters::add(&self.counters.wakeups, 1);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl AsFd for EventSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.evtchn.as_fd()
    }
}

impl EventChannels for EventSet {
    fn bind_interdomain(&mut self, remote: DomId, port: Port) -> Result<Port, Error> {
        let ours = self.evtchn.bind_interdomain(remote.0, port.0).map_err(|errno| match errno {
            Errno::INVAL => Error::Event {
                domain: remote,
                port,
                why: "found it bound, or made for another domain; expected an unbound port made for this domain",
            },
            Errno::NOSPC => self.full(),
            Errno::SRCH => no_domain(remote),
            errno => failed("bind (interdomain)", errno),
        })?;
        self.counts.open(Port(ours));
        Ok(Port(ours))
    }

    fn count(&mut self, port: Port) -> u64 {
        // An error is returned by the next wait.
        let _ = self.take(&mut |_| {});
        self.counts.seen(port)
    }

    fn wait(&mut self, port: Port, seen: u64, timeout: Option<Duration>) -> Result<u64, Error> {
        // `None` also stands for an end that is beyond the range of the clock.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut slept = false;
        loop {
            self.take(&mut |_| {})?;
            let count = self.counts.seen(port);
            if count > seen {
                if slept {
                    Counters::add(&self.counters.wakeups, 1);
                }
                return Ok(count);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(count);
            }
            self.sleep(left)?;
            slept = true;
        }
    }
}

fn no_domain(domain: DomId) -> Error {
    Error::NoDomain { domain, remedy: "look at `xl list`: it ended, or never existed" }
}

#[cfg(test)]
mod tests;
