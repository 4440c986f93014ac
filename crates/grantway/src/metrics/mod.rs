//! `grantway backend --metrics ADDR` serves the report of a backend to Prometheus.
//!
//! A thread of its own serves the clients ([`http`]): a few at a time, each for a limited time. The
//! thread asks the control thread for a report at most once per second, however often clients ask.
//! [`text`] writes the report. Workers only do the work of a report.

mod http;
mod text;

#[cfg(test)]
pub use text::render;

use grantway_command::error::CommandError;
use grantway_command::patience;
use grantway_command::wait::Bell;
use http::{Client, Refusal, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Most clients at a time. A further client replaces the oldest one.
const CLIENTS_MAX: usize = 16;
/// Greatest age of an answer.
const FRESH: Duration = Duration::from_secs(1);
/// Time for the control thread to make a report.
const REPORT_WITHIN: Duration = Duration::from_secs(2);
/// Time for which no client is accepted after the system refused a descriptor.
const BREATH: Duration = Duration::from_millis(100);

/// The control thread's end of the exporter.
pub struct Metrics {
    bell: Bell,
    wanted: Receiver<()>,
    reports: Sender<Value>,
}

impl Metrics {
    /// Returns a listener at an address.
    ///
    /// # Errors
    ///
    /// The address cannot be used.
    pub fn listen(address: SocketAddr) -> Result<TcpListener, CommandError> {
        let failed = |e: std::io::Error| {
            CommandError::Failed(format!(
                "--metrics {address}: {e}; expected an address of this machine and a free port"
            ))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(listener)
    }

    /// Serves from a thread of its own until the process ends. The thread has the rights of the
    /// calling thread.
    ///
    /// # Errors
    ///
    /// The system has no descriptor or no thread left.
    pub fn start(listener: TcpListener) -> Result<Self, CommandError> {
        let failed = |e: std::io::Error| CommandError::Failed(format!("--metrics: {e}"));
        let at = listener.local_addr().map_err(failed)?;
        let (bell, (ask, wanted), (reports, answers)) = (Bell::new()?, channel(), channel());
        let exporter = Exporter { listener, bell: bell.clone(), ask, answers, text: None };
        let thread = std::thread::Builder::new().name("metrics".into());
        thread.spawn(move || exporter.run()).map_err(failed)?;
        tracing::info!("metrics: http://{at}/metrics");
        Ok(Self { bell, wanted, reports })
    }

    /// Returns a descriptor that is readable when a report is wanted.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.descriptor()
    }

    /// Makes a report if one is wanted.
    pub fn serve(&self, report: impl FnOnce() -> Value) {
        self.bell.hush();
        if self.wanted.try_recv().is_ok() {
            // The thread lives as long as the process, so sending does not fail.
            let _ = self.reports.send(report());
        }
    }
}

/// The thread's end of the exporter.
struct Exporter {
    listener: TcpListener,
    bell: Bell,
    ask: Sender<()>,
    answers: Receiver<Value>,
    /// The last answer, and its time.
    text: Option<(Instant, String)>,
}

impl Exporter {
    fn run(mut self) {
        let mut clients: Vec<Client> = Vec::new();
        loop {
            self.wait(&clients);
            let now = Instant::now();
            clients.retain_mut(|client| {
                let mut step = client.step();
                if step == Step::Asks {
                    step = match self.text(now) {
                        Some(text) => client.give(text),
                        None => client.refuse(Refusal::Unavailable),
                    };
                }
                step != Step::Done && now < client.deadline()
            });
            self.accept(&mut clients, now);
        }
    }

    /// Waits until a client connects, can continue, or has used up its time.
    fn wait(&self, clients: &[Client]) {
        let mut polled = vec![PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        polled.extend(clients.iter().map(|client| {
            let (socket, writes) = client.interest();
            let flags = if writes { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(socket, flags)
        }));
        let first = clients.iter().map(Client::deadline).min();
        let timeout = first.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            // A deadline is some seconds away, so the cast is exact.
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        // An error of a socket shows in that client's next step.
        let _ = poll(&mut polled, timeout.as_ref());
    }

    fn accept(&self, clients: &mut Vec<Client>, now: Instant) {
        for _ in 0..CLIENTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if clients.len() == CLIENTS_MAX {
                        clients.remove(0);
                    }
                    if stream.set_nonblocking(true).is_ok() {
                        clients.push(Client::new(stream, now));
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => return std::thread::sleep(BREATH),
            }
        }
    }

    /// Returns the metrics, at most [`FRESH`] old. Returns `None` if the control thread makes no
    /// report in time.
    fn text(&mut self, now: Instant) -> Option<&str> {
        let fresh = self.text.as_ref().is_some_and(|&(at, _)| now.duration_since(at) < FRESH);
        if !fresh {
            // A report that came too late for an earlier question is thrown away.
            while self.answers.try_recv().is_ok() {}
            self.ask.send(()).ok()?;
            self.bell.ring();
            let report = self.answers.recv_timeout(patience::answer(REPORT_WITHIN)).ok()?;
            self.text = Some((Instant::now(), text::render(&report)));
        }
        self.text.as_ref().map(|(_, text)| text.as_str())
    }
}
