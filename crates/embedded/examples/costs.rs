//! Costs of operations on this machine's embedded host: a backend in this process, a guest in
//! another. Figures are medians of slices. They move with the machine, and they are not Xen's.

use grantway_embedded::{Domain, Host, Role};
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CopySide, DomId, EventChannels, FrontendPlatform, GrantRef,
    Mapper, Port,
};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BACK: DomId = DomId(0);
const FRONT: DomId = DomId(7);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(dir) = std::env::args_os().nth(1) {
        return guest(dir.as_ref());
    }
    let dir = tempfile::tempdir()?;
    let _host = Host::spawn(dir.path())?;
    let back = Domain::connect(dir.path(), BACK, Role::Service)?;
    back.create_domain(FRONT, "guest")?;
    let mut child =
        Command::new(std::env::current_exe()?).arg(dir.path()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let mut numbers = line.split_whitespace().map(str::parse::<u32>);
    let port = Port(numbers.next().ok_or("no port")??);
    let grefs: Vec<GrantRef> = numbers.map(|n| n.map(GrantRef)).collect::<Result<_, _>>()?;

    let mut arena = vec![1; 64 * 4096];
    for (count, len) in [(1, 64), (1, 1500), (64, 64), (64, 1500), (64, 4096)] {
        for write in [false, true] {
            let mut ops: Vec<CopyOp> = (0..count)
                .map(|index| {
                    let local = CopySide::Local { offset: index as u32 * 4096 };
                    let gref = grefs[index];
                    let foreign = CopySide::Foreign { domain: FRONT, gref, offset: 0 };
                    let (from, to) = if write { (local, foreign) } else { (foreign, local) };
                    CopyOp::new(from, to, len)
                })
                .collect();
            let cost = median(|| back.copy(&mut arena, &mut ops).expect("copied"));
            assert!(ops.iter().all(|op| op.status.is_okay()));
            let what = if write { "to" } else { "from" };
            println!("copy {what} the guest, {count:2} x {len:4} B: {cost:7.2} us a batch");
        }
    }
    for count in [1, 16, 64] {
        let mut byte = [0];
        let cost = median(|| {
            let run = back.map(FRONT, &grefs[..count], Access::ReadWrite).expect("mapped");
            run.page(0).expect("there").read(0, &mut byte).expect("within");
        });
        println!("map, touch one page and unmap {count:2} pages: {cost:7.2} us");
    }
    let mut events = back.events()?;
    let ours = events.bind_interdomain(FRONT, port)?;
    let cost = median(|| events.notify(ours).expect("sent"));
    println!("notify a sleeper, mostly while its signal is pending: {cost:7.3} us");
    let seen = events.count(ours);
    println!("signals seen back: {seen}");
    let near = events.alloc_unbound(BACK)?;
    let far = events.bind_interdomain(BACK, near)?;
    let cost = median(|| {
        events.notify(far).expect("sent");
        events.count(near);
    });
    println!("notify that is news to nobody asleep, and its count: {cost:7.3} us");
    let cost = median(|| {
        events.poll(&mut |_| {}).expect("polled");
    });
    println!("an idle poll: {cost:7.3} us");
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn guest(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let front = Domain::connect(dir, FRONT, Role::Guest)?;
    let granted = front.grant(BACK, 64, Access::ReadWrite)?;
    let mut events: Box<dyn EventChannels> = front.events()?;
    let port = events.alloc_unbound(BACK)?;
    print!("{port}");
    for gref in &granted.grefs {
        print!(" {gref}");
    }
    println!();
    let mut seen = 0;
    loop {
        seen = events.wait(port, seen, Some(Duration::from_secs(60)))?;
    }
}

/// Returns the microseconds per call, as the median of 21 slices of 10 ms.
fn median(mut body: impl FnMut()) -> f64 {
    let mut slices: Vec<f64> = (0..21)
        .map(|_| {
            let (start, mut calls) = (Instant::now(), 0u32);
            while start.elapsed() < Duration::from_millis(10) {
                body();
                calls += 1;
            }
            start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
        })
        .collect();
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 2]
}
