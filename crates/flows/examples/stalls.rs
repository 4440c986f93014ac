//! Prints the TCP flows of a capture, and the causes of their stalls.
//!
//!     tcpdump -i eth0 -s 128 -w trace.pcap tcp
//!     cargo run -p grantway-flows --example stalls -- trace.pcap
//!
//! It reads the classic pcap format with microseconds, in the byte order of this machine.
//! `grantway flows` reads all formats.

use grantway_flows::{Flows, Limits, Packet, Ring};

/// First word of such a capture.
const MAGIC: u32 = 0xa1b2_c3d4;
/// Bytes before the first packet.
const HEADER: usize = 24;
/// Bytes before the bytes of each packet.
const RECORD: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: stalls FILE.pcap")?;
    let file = std::fs::read(path)?;
    if word(&file, 0) != Some(MAGIC) {
        return Err(
            "found no classic pcap with microseconds; make one of it: editcap -F pcap".into()
        );
    }
    let mut flows = Flows::new(Limits::default());
    let mut at = HEADER;
    while let [Some(s), Some(us), Some(kept), Some(length)] =
        [0, 4, 8, 12].map(|n| word(&file, at + n))
    {
        at += RECORD;
        let Some(head) = file.get(at..at.saturating_add(kept as usize)) else { break };
        at += head.len();
        let time = u64::from(s) * 1_000_000_000 + u64::from(us) * 1000;
        let (length, ring) = (length as usize, Ring::default());
        flows.packet(&Packet { time, head, length, point: 0, ring });
    }
    for flow in flows.report().flows {
        println!(
            "{} -> {}: {} packets, {:.3} s",
            flow.client, flow.server, flow.packets, flow.seconds
        );
        for stall in flow.stalls {
            println!("  {:.3} s at {:.3} s: {:?}", stall.seconds, stall.at_s, stall.cause);
        }
    }
    Ok(())
}

fn word(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}
