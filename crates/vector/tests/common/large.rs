//! A port that wants large frames.

use grantway_netif::{Checksum, Offload};
use grantway_ports::finish::{SegmentChecksum, Segments, finish_checksum};
use grantway_ports::{
    Counters, FrameMeta, FramePlace, Port, PortCaps, PortControl, PortError, PortReport, Probe,
    Readiness, SendError, SentBurst,
};
use grantway_vector::Merger;

/// A port that wants large frames, and keeps what it is sent.
#[derive(Default)]
pub struct Large {
    udp: bool,
    kept: Vec<(Vec<u8>, Offload)>,
    counters: Counters,
}

impl Port for Large {
    fn send(&mut self, frame: &[u8], offload: Offload) -> Result<(), SendError> {
        self.kept.push((frame.to_vec(), offload));
        Ok(())
    }

    fn recv(&mut self, _: &mut [u8]) -> Result<Option<FrameMeta>, PortError> {
        Ok(None)
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::Idle
    }

    fn caps(&self) -> PortCaps {
        PortCaps { wants_merged: true, wants_merged_udp: self.udp, ..PortCaps::default() }
    }
}

impl PortControl for Large {}

impl Probe for Large {
    fn name(&self) -> &str {
        "large"
    }

    fn report(&self) -> PortReport {
        PortReport::new(self.name(), &self.counters)
    }
}

/// Returns the frames that a port is given of a burst, and the counts. The port may want UDP merged,
/// too.
pub fn merged(frames: &[(Vec<u8>, Offload)], udp: bool) -> (Vec<(Vec<u8>, Offload)>, SentBurst) {
    let mut arena = Vec::new();
    let mut places = Vec::new();
    for (bytes, offload) in frames {
        let meta = FrameMeta { len: bytes.len(), offload: *offload };
        places.push(FramePlace { at: arena.len(), meta });
        arena.extend(bytes);
        arena.resize(arena.len().next_multiple_of(64), 0xee);
    }
    let mut port = Large { udp, ..Large::default() };
    let sent = Merger::new(|| 0).send_burst(&mut port, &mut arena, &places).unwrap();
    (port.kept, sent)
}

/// Returns the frames that a wire carries of a frame.
pub fn on_the_wire((frame, offload): &(Vec<u8>, Offload)) -> Vec<Vec<u8>> {
    let Some(gso) = offload.gso else {
        let mut frame = frame.clone();
        if offload.checksum == Checksum::Partial {
            finish_checksum(&mut frame).unwrap();
        }
        return vec![frame];
    };
    let mut segments = Segments::new(frame, gso, SegmentChecksum::Whole).unwrap();
    let mut room = vec![0; segments.longest()];
    let mut wire = Vec::new();
    while let Some(meta) = segments.next_into(&mut room).unwrap() {
        wire.push(room[..meta.len].to_vec());
    }
    wire
}
