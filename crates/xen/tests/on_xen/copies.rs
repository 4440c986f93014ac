//! Grant copies, within one domain.

use crate::check::{Checks, Outcome, get, is, same};
use crate::grants::{page, read};
use grantway_hypervisor::{
    Access, CopyOp, CopySide, DomId, FrontendPlatform, GrantRef, GrantStatus, Mapper, Platform,
};
use grantway_ring::PAGE_SIZE;
use grantway_xen::Xen;

pub fn all(checks: &mut Checks, xen: &Xen) {
    let mut check = |name, body: fn(&Xen) -> Outcome| checks.check(name, || body(xen));
    check("copy: in, out, and across pages of the arena", in_and_out);
    check("copy: from grant to grant", peer_to_peer);
    check("copy: a grant for reading is not written", read_only);
    check("copy: statuses in a batch of 100, one in 7 bad", mixed);
    check("copy: in order, with copies within the arena between", in_order);
    check("copy: what crosses a page or leaves the arena goes nowhere", out_of_bounds);
    check("copy: into fresh memory, and from pages that nobody touched", fresh);
}

fn local(offset: usize) -> CopySide {
    CopySide::Local { offset: offset as u32 }
}

fn foreign(xen: &Xen, gref: GrantRef, offset: u16) -> CopySide {
    CopySide::Foreign { domain: xen.domain(), gref, offset }
}

fn okay(ops: &[CopyOp]) -> Outcome {
    match ops.iter().position(|op| !op.status.is_okay()) {
        None => Ok(()),
        Some(index) => Err(format!("copy {index}: {}", ops[index].status)),
    }
}

fn in_and_out(xen: &Xen) -> Outcome {
    let granted = get(xen.grant(xen.domain(), 2, Access::ReadWrite))?;
    let (first, second) = (page(&granted, 0)?, page(&granted, 1)?);
    let pattern: Vec<u8> = (0..PAGE_SIZE).map(|at| (at % 251) as u8).collect();
    get(first.0.write(0, &pattern))?;
    let mut arena = vec![0; 3 * PAGE_SIZE];
    let before = xen.counters();
    // 4096 bytes at an odd place cross a page, whatever the arena's alignment.
    let mut ops = [
        CopyOp::new(foreign(xen, first.1, 0), local(777), 4096),
        CopyOp::new(foreign(xen, first.1, 4095), local(0), 1),
        CopyOp::new(local(777), foreign(xen, second.1, 0), 4096),
    ];
    get(xen.copy(&mut arena, &mut ops))?;
    okay(&ops)?;
    is("in", arena[777..777 + PAGE_SIZE] == pattern)?;
    same("one byte", arena[0], pattern[4095])?;
    is("out", read(&second.0)? == pattern)?;
    let since = xen.counters().since(&before);
    same("counted", (since.copies, since.copy_batches, since.copy_bytes), (3, 1, 8193))
}

fn peer_to_peer(xen: &Xen) -> Outcome {
    let granted = get(xen.grant(xen.domain(), 2, Access::ReadWrite))?;
    let (first, second) = (page(&granted, 0)?, page(&granted, 1)?);
    get(first.0.write(100, b"from grant to grant"))?;
    let mut ops = [CopyOp::new(foreign(xen, first.1, 100), foreign(xen, second.1, 4000), 19)];
    get(xen.copy(&mut [], &mut ops))?;
    okay(&ops)?;
    let shown = read(&second.0)?;
    same("arrived", &shown[4000..4019], b"from grant to grant")?;
    is("more was written", shown[..4000].iter().chain(&shown[4019..]).all(|&byte| byte == 0))
}

fn read_only(xen: &Xen) -> Outcome {
    let granted = get(xen.grant(xen.domain(), 1, Access::ReadOnly))?;
    let (ours, gref) = page(&granted, 0)?;
    let mut arena = [1; 8];
    let mut ops = [
        CopyOp::new(local(0), foreign(xen, gref, 0), 8),
        CopyOp::new(foreign(xen, gref, 0), local(0), 4),
    ];
    get(xen.copy(&mut arena, &mut ops))?;
    println!("        writing gives: {}", ops[0].status);
    is("it was written", !ops[0].status.is_okay() && read(&ours)? == [0; PAGE_SIZE])?;
    same("read", (ops[1].status, arena), (GrantStatus::OKAY, [0, 0, 0, 0, 1, 1, 1, 1]))
}

fn mixed(xen: &Xen) -> Outcome {
    let granted = get(xen.grant(xen.domain(), 1, Access::ReadWrite))?;
    let (ours, gref) = page(&granted, 0)?;
    get(ours.write(0, &[6; 100]))?;
    let mut arena = vec![0; 100];
    let nobody = CopySide::Foreign { domain: DomId(32_000), gref, offset: 0 };
    let mut ops: Vec<CopyOp> = (0..100)
        .map(|at| {
            let source = match at % 14 {
                6 => foreign(xen, GrantRef(60_000_000), 0),
                13 => nobody,
                _ => foreign(xen, gref, at as u16),
            };
            CopyOp::new(source, local(at), 1)
        })
        .collect();
    get(xen.copy(&mut arena, &mut ops))?;
    println!("        bad reference: {}; bad domain: {}", ops[6].status, ops[13].status);
    for (at, op) in ops.iter().enumerate() {
        let expected = match at % 14 {
            6 => (GrantStatus::BAD_GNTREF, 0),
            13 => (GrantStatus::BAD_DOMAIN, 0),
            _ => (GrantStatus::OKAY, 6),
        };
        same(&format!("copy {at}"), (op.status, arena[at]), expected)?;
    }
    Ok(())
}

fn in_order(xen: &Xen) -> Outcome {
    let granted = get(xen.grant(xen.domain(), 1, Access::ReadWrite))?;
    let (ours, gref) = page(&granted, 0)?;
    let mut arena = vec![0; 64];
    arena[0] = 42;
    // The byte moves through the arena and the page, 40 times.
    let mut ops = Vec::new();
    for step in 0..40_u16 {
        let at = usize::from(step);
        ops.push(CopyOp::new(local(at), foreign(xen, gref, step), 1));
        ops.push(CopyOp::new(foreign(xen, gref, step), foreign(xen, gref, 4095 - step), 1));
        ops.push(CopyOp::new(foreign(xen, gref, 4095 - step), local(63), 1));
        ops.push(CopyOp::new(local(63), local(at + 1), 1));
    }
    get(xen.copy(&mut arena, &mut ops))?;
    okay(&ops)?;
    let shown = read(&ours)?;
    same("arena", arena[40], 42)?;
    is("page", shown[..40] == [42; 40] && shown[4056..] == [42; 40])
}

fn out_of_bounds(xen: &Xen) -> Outcome {
    let granted = get(xen.grant(xen.domain(), 1, Access::ReadWrite))?;
    let (ours, gref) = page(&granted, 0)?;
    let mut arena = vec![3; 64];
    let mut ops = [
        CopyOp::new(local(0), foreign(xen, gref, 4090), 7),
        CopyOp::new(local(0), foreign(xen, gref, 0), 64),
        CopyOp::new(foreign(xen, gref, 0), local(60), 5),
        CopyOp::new(foreign(xen, gref, 0), local(0), 0),
        CopyOp::new(foreign(xen, gref, 0), local(32), 32),
    ];
    get(xen.copy(&mut arena, &mut ops))?;
    let (okay, bad) = (GrantStatus::OKAY, GrantStatus::BAD_COPY_ARG);
    let statuses = ops.map(|op| op.status);
    same("statuses", statuses, [bad, okay, GrantStatus::BAD_VIRT_ADDR, bad, okay])?;
    is("page", read(&ours)?[4090..] == [0; 6])
}

fn fresh(xen: &Xen) -> Outcome {
    let granted = get(xen.grant(xen.domain(), 1, Access::ReadWrite))?;
    let (ours, gref) = page(&granted, 0)?;
    get(ours.write(0, &[8; PAGE_SIZE]))?;
    // The allocator zeroes this memory, so its pages do not exist yet.
    let mut arena = vec![0; 64 * PAGE_SIZE];
    let mut ops: Vec<CopyOp> = (0..32)
        .map(|at| CopyOp::new(foreign(xen, gref, 0), local(2 * at * PAGE_SIZE), 4096))
        .chain([CopyOp::new(local(63 * PAGE_SIZE), foreign(xen, gref, 0), 4096)])
        .collect();
    get(xen.copy(&mut arena, &mut ops))?;
    okay(&ops)?;
    for (at, part) in arena.chunks(PAGE_SIZE).enumerate() {
        let expected = if at % 2 == 0 { 8 } else { 0 };
        is("arena", part.iter().all(|&byte| byte == expected))?;
    }
    is("page", read(&ours)? == [0; PAGE_SIZE])
}
