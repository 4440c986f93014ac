//! Random changes of an input.

use grantway_fuzz::corpus::MAX_INPUT;
use grantway_testkit::Numbers;

/// Values at edges, as 16 bits.
const EDGES: [u16; 16] = [
    0, 1, 13, 14, 0x7f, 0x80, 0xff, 0x100, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0xff00, 0xfffe,
    0xffff,
];

/// Changes `input` in one to eight ways; `other` is another input, parts of
/// which may get in. Chunks are often of `unit` bytes, at a multiple of as many.
pub(super) fn mutate(input: &mut Vec<u8>, other: &[u8], unit: usize, numbers: &mut Numbers) {
    let many = numbers.below(4);
    for _ in 0..1 << numbers.below(1 + many) {
        if input.is_empty() || numbers.once_in(12) {
            grow(input, other, unit, numbers);
        } else {
            change(input, unit, numbers);
        }
    }
    input.truncate(MAX_INPUT);
}

/// Returns a part of `bytes`, often of whole units.
fn part(bytes: &[u8], unit: usize, numbers: &mut Numbers) -> std::ops::Range<usize> {
    if bytes.is_empty() {
        return 0..0;
    }
    let step = if numbers.once_in(4) { 1 } else { unit };
    let start = numbers.below(bytes.len()) / step * step;
    // Short parts are the usual ones.
    let most = 1 << numbers.below(6);
    let units = 1 + numbers.below(most);
    start..(start + units * step).min(bytes.len())
}

/// Puts new bytes into `input`: random ones, or some that there are.
fn grow(input: &mut Vec<u8>, other: &[u8], unit: usize, numbers: &mut Numbers) {
    let new: Vec<u8> = match numbers.below(4) {
        0 => (0..1 + numbers.below(2 * unit)).map(|_| numbers.byte()).collect(),
        1 => vec![0; unit],
        2 => input[part(input, unit, numbers)].to_vec(),
        _ => other[part(other, unit, numbers)].to_vec(),
    };
    let room = MAX_INPUT.saturating_sub(input.len());
    let at = if numbers.once_in(2) { input.len() } else { part(input, unit, numbers).start };
    input.splice(at..at, new.into_iter().take(room));
}

/// Changes bytes of `input`, moves a part of it, or takes one out.
fn change(input: &mut Vec<u8>, unit: usize, numbers: &mut Numbers) {
    let at = numbers.below(input.len());
    match numbers.below(8) {
        0 | 1 => input[at] ^= 1 << numbers.below(8),
        2 => input[at] = numbers.byte(),
        3 => input[at] = input[at].wrapping_add(numbers.below(33) as u8).wrapping_sub(16),
        4 => {
            let bytes = numbers.one_of(&EDGES).to_le_bytes();
            let reversed = numbers.once_in(4);
            for (n, to) in input[at..].iter_mut().take(2).enumerate() {
                *to = bytes[if reversed { 1 - n } else { n }];
            }
        }
        5 => {
            let from = part(input, unit, numbers);
            let to = at.min(input.len() - from.len());
            input.copy_within(from, to);
        }
        6 => {
            input.drain(part(input, unit, numbers));
        }
        _ => {
            let part = part(input, unit, numbers);
            let value = if numbers.once_in(2) { 0 } else { numbers.byte() };
            input[part].fill(value);
        }
    }
}
