//! A port that wraps a port and keeps a copy of what passes.

use std::{os::fd::BorrowedFd, path::Path};

use grantway_netif::Offload;

use crate::{
    clock::Clock,
    pcap::{CaptureError, CaptureWriter, Direction},
    port::{CheckReport, Counters, FrameMeta, Port, PortError, SendError},
    tap::TapOffloads,
};

/// Passes everything to the port inside and writes the frames of both
/// directions to a capture file; a pcapng also says which way each went.
///
/// Only frames that the inner port took are written. A capture that can no
/// longer be written ends; the port goes on, and
/// [`capture_error`](Mirror::capture_error) tells.
pub struct Mirror<P> {
    inner: P,
    capture: Option<CaptureWriter>,
    error: Option<CaptureError>,
    clock: Clock,
}

impl<P: Port> Mirror<P> {
    /// Wraps `inner`; `clock` gives the time of each frame since 1970.
    ///
    /// # Errors
    /// The extension is neither `.pcap` nor `.pcapng`, or the file cannot be
    /// written.
    pub fn new(inner: P, path: &Path, clock: Clock) -> Result<Self, CaptureError> {
        let capture = Some(CaptureWriter::create(path)?);
        Ok(Mirror { inner, capture, error: None, clock })
    }

    /// Why the capture ended before the port did.
    #[must_use]
    pub fn capture_error(&self) -> Option<&CaptureError> {
        self.error.as_ref()
    }

    /// The port inside; the capture is written out.
    pub fn into_inner(self) -> P {
        self.inner
    }

    fn record(&mut self, frame: &[u8], offload: Offload, direction: Direction) {
        let Some(writer) = &mut self.capture else {
            return;
        };
        let written = writer.write((self.clock)(), frame, offload, Some(direction));
        self.note(written.map(drop));
    }

    fn note(&mut self, result: Result<(), CaptureError>) {
        if let Err(error) = result {
            self.capture = None;
            self.error = Some(error);
        }
    }
}

impl<P: Port> Port for Mirror<P> {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.inner.send(frame, offload)?;
        self.record(frame, offload, Direction::Outbound);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if let Some(writer) = &mut self.capture {
            let flushed = writer.flush();
            self.note(flushed);
        }
        self.inner.flush()
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        let received = self.inner.recv(buf)?;
        if let Some(meta) = received {
            self.record(&buf[..meta.len], meta.offload, Direction::Inbound);
        }
        Ok(received)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn always_ready(&self) -> bool {
        self.inner.always_ready()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }

    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        self.inner.set_link(up)
    }

    fn remove(&mut self) -> Result<(), PortError> {
        self.inner.remove()
    }

    fn interface(&self) -> Option<u32> {
        self.inner.interface()
    }

    fn checked(&self) -> Option<CheckReport> {
        self.inner.checked()
    }

    fn latency(&self) -> Vec<(u64, u64)> {
        self.inner.latency()
    }

    fn set_offloads(&mut self, offloads: TapOffloads) -> Result<(), PortError> {
        self.inner.set_offloads(offloads)
    }
}
