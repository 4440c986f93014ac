//! Mirror of frames into a capture.

use crate::node::{Context, Edge, Node, Out};
use crate::report::Report;
use crate::set::Set;
use grantway_ports::Clock;
use grantway_ports::pcap::{CaptureError, CaptureWriter};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// A capture, to which the graphs of all workers write.
pub type SharedCapture<W> = Arc<Mutex<CaptureWriter<W>>>;

/// Copies the private bytes of frames to a capture, and lets the frames go on. A capture that can
/// no longer be written ends; the frames go on. Without a capture they only pass.
pub struct Mirror<W: Write> {
    capture: Option<SharedCapture<W>>,
    clock: Clock,
    error: Option<CaptureError>,
    written: u64,
}

impl<W: Write + Send> Mirror<W> {
    /// All frames.
    pub const ON: Edge = Edge(0);

    /// Makes a node that writes to a capture. The clock gives the time since 1970.
    #[must_use]
    pub fn new(capture: Option<SharedCapture<W>>, clock: Clock) -> Self {
        Self { capture, clock, error: None, written: 0 }
    }
}

impl<W: Write + Send> Node for Mirror<W> {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn process(&mut self, list: &Set, context: &mut Context<'_>, out: &mut Out) {
        out.all(Self::ON, list);
        let Some(capture) = &self.capture else { return };
        let time = (self.clock)();
        let mut write = || {
            let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
            for number in list {
                let frame = context.batch.frame(number);
                capture.write(time, frame.bytes(context.arena), frame.offload, None)?;
                self.written += 1;
            }
            capture.flush()
        };
        if let Err(error) = write() {
            self.error = Some(error);
            self.capture = None;
        }
    }

    fn report(&self, report: &mut Report) {
        report.mirrored = self.written;
        report.mirror_error = self.error.as_ref().map(ToString::to_string);
    }
}
