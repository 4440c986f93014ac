//! Capture files as ports.

use std::path::Path;

use grantway_netif::Offload;

use super::{CaptureError, CaptureReader, CaptureWriter};
use crate::{
    clock::Clock,
    port::{
        Counters, DropReason, FrameMeta, Port, PortControl, PortError, PortReport, Probe,
        Readiness, SendError,
    },
};

/// A port that plays a capture file as fast as it is read, and writes another one. Either may be
/// missing.
pub struct PcapPort {
    name: String,
    input: Option<CaptureReader>,
    output: Option<(CaptureWriter, Clock)>,
    counters: Counters,
}

impl PcapPort {
    /// Opens the capture `input`, in the format that its first bytes show. Creates the capture
    /// `output`, in the format of its extension. `clock` returns the time since 1970, for each
    /// written frame.
    ///
    /// # Errors
    /// - The input is no capture of Ethernet frames, or cannot be read.
    /// - The output's extension is neither `.pcap` nor `.pcapng`, or it cannot be written.
    pub fn open(
        input: Option<&Path>,
        output: Option<&Path>,
        clock: Clock,
    ) -> Result<Self, CaptureError> {
        let side = |what: &str, path: &Path| format!("{what}={}", path.display());
        let sides = [input.map(|p| side("in", p)), output.map(|p| side("out", p))];
        let name = format!("pcap:{}", sides.into_iter().flatten().collect::<Vec<_>>().join(","));
        // The input is opened first: if it is missing, an old output must not be lost.
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

    fn readiness(&self) -> Readiness<'_> {
        match self.input {
            Some(_) => Readiness::Now,
            None => Readiness::Idle,
        }
    }
}

impl PortControl for PcapPort {}

impl Probe for PcapPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}
