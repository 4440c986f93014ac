//! Costs of operations on this machine.

use crate::check::{Checks, get};
use crate::grants::is_pv;
use grantway_hypervisor::{Access, BackendPlatform, CopyOp, CopySide, FrontendPlatform, Mapper};
use grantway_xen::Xen;
use std::time::{Duration, Instant};

pub fn all(checks: &mut Checks, xen: &Xen) {
    checks.check("costs", || measure(xen));
}

/// Returns the microseconds per unit, with `units` units per call, measured for a quarter of a
/// second.
fn per_unit(units: usize, mut call: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    call()?;
    let (start, mut calls) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(250) {
        call()?;
        calls += 1;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(calls) / units as f64)
}

fn measure(xen: &Xen) -> Result<(), String> {
    let us = xen.domain();
    let granted = get(xen.grant(us, 512, Access::ReadWrite))?;
    println!("        us each, within domain {us}");
    // Only a PV domain may map its own grants.
    let sizes: &[usize] = if is_pv() { &[1, 16, 128, 512] } else { &[] };
    for &pages in sizes {
        let cost = per_unit(pages, || {
            get(xen.map(us, &granted.grefs[..pages], Access::ReadWrite)).map(drop)
        })?;
        println!("        map + unmap of {pages:3} at a time    {cost:8.2}");
    }
    // Copies of short and long packets, in batches of several sizes.
    let mut arena = vec![0; 512 * 2048];
    for len in [64, 1500] {
        for batch in [1, 16, 64, 256] {
            let mut ops: Vec<CopyOp> = (0..batch)
                .map(|at| {
                    let gref = granted.grefs[at];
                    let source = CopySide::Foreign { domain: us, gref, offset: 0 };
                    CopyOp::new(source, CopySide::Local { offset: at as u32 * 2048 }, len)
                })
                .collect();
            let cost = per_unit(batch, || get(xen.copy(&mut arena, &mut ops)))?;
            println!("        copy of {len:4} bytes, {batch:3} at a time {cost:8.2}");
        }
    }
    // Event channels, without a signal and with one.
    let mut events = get(xen.events())?;
    let a = get(events.alloc_unbound(us))?;
    let b = get(events.bind_interdomain(us, a))?;
    let cost = per_unit(1, || get(events.poll(&mut |_| {})))?;
    println!("        poll with nothing pending      {cost:8.2}");
    let cost = per_unit(1, || {
        get(events.notify(a))?;
        let seen = events.count(b);
        if seen == 0 { get(events.wait(b, 0, None)).map(drop) } else { Ok(()) }
    })?;
    println!("        notify, read and unmask        {cost:8.2}");
    Ok(())
}
