//! Time limits for work that may hang.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Most bytes of a program's output that are read.
const OUTPUT_MAX: u64 = 256 * 1024;

/// Runs `work` on a thread of its own. Returns `None` if `work` is not done in time. A thread that
/// hangs ends with the process.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .spawn(move || {
            // Nobody waits for an answer that comes too late.
            let _ = sender.send(work());
        })
        .ok()?;
    receiver.recv_timeout(limit).ok()
}

/// Runs a program and returns its standard output. Returns `None` if the program fails or does not
/// end in time. A program that does not end is killed.
pub fn output_of<S: AsRef<OsStr>>(
    program: &Path,
    args: impl IntoIterator<Item = S>,
    limit: Duration,
) -> Option<String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let pipe = child.stdout.take()?;
    // A thread reads: a process that inherited the pipe may hold it open for ever.
    let (sender, receiver) = channel();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut text = Vec::new();
        let read = pipe.take(OUTPUT_MAX).read_to_end(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    // The program gets until `end`, then it is killed.
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            _ => break None,
        }
    };
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    reader.ok()?;
    // The reader may need a moment more to hand over what it has read.
    let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(50));
    let text = receiver.recv_timeout(left).ok()?.ok()?;
    status?.success().then(|| String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(120);
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn an_answer_in_time_and_none() {
        assert_eq!(within(LONG, || 7), Some(7));
        // The work goes on only when nobody waits for it any more.
        let (go_on, told) = channel::<()>();
        assert_eq!(within(SHORT, move || told.recv().is_ok()), None);
        assert!(go_on.send(()).is_ok(), "it hangs on its own");
    }

    #[test]
    fn programs_that_end_and_those_that_do_not() {
        let sh = Path::new("/bin/sh");
        assert_eq!(output_of(sh, ["-c", "echo yes"], LONG).as_deref(), Some("yes\n"));
        assert_eq!(output_of(sh, ["-c", "echo yes; exit 1"], LONG), None);
        assert_eq!(output_of(Path::new("/no/such"), ["x"], LONG), None);
        // One program waits for ever, and the child of another keeps the pipe open.
        assert_eq!(output_of(sh, ["-c", "exec sleep 3600"], SHORT), None);
        assert_eq!(output_of(sh, ["-c", "sleep 60 & exit 0"], SHORT), None);
    }
}
