//! Capture files as ports.

use std::{os::fd::BorrowedFd, path::Path};

use grantway_netif::Offload;

use super::{CaptureError, CaptureReader, CaptureWriter};
use crate::{
    clock::Clock,
    port::{Counters, DropReason, FrameMeta, Port, PortError, SendError},
};

/// Plays a capture file, as fast as it is asked; takes no frames.
#[derive(Debug)]
pub struct PcapInput {
    inner: PcapPort,
}

/// Writes every frame to a capture file; has none to give.
#[derive(Debug)]
pub struct PcapOutput {
    inner: PcapPort,
}

/// Plays one capture file and writes another, either of which may be absent.
pub struct PcapPort {
    name: String,
    input: Option<CaptureReader>,
    output: Option<(CaptureWriter, Clock)>,
    counters: Counters,
}

impl PcapInput {
    /// Opens a capture; its first bytes say which format it is.
    ///
    /// # Errors
    /// The file is no capture of Ethernet frames, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let name = format!("pcap:in={}", path.display());
        let input = Some(CaptureReader::open(path)?);
        let inner = PcapPort { name, input, output: None, counters: Counters::default() };
        Ok(PcapInput { inner })
    }

    /// Whether the file was played to its end.
    #[must_use]
    pub fn finished(&self) -> bool {
        !self.inner.always_ready()
    }
}

impl PcapOutput {
    /// Creates a capture in the format of its extension; `clock` gives the
    /// time of each frame since 1970.
    ///
    /// # Errors
    /// The extension is neither `.pcap` nor `.pcapng`, or the file cannot be
    /// written.
    pub fn create(path: &Path, clock: Clock) -> Result<Self, CaptureError> {
        let name = format!("pcap:out={}", path.display());
        let output = Some((CaptureWriter::create(path)?, clock));
        let inner = PcapPort { name, input: None, output, counters: Counters::default() };
        Ok(PcapOutput { inner })
    }
}

impl PcapPort {
    /// Plays `input` and writes `output`.
    ///
    /// # Errors
    /// As [`PcapInput::open`] and [`PcapOutput::create`].
    pub fn open(
        input: Option<&Path>,
        output: Option<&Path>,
        clock: Clock,
    ) -> Result<Self, CaptureError> {
        let side = |what: &str, path: &Path| format!("{what}={}", path.display());
        let sides = [input.map(|p| side("in", p)), output.map(|p| side("out", p))];
        let name = format!("pcap:{}", sides.into_iter().flatten().collect::<Vec<_>>().join(","));
        // The input first: a missing one must not cost an old output.
        let input = input.map(CaptureReader::open).transpose()?;
        let output = output.map(CaptureWriter::create).transpose()?;
        let output = output.map(|writer| (writer, clock));
        Ok(PcapPort { name, input, output, counters: Counters::default() })
    }
}

impl std::fmt::Debug for PcapPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapPort").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Port for PcapPort {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        let Some((writer, clock)) = &mut self.output else {
            return Err(self.counters.refuse(DropReason::ReceiveOnly));
        };
        if frame.len() > super::SNAPLEN as usize {
            return Err(self.counters.refuse(DropReason::TooLong));
        }
        let finished = writer.write(clock(), frame, offload, None).map_err(PortError::from)?;
        self.counters.checksummed += u64::from(finished);
        self.counters.count_sent(frame.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        match &mut self.output {
            Some((writer, _)) => Ok(writer.flush()?),
            None => Ok(()),
        }
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        while let Some(reader) = &mut self.input {
            let Some(frame) = reader.next_frame()? else {
                self.input = None;
                break;
            };
            let len = frame.len();
            let Some(room) = buf.get_mut(..len) else {
                self.counters.drop_one(DropReason::TooLong);
                continue;
            };
            room.copy_from_slice(frame);
            self.counters.count_received(len);
            return Ok(Some(FrameMeta { len, offload: Offload::default() }));
        }
        Ok(None)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn always_ready(&self) -> bool {
        self.input.is_some()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

macro_rules! delegate {
    ($port:ty) => {
        impl Port for $port {
            fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
                self.inner.send(frame, offload)
            }

            fn flush(&mut self) -> Result<(), PortError> {
                self.inner.flush()
            }

            fn recv(&mut self, buf: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
                self.inner.recv(buf)
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
        }
    };
}

delegate!(PcapInput);
delegate!(PcapOutput);
