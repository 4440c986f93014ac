//! Pages: bounds, and copies of every size at every alignment.
#![cfg(not(loom))]
#![allow(missing_docs)]

use grantway_ring::{OutOfPage, PAGE_SIZE, SharedRun};
use std::sync::Arc;

/// Sizes that touch each way of copying and both sides of each boundary.
fn sizes() -> impl Iterator<Item = usize> {
    let step = if cfg!(miri) { 37 } else { 1 };
    (0..=300).step_by(step).chain([1023, 1024, 1025, 1500, 2048, PAGE_SIZE - 16])
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + salt) * 131 % 251) as u8 + 1).collect()
}

#[test]
fn a_private_run_is_zeroed_and_page_aligned() {
    let run = SharedRun::private(3);
    assert_eq!(run.pages(), 3);
    for index in 0..3 {
        let page = run.page(index).unwrap();
        assert_eq!(page.as_ptr().as_ptr() as usize % PAGE_SIZE, 0);
        let mut bytes = [1; PAGE_SIZE];
        page.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
    assert!(run.page(3).is_none());
    assert!(run.page(usize::MAX).is_none());
    assert!(SharedRun::private(0).page(0).is_none());
}

#[test]
fn a_page_outlives_its_run() {
    let page = SharedRun::private(2).page(1).unwrap();
    page.write(PAGE_SIZE - 1, &[7]).unwrap();
    let mut byte = [0];
    page.clone().read(PAGE_SIZE - 1, &mut byte).unwrap();
    assert_eq!(byte, [7]);
}

#[test]
fn pages_of_a_run_do_not_overlap() {
    let run = SharedRun::private(2);
    run.page(0).unwrap().write(0, &[0xff; PAGE_SIZE]).unwrap();
    let mut bytes = [1; PAGE_SIZE];
    run.page(1).unwrap().read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn reads_and_writes_copy_all_and_no_more() {
    let page = SharedRun::private(1).page(0).unwrap();
    for len in sizes() {
        for offset in [0, 1, 3, 8, 15] {
            let src = pattern(len, offset);
            page.zero();
            page.write(offset, &src).unwrap();
            let mut whole = [0; PAGE_SIZE];
            page.read(0, &mut whole).unwrap();
            assert!(whole[..offset].iter().all(|&byte| byte == 0), "{len} at {offset}");
            assert_eq!(whole[offset..offset + len], src, "{len} at {offset}");
            assert!(whole[offset + len..].iter().all(|&byte| byte == 0), "{len} at {offset}");

            let mut dst = vec![0; len + 32];
            page.read(offset, &mut dst[16..16 + len]).unwrap();
            assert!(dst[..16].iter().all(|&byte| byte == 0), "{len} at {offset}");
            assert_eq!(dst[16..16 + len], src, "{len} at {offset}");
            assert!(dst[16 + len..].iter().all(|&byte| byte == 0), "{len} at {offset}");
        }
    }
    let src = pattern(PAGE_SIZE, 0);
    page.write(0, &src).unwrap();
    let mut dst = vec![0; PAGE_SIZE];
    page.read(0, &mut dst).unwrap();
    assert_eq!(dst, src);
}

#[test]
fn page_to_page_copies_all_and_no_more() {
    let run = SharedRun::private(2);
    let (from, to) = (run.page(0).unwrap(), run.page(1).unwrap());
    let bytes = pattern(PAGE_SIZE, 5);
    from.write(0, &bytes).unwrap();
    for len in sizes() {
        for (offset, src_offset) in [(0, 0), (1, 5), (8, 16), (16, 3)] {
            to.zero();
            to.copy_from_page(offset, &from, src_offset, len).unwrap();
            let mut whole = [0; PAGE_SIZE];
            to.read(0, &mut whole).unwrap();
            assert!(whole[..offset].iter().all(|&byte| byte == 0));
            assert_eq!(whole[offset..offset + len], bytes[src_offset..src_offset + len]);
            assert!(whole[offset + len..].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn ranges_outside_the_page_are_refused_and_nothing_is_touched() {
    let run = SharedRun::private(3);
    let page = run.page(1).unwrap();
    let other = run.page(0).unwrap();
    other.write(0, &[9; PAGE_SIZE]).unwrap();
    let mut long = vec![5; PAGE_SIZE + 1];
    for (offset, len) in [
        (0, PAGE_SIZE + 1),
        (1, PAGE_SIZE),
        (PAGE_SIZE, 1),
        (PAGE_SIZE + 1, 0),
        (usize::MAX, 1),
        (usize::MAX, 0),
    ] {
        let refused = Err(OutOfPage { offset, len });
        assert_eq!(page.read(offset, &mut long[..len]), refused);
        assert_eq!(page.write(offset, &long[..len]), refused);
        assert_eq!(page.copy_from_page(offset, &other, 0, len), refused);
        assert_eq!(page.copy_from_page(0, &other, offset, len), refused);
    }
    assert_eq!(
        page.copy_from_page(1, &other, 0, usize::MAX),
        Err(OutOfPage { offset: 1, len: usize::MAX })
    );
    assert!(long.iter().all(|&byte| byte == 5));
    let mut whole = [1; PAGE_SIZE];
    page.read(0, &mut whole).unwrap();
    assert!(whole.iter().all(|&byte| byte == 0));
    // The last byte, and nothing at the very end, are inside.
    assert_eq!(page.write(PAGE_SIZE - 1, &[1]), Ok(()));
    assert_eq!(page.write(PAGE_SIZE, &[]), Ok(()));
}

#[test]
fn pages_gathered_from_runs_tell_when_nobody_has_them() {
    let guard = Arc::new(());
    let run = SharedRun::private(4);
    let other = SharedRun::private(1);
    let pages = vec![other.page(0).unwrap(), run.page(2).unwrap()];
    let part = SharedRun::gathered(pages, Arc::clone(&guard));
    assert_eq!(part.pages(), 2);
    let page = part.page(1).unwrap();
    run.page(2).unwrap().write(0, &[7]).unwrap();
    assert!(part.page(2).is_none());
    drop((run, other, part));
    let mut byte = [0];
    page.read(0, &mut byte).unwrap();
    assert_eq!((byte, Arc::strong_count(&guard)), ([7], 2));
    drop(page);
    assert_eq!(Arc::strong_count(&guard), 1);
    assert!(SharedRun::gathered(Vec::new(), ()).page(0).is_none());
}
