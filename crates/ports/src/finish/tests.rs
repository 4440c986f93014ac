//! Finished frames against sums and rules that are written down once more, plainly.

mod datagrams;
pub(crate) mod frames;
mod segments;

use proptest::prelude::*;

use super::{begin_checksum, finish_checksum};
use crate::frame::DropReason;
use frames::{Shape, shapes};

#[test]
fn an_unfinished_checksum_is_finished() {
    for n in 0..12 {
        let shape = Shape { tags: n % 3, v6: n / 3 % 2 == 1, tcp: n / 6 == 1, ..Shape::default() };
        for length in [0, 1, 2, 63, 64, 1459, 60_000] {
            let mut frame = shape.frame(&vec![0xa5; length]);
            let before = frame.clone();
            let end = frame.len();
            frame.extend_from_slice(&[0x11; 3]);
            finish_checksum(&mut frame).unwrap();
            assert_eq!(frame[end..], [0x11; 3]);
            shape.check_sum(&frame[..end]);
            let field = shape.checksum_at();
            assert_eq!(frame[..field], before[..field]);
            assert_eq!(frame[field + 2..end], before[field + 2..]);
        }
    }
}

#[test]
fn a_begun_checksum_is_finished_by_the_sum_over_the_rest() {
    for n in 0..4 {
        let shape = Shape { v6: n & 1 == 1, tcp: n & 2 == 2, ..Shape::default() };
        let mut frame = shape.frame(b"left to somebody else");
        let found = begin_checksum(&mut frame).unwrap();
        let end = found.end;
        super::finish_at(&mut frame[..end], found.start, found.protocol.checksum_offset()).unwrap();
        shape.check_sum(&frame);
    }
}

#[test]
fn the_checksum_field_is_not_believed() {
    for tcp in [false, true] {
        let shape = Shape { tcp, ..Shape::default() };
        let mut frame = shape.frame(b"the guest wrote a whole checksum, or anything");
        let at = shape.checksum_at();
        frame[at..at + 2].copy_from_slice(&[0xab, 0xcd]);
        finish_checksum(&mut frame).unwrap();
        shape.check_sum(&frame);
    }
}

#[test]
fn the_last_destination_of_a_source_route_is_summed() {
    let last = [9; 16];
    let routing =
        (43, vec![0, 2, 0, 1, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]);
    let v6 = Shape { v6: true, extensions: vec![routing], last: Some(last), ..Shape::default() };
    let v4 = Shape { ip_options: 2, last: Some(last), ..Shape::default() };
    for shape in [v4, v6] {
        let mut frame = shape.frame(b"by way of another");
        finish_checksum(&mut frame).unwrap();
        shape.check_sum(&frame);
    }
}

#[test]
fn a_sum_of_zero_is_written_as_ones() {
    // Two bytes of payload are chosen so that the checksum becomes 0.
    let shape = Shape { tcp: false, ..Shape::default() };
    let mut frame = shape.frame(&[0, 0]);
    let at = frame.len() - 2;
    finish_checksum(&mut frame).unwrap();
    let field = shape.checksum_at();
    let rest = [frame[field], frame[field + 1]];
    frame[at..].copy_from_slice(&rest);
    finish_checksum(&mut frame).unwrap();
    assert_eq!(frame[field..field + 2], [0xff, 0xff]);
    shape.check_sum(&frame);
}

#[test]
fn a_frame_that_cannot_be_finished_is_unchanged() {
    for v6 in [false, true] {
        let shape = Shape { v6, tags: 1, ..Shape::default() };
        let frame = shape.frame(b"payload");
        for length in 0..frame.len() {
            let mut cut = frame[..length].to_vec();
            let reason = finish_checksum(&mut cut).unwrap_err();
            let expected = if length < 14 { DropReason::TooShort } else { DropReason::Truncated };
            assert_eq!(reason, expected);
            assert_eq!(cut, frame[..length]);
        }
    }
}

proptest! {
    #[test]
    fn every_checksum_verifies(
        shape in shapes(),
        tcp in any::<bool>(),
        payload in proptest::collection::vec(any::<u8>(), 0..3000),
    ) {
        let shape = Shape { tcp, ..shape };
        let mut frame = shape.frame(&payload);
        finish_checksum(&mut frame).unwrap();
        shape.check_sum(&frame);
        prop_assert!(frame.ends_with(&payload));
    }

    #[test]
    fn noise_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = finish_checksum(&mut bytes);
    }
}
