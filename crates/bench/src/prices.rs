//! `grantway bench prices`: what a locked operation, a system call and a wake-up take on this
//! machine, which counts of instructions do not show.

use super::args::PricesArgs;
use super::document::{self, Column, Document, Shown};
use super::probe::{self, Machine, State};
use super::progress::Progress;
use super::slices::Timing;
use super::vector::measure::{Subject, measure};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::process::pin;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::JoinHandle;
use std::time::Instant;

/// The price of one thing.
#[derive(Debug, Clone, Serialize)]
struct Row {
    /// Name of the thing.
    what: &'static str,
    /// Place in the packet path where it is paid.
    paid: &'static str,
    /// Nanoseconds of the thread's processor time.
    ns: f64,
    /// Host that the row was measured on: none.
    host: &'static str,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    machine: Machine,
    /// Number of slices.
    n: usize,
}

impl document::Row for Row {
    fn host(&self) -> &str {
        self.host
    }

    fn state(&self) -> State {
        self.machine.state
    }
}

const COLUMNS: [Column<Row>; 5] = {
    use Shown::Always;
    [
        Column::of("what", Always, |r| r.what.into()),
        Column::of("ns#", Always, |r| format!("{:.1}", r.ns)),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
        Column::of("paid", Always, |r| r.paid.into()),
    ]
};

/// The conditions of the measurement.
const SETTING: &str = "one pinned thread, its processor time; no other thread uses its cache lines";

/// Runs the command.
///
/// # Errors
///
/// The system refused a descriptor or a thread, or the output cannot be written.
pub fn run(args: &PricesArgs) -> Result<(), CommandError> {
    let timing = Timing::short(args.seconds, None)?;
    let progress = Progress::new(1, args.json);
    let (labels, mut subjects): (Vec<_>, Vec<_>) = things()?.into_iter().unzip();
    let series = measure(&mut subjects, timing, &mut |part| progress.show(0, "prices", part))?;
    progress.done();
    let row = |(subject, (what, paid)): (usize, (&'static str, &'static str))| {
        let (ns, machine, n) = series.typical(subject);
        Row { what, paid, ns, host: "none", machine, n }
    };
    let rows: Vec<Row> = labels.into_iter().enumerate().map(row).collect();
    match args.json {
        true => Document::new("prices", &rows).print(),
        false => output::line(format!("{SETTING}\n\n{}", document::table(&rows, &COLUMNS))),
    }
}

/// Something that is done so often in a call that the call takes about a millisecond.
struct Often<F> {
    times: u32,
    once: F,
}

impl<F: FnMut() -> Result<(), Errno> + Send> Subject for Often<F> {
    fn some(&mut self) -> Result<u64, CommandError> {
        for _ in 0..self.times {
            (self.once)().map_err(|e| CommandError::Failed(format!("cannot measure: {e}")))?;
        }
        Ok(self.times.into())
    }
}

/// Name of a thing, where it is paid, and the thing.
type Thing = ((&'static str, &'static str), Box<dyn Subject>);

fn often(
    what: &'static str,
    paid: &'static str,
    times: u32,
    once: impl FnMut() -> Result<(), Errno> + Send + 'static,
) -> Thing {
    ((what, paid), Box::new(Often { times, once }))
}

/// Returns all things, the cheapest first.
fn things() -> Result<Vec<Thing>, CommandError> {
    let (plain, locked) = (AtomicU64::new(0), AtomicU64::new(0));
    let (shown, asked) = (AtomicU64::new(0), AtomicU64::new(0));
    let (ours, page) = ([0u8; 4096], [1u8; 4096]);
    let (mut ours, page) = (Box::new(ours), Box::new(page));
    let nothing = descriptor(EventfdFlags::NONBLOCK)?;
    let three = [(); 3].map(|()| descriptor(EventfdFlags::NONBLOCK));
    let three = three.into_iter().collect::<Result<Vec<_>, _>>()?;
    let echo = Echo::start()?;
    Ok(vec![
        often("addition", "a counter of one thread", 100_000, move || {
            let sum = black_box(&plain).load(Ordering::Relaxed);
            black_box(&plain).store(sum + 1, Ordering::Relaxed);
            Ok(())
        }),
        often("locked addition", "a counter of several threads", 100_000, move || {
            black_box(&locked).fetch_add(1, Ordering::Relaxed);
            Ok(())
        }),
        often(
            "full fence",
            "between publishing a request and checking if a signal is due",
            100_000,
            move || {
                // Fences with nothing between them would become one.
                black_box(&shown).store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                black_box(black_box(&asked).load(Ordering::Relaxed));
                Ok(())
            },
        ),
        often(
            "copy of a page",
            "a frame; both pages are in the nearest cache",
            10_000,
            move || {
                black_box(&mut ours[..]).copy_from_slice(black_box(&page[..]));
                Ok(())
            },
        ),
        often("clock", "each poll round, through the vDSO", 10_000, || {
            black_box(Instant::now());
            Ok(())
        }),
        often("processor time of a thread", "if queues share a worker", 2_000, || {
            black_box(clock_gettime(ClockId::ThreadCPUTime));
            Ok(())
        }),
        often("read that finds nothing", "a read of a port that has no frame", 2_000, move || {
            match read(&nothing, &mut [0; 8]) {
                Err(Errno::AGAIN) => Ok(()),
                other => other.and(Err(Errno::IO)),
            }
        }),
        often("poll of three descriptors", "before a sleep", 1_000, move || {
            let mut polled = [0, 1, 2].map(|n| PollFd::new(&three[n], PollFlags::IN));
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map(drop)
        }),
        often("signal, sleep and wake-up", "each side, if both sleep", 50, move || echo.once()),
    ])
}

/// Makes an eventfd.
fn descriptor(flags: EventfdFlags) -> Result<OwnedFd, CommandError> {
    eventfd(0, flags | EventfdFlags::CLOEXEC)
        .map_err(|e| CommandError::Failed(format!("eventfd: {e}; raise the limit of open files")))
}

/// A thread on another processor that answers each signal by one.
struct Echo {
    there: Arc<OwnedFd>,
    back: Arc<OwnedFd>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start() -> Result<Self, CommandError> {
        let (there, back) =
            (descriptor(EventfdFlags::empty())?, descriptor(EventfdFlags::empty())?);
        let (there, back, ends) =
            (Arc::new(there), Arc::new(back), Arc::new(AtomicBool::new(false)));
        let (signals, answers, over) = (Arc::clone(&there), Arc::clone(&back), Arc::clone(&ends));
        let answer = move || {
            if let Some(&cpu) = probe::processors().get(1) {
                // If the thread cannot be pinned, the slice is as good as its probes.
                let _ = pin(cpu);
            }
            let mut count = [0; 8];
            while read(&signals, &mut count).is_ok() && !over.load(Ordering::Relaxed) {
                // The other side has one signal under way, so there is room.
                let _ = write(&answers, &1u64.to_ne_bytes());
            }
        };
        let thread = std::thread::Builder::new().spawn(answer).map_err(CommandError::failed)?;
        Ok(Self { there, back, ends, thread: Some(thread) })
    }

    /// Signals the other side, and sleeps until its answer comes.
    fn once(&self) -> Result<(), Errno> {
        write(&self.there, &1u64.to_ne_bytes())?;
        read(&self.back, &mut [0; 8]).map(drop)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = write(&self.there, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}
