//! Flows of a running backend, from its trace.

use super::FlowsArgs;
use crate::running::{REMEDY, find};
use crate::trace::TRACE;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::patience;
use grantway_command::wait::{Signals, readable};
use grantway_flows::Flows;
use rustix::termios::isatty;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two pictures on a terminal.
const PICTURE: Duration = Duration::from_secs(1);
/// Time in which the backend must end its last record.
const FAREWELL: Duration = Duration::from_secs(1);

/// Packets of a backend's trace, as a stream. The stream ends when its time is over, when a signal
/// comes, or when the backend ends.
pub(super) struct Live<F> {
    socket: UnixStream,
    signals: Signals,
    /// File to which the whole stream is copied, if one was asked for.
    copy: Option<File>,
    ends: Option<Instant>,
    /// True if the backend was asked to end.
    told: bool,
    /// True if anything came.
    came: bool,
    /// Time of the next picture, if there is a terminal.
    picture: Option<Instant>,
    flows: Rc<RefCell<Flows>>,
    draw: F,
}

impl<F: Fn(&Flows) -> String> Live<F> {
    /// Connects to the chosen backend. Returns the stream, and the path of the backend's socket.
    ///
    /// # Errors
    ///
    /// No backend runs in the folder, or the copy cannot be written.
    pub(super) fn open(
        args: &FlowsArgs,
        flows: &Rc<RefCell<Flows>>,
        draw: F,
    ) -> Result<(Self, PathBuf), CommandError> {
        // The other socket answers if the backend runs. A connection to this one takes the only
        // place of a listener.
        let dir = args.host.as_deref().unwrap_or(&args.run_dir);
        let (path, _) = find(dir, args.domain)?;
        let path = path.with_extension(TRACE);
        let failed = |e| CommandError::Failed(format!("{}: {e}; {REMEDY}", path.display()));
        let socket = UnixStream::connect(&path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let copy = args.write.as_deref().map(create).transpose()?;
        let now = Instant::now();
        let pictures = isatty(io::stdout()) && !args.json;
        let live = Self {
            socket,
            signals: Signals::take()?,
            copy,
            ends: args.seconds.map(|seconds| now + Duration::from_secs_f64(seconds)),
            told: false,
            came: false,
            picture: pictures.then_some(now + PICTURE),
            flows: Rc::clone(flows),
            draw,
        };
        Ok((live, path))
    }

    /// Waits for more bytes. Returns false if none will come.
    fn wait(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        if let Some(at) = self.picture.filter(|&at| at <= now) {
            let text = (self.draw)(&self.flows.borrow());
            output::screen(&text).map_err(io::Error::other)?;
            self.picture = Some(at.max(now - PICTURE) + PICTURE);
        }
        let over = self.ends.is_some_and(|ends| ends <= now);
        if over && self.told {
            return Ok(false);
        }
        if over || self.signals.came().is_some() {
            // The backend ends what it is writing, and closes.
            self.socket.shutdown(Shutdown::Write)?;
            (self.told, self.ends) = (true, Some(now + patience::answer(FAREWELL)));
            if self.picture.take().is_some() {
                output::screen("").map_err(io::Error::other)?;
            }
        }
        let next = [self.ends, self.picture].into_iter().flatten().min();
        let timeout = next.map(|next| next.saturating_duration_since(now));
        let waited = [self.socket.as_fd(), self.signals.descriptor()];
        readable(&waited, None, timeout).map_err(io::Error::other)?;
        Ok(true)
    }
}

impl<F: Fn(&Flows) -> String> Read for Live<F> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.wait()? {
                return Ok(0);
            }
            match self.socket.read(room) {
                Ok(0) if !self.came => {
                    return Err(io::Error::other(
                        "another reader is connected to this backend, and only one is allowed; \
                         stop it first",
                    ));
                }
                Ok(read) => {
                    self.came = true;
                    if let Some(copy) = &mut self.copy {
                        copy.write_all(room.get(..read).unwrap_or_default())?;
                    }
                    return Ok(read);
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(0),
                Err(e) => return Err(e),
            }
        }
    }
}

fn create(path: &Path) -> Result<File, CommandError> {
    File::create(path).map_err(|e| {
        CommandError::Failed(format!("{}: {e}; expected the path of a new capture", path.display()))
    })
}
