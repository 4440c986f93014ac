//! Capture files, written and read by a few lines of this folder, so that a
//! fault of the code under test cannot hide itself.

use grantway_testkit::Numbers;
use std::path::Path;

/// Frames of many sizes, different in every byte's neighbourhood: `count` of
/// them, from 14 to `longest` bytes, always the same for the same seed.
pub fn frames(count: usize, longest: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut numbers = Numbers::new(seed);
    let mut next = move || numbers.next() >> 16;
    // Where pages, slots and headers begin and end.
    let edges = [14, 15, 59, 60, 64, 127, 128, 129, 1514, 4095, 4096, 4097, 8191, 8192, 8193];
    let edges: Vec<usize> =
        edges.into_iter().filter(|len| *len <= longest).chain([longest]).collect();
    (0..count)
        .map(|number| {
            let span = (longest - 14 + 1) as u64;
            let len = edges.get(number).copied().unwrap_or((next() % span) as usize + 14);
            let mut frame: Vec<u8> = (0..len).map(|_| next() as u8).collect();
            // Addresses of test stations and an EtherType for experiments, so
            // that nobody takes it for IP.
            frame[..14].copy_from_slice(b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5");
            frame
        })
        .collect()
}

/// Writes a capture file in the classic format.
pub fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    let word = |file: &mut Vec<u8>, word: u32| file.extend_from_slice(&word.to_le_bytes());
    for header in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1] {
        word(&mut file, header);
    }
    for (number, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        for header in [number as u32, 0, len, len] {
            word(&mut file, header);
        }
        file.extend_from_slice(frame);
    }
    std::fs::write(path, file).expect("a capture to write");
}

/// Reads the frames of a capture file in the classic format.
pub fn read(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    assert!(matches!(word(0), 0xa1b2_c3d4 | 0xa1b2_3c4d), "{}: no capture", path.display());
    assert_eq!(word(20), 1, "{}: not Ethernet", path.display());
    let mut frames = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let (captured, original) = (word(at + 8), word(at + 12));
        assert_eq!(captured, original, "{}: frame {} was cut", path.display(), frames.len());
        let start = at + 16;
        at = start + captured as usize;
        frames.push(file[start..at].to_vec());
    }
    frames
}

/// Checks that what was captured is what was played, byte by byte, in order.
pub fn check_same(what: &str, played: &[Vec<u8>], captured: &[Vec<u8>]) {
    for (number, (sent, came)) in played.iter().zip(captured).enumerate() {
        if sent == came {
            continue;
        }
        let at = sent.iter().zip(came).position(|(a, b)| a != b);
        let elsewhere = played.iter().position(|frame| frame == came);
        panic!(
            "{what}: frame {number}: {} bytes were sent and {} came, the first difference is at \
             {at:?}; what came is the frame that was sent as number {elsewhere:?}",
            sent.len(),
            came.len()
        );
    }
    assert_eq!(captured.len(), played.len(), "{what}: frames that came, and frames sent");
}
