//! Trace socket of a running backend. A client reads the passing packets as a pcapng, until one of
//! the two ends the connection.
//!
//! The socket is in the run folder. One client is served at a time, by a thread of its own, so that
//! a slow client delays nothing. A client loses the packets that it does not read in time, and the
//! capture has the number of lost packets.

use grantway_backend::{TraceBatch, TraceKind, TraceReader, TraceRecord, TraceRing, VifId};
use grantway_command::control::take_place;
use grantway_command::patience;
use grantway_flows::{Event, Merged};
use grantway_ports::pcap::{Direction, Head, HeadsWriter};
use grantway_ports::wall;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that a record waits before it is written.
const LATENCY: Duration = Duration::from_millis(50);
/// Longest time that a client may read nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most interfaces of one capture. Packets on others are lost.
const INTERFACES_MAX: usize = 4096;

/// The listening end. Dropping it removes the socket's file.
pub struct TraceSocket {
    listener: UnixListener,
    path: PathBuf,
}

/// Extension of the socket's name. The rest of the name is that of the socket for reports.
pub const TRACE: &str = "trace";

impl TraceSocket {
    /// Listens at `path`, in place of a dead process's socket.
    ///
    /// # Errors
    ///
    /// A running process listens there (`AddrInUse`), or the folder cannot be written.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self { listener: take_place(path)?, path: path.to_owned() })
    }

    /// Returns a descriptor that is readable when a client connects.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Starts a thread that serves each client that connects. A client gets nothing while another
    /// is served.
    pub fn serve(&self, listen: impl Fn() -> Option<TraceReader>) {
        while let Ok((client, _)) = self.listener.accept() {
            let Some(reader) = listen() else { continue };
            // If no thread can be had, the client gets nothing either.
            let _ = std::thread::Builder::new()
                .name("trace".into())
                .spawn(move || show(&client, &reader));
        }
    }
}

impl Drop for TraceSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes packets until the client ends the connection.
fn show(client: &UnixStream, reader: &TraceReader) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(patience::answer(PATIENCE)))?;
    let mut show = Show {
        writer: HeadsWriter::new(BufWriter::with_capacity(1 << 16, client))?,
        interfaces: HashMap::new(),
        lost: 0,
    };
    show.writer.flush()?;
    let mut batch = TraceBatch::default();
    while !has_enough(client)? {
        reader.read(&mut batch, LATENCY);
        show.batch(&batch)?;
    }
    reader.read(&mut batch, Duration::ZERO);
    show.batch(&batch)?;
    show.end()
}

/// Returns true if the client closed its end, for good or for writing.
fn has_enough(client: &UnixStream) -> io::Result<bool> {
    let mut polled = [PollFd::new(client, PollFlags::IN)];
    Ok(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

struct Show<'a> {
    writer: HeadsWriter<BufWriter<&'a UnixStream>>,
    interfaces: HashMap<VifId, u32>,
    /// Number of packets and events that were lost since the last written one.
    lost: u64,
}

impl Show<'_> {
    fn batch(&mut self, batch: &TraceBatch) -> io::Result<()> {
        for record in &batch.records {
            self.record(record)?;
        }
        self.lost += batch.lost;
        self.writer.flush()
    }

    /// Writes the number of packets and events that were lost after the last written one.
    fn end(&mut self) -> io::Result<()> {
        if self.lost > 0 && !self.interfaces.is_empty() {
            let lost = std::mem::take(&mut self.lost);
            self.writer.write(&Head {
                time: wall()(),
                interface: 0,
                queue: 0,
                direction: Direction::Outbound,
                bytes: &[],
                length: 0,
                comment: "",
                lost,
            })?;
        }
        self.writer.flush()
    }

    fn record(&mut self, record: &TraceRecord) -> io::Result<()> {
        // A vif's interface is described before its first packet.
        let interface = match self.interfaces.get(&record.vif) {
            Some(&known) => known,
            None if self.interfaces.len() >= INTERFACES_MAX => {
                self.lost += u64::from(record.segments.max(1));
                return Ok(());
            }
            None => {
                let number = self.writer.interface(&record.vif.to_string())?;
                self.interfaces.insert(record.vif, number);
                number
            }
        };
        let comment = match record.kind {
            TraceKind::Packet => {
                Merged::new(record.segments, record.segment_bytes).map(Merged::comment)
            }
            TraceKind::RingFull => Some(Event::RingFull.comment()),
            TraceKind::RingDrained => Some(Event::RingDrained.comment()),
            TraceKind::Woken => Some(Event::Woken.comment()),
        };
        self.writer.write(&Head {
            time: record.time,
            interface,
            queue: record.queue.into(),
            // Directions are those of the backend's interface.
            direction: match record.ring {
                TraceRing::Transmit => Direction::Outbound,
                TraceRing::Receive => Direction::Inbound,
            },
            bytes: record.head(),
            length: record.len,
            comment: &comment.unwrap_or_default(),
            lost: std::mem::take(&mut self.lost),
        })
    }
}
