//! Target: a file that claims to be a capture, and the flows in it.

use super::flows::check;
use grantway_flows::{Event, Flows, Limits, Packet, Ring};
use grantway_ports::CaptureError;
use grantway_ports::pcap::CaptureReader;
use std::path::Path;

pub(super) fn run(data: &[u8]) {
    let mut flows = Flows::new(Limits { flows: 4, points: 64, stalls: 2, stall: 1000 });
    let mut frames = 0;
    let ended = follow(data, &mut flows, &mut frames);
    assert!(frames <= data.len());
    let length = data.len() as u64;
    match ended {
        Ok(()) => {}
        Err(CaptureError::Truncated { offset, expected, found, .. }) => {
            assert!(offset + found == length && found < expected);
        }
        Err(CaptureError::Magic { found, .. }) => assert!(data.starts_with(&found)),
        Err(
            CaptureError::Malformed { offset, .. }
            | CaptureError::LinkType { offset, .. }
            | CaptureError::RecordTooLong { offset, .. },
        ) => assert!(offset < length),
        Err(other) => panic!("{other}"),
    }
    check(&flows);
    // A reader of frames alone gets at least as many bytes.
    let mut alone = 0;
    if let Ok(mut reader) = CaptureReader::new(data, Path::new("x")) {
        while let Ok(Some(frame)) = reader.next_frame() {
            alone += frame.len();
        }
    }
    assert!(alone >= frames);
}

fn follow(data: &[u8], flows: &mut Flows, frames: &mut usize) -> Result<(), CaptureError> {
    let mut reader = CaptureReader::new(data, Path::new("x"))?;
    while let Some(record) = reader.next_record()? {
        *frames += record.frame.len();
        assert!(record.length as usize >= record.frame.len());
        let ring =
            Ring { interface: record.interface, queue: record.queue().unwrap_or(0), way: None };
        let time = record.time.unwrap_or(0);
        for event in record.comments().filter_map(Event::read) {
            flows.event(time, ring, event);
        }
        let length = record.length as usize;
        flows.packet(&Packet { time, head: record.frame, length, point: record.interface, ring });
    }
    Ok(())
}
