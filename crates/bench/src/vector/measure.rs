//! Slices of whatever takes frames, in turns.

use crate::probe;
use crate::slices::{self, Series, Timing};
use grantway_command::error::CommandError;
use grantway_command::process::pin;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// What frames are fed to.
pub trait Subject: Send {
    /// Feeds it with some, for a millisecond or so; how many.
    ///
    /// # Errors
    ///
    /// It does not take them.
    fn some(&mut self) -> Result<u64, CommandError>;
}

/// Nanoseconds of a packet, of all subjects in turns.
///
/// # Errors
///
/// A subject does not take frames.
pub fn measure(
    subjects: &mut [Box<dyn Subject>],
    timing: Timing,
    progress: &mut dyn FnMut(f64),
) -> Result<Series<f64>, CommandError> {
    slices::in_turns(subjects.len(), timing, progress, |subject| {
        slice(subjects[subject].as_mut(), timing.slice)
    })
}

/// By a thread of its own on the first processor: this one is to see them all when
/// it looks where they are.
fn slice(subject: &mut dyn Subject, span: Duration) -> Result<f64, CommandError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(&cpu) = probe::processors().first() {
                // Where it cannot be pinned, the slice is as good as its probes.
                let _ = pin(cpu);
            }
            run(subject, span / 10)?;
            run(subject, span)
        });
        let lost = |_| Err(CommandError::Failed("the thread that feeds ended".into()));
        thread.join().unwrap_or_else(lost)
    })
}

/// What a packet took of a processor, which is not what others on this machine took
/// meanwhile.
fn run(subject: &mut dyn Subject, span: Duration) -> Result<f64, CommandError> {
    let (start, own) = (Instant::now(), processor_time());
    let mut frames = 0;
    loop {
        frames += subject.some()?;
        if start.elapsed() >= span {
            let took = processor_time().saturating_sub(own);
            return Ok(took.as_nanos() as f64 / frames as f64);
        }
    }
}

/// What the calling thread took of a processor so far, in the kernel, too.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
