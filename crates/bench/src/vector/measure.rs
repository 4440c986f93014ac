//! Slices of anything that accepts frames, in turns.

use crate::probe;
use crate::slices::{self, Series, Timing};
use grantway_command::error::CommandError;
use grantway_command::process::pin;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A path that frames are fed to.
pub trait Subject: Send {
    /// Feeds the subject with frames for about a millisecond. Returns their number.
    ///
    /// # Errors
    ///
    /// The subject does not accept the frames.
    fn some(&mut self) -> Result<u64, CommandError>;
}

/// Measures all subjects in turns. Returns the nanoseconds per packet of each slice.
///
/// # Errors
///
/// A subject does not accept frames.
pub fn measure(
    subjects: &mut [Box<dyn Subject>],
    timing: Timing,
    progress: &mut dyn FnMut(f64),
) -> Result<Series<f64>, CommandError> {
    slices::in_turns(subjects.len(), timing, progress, |subject| {
        slice(subjects[subject].as_mut(), timing.slice)
    })
}

/// Measures a slice in a thread of its own, which is pinned to the first processor. The calling
/// thread stays on all processors, since it probes how far apart they are.
fn slice(subject: &mut dyn Subject, span: Duration) -> Result<f64, CommandError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(&cpu) = probe::processors().first() {
                // If the thread cannot be pinned, the slice is as good as its probes.
                let _ = pin(cpu);
            }
            run(subject, span / 10)?;
            run(subject, span)
        });
        let lost = |_| Err(CommandError::Failed("the thread that feeds ended".into()));
        thread.join().unwrap_or_else(lost)
    })
}

/// Returns the nanoseconds of processor time per packet. Time that other processes had meanwhile is
/// not counted.
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

/// Returns the processor time that the calling thread had so far, including the kernel's.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
