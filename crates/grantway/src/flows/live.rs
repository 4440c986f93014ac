//! Flows of a running backend, from its trace.

use super::FlowsArgs;
use crate::running::{REMEDY, find};
use crate::terminal::{SLICE, Step, Terminal, View};
use crate::trace::TRACE;
use grantway_command::error::CommandError;
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
    /// The picture of the flows, if there is a terminal.
    picture: Option<Picture>,
    flows: Rc<RefCell<Flows>>,
    draw: F,
}

/// A picture on a terminal, which is drawn again once per [`PICTURE`] and after each key.
struct Picture {
    terminal: Terminal,
    view: View,
    text: String,
    /// Time of the next text.
    next: Instant,
    /// Time of the next look at keys. A busy stream is read more often.
    look: Instant,
}

impl Picture {
    fn open() -> Result<Self, CommandError> {
        let (terminal, now) = (Terminal::open("")?, Instant::now());
        Ok(Self { terminal, view: View::default(), text: String::new(), next: now, look: now })
    }

    /// Draws what is due, and obeys keys. Returns true if a person has seen enough.
    fn show(&mut self, now: Instant, text: impl Fn() -> String) -> Result<bool, CommandError> {
        if self.next <= now && !self.view.is_held {
            self.text = text();
            self.terminal.draw(&self.view, "", &self.text)?;
            self.next = now + PICTURE;
        }
        if now < self.look {
            return Ok(false);
        }
        self.look = now + SLICE / 2;
        while let Some(step) = self.terminal.key(&mut self.view, &self.text, Duration::ZERO)? {
            if step == Step::Quit {
                return Ok(true);
            }
            self.terminal.draw(&self.view, "", &self.text)?;
        }
        Ok(false)
    }
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
            picture: pictures.then(Picture::open).transpose()?,
            flows: Rc::clone(flows),
            draw,
        };
        Ok((live, path))
    }

    /// Waits for more bytes. Returns false if none will come.
    fn wait(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        let Self { picture, flows, draw, .. } = self;
        let shown = picture.as_mut().map(|picture| picture.show(now, || draw(&flows.borrow())));
        let seen = shown.transpose().map_err(io::Error::other)?.unwrap_or(false);
        let over = self.ends.is_some_and(|ends| ends <= now);
        if over && self.told {
            return Ok(false);
        }
        if over || seen || self.signals.came().is_some() {
            // The backend ends what it is writing, and closes.
            self.socket.shutdown(Shutdown::Write)?;
            (self.told, self.ends) = (true, Some(now + patience::answer(FAREWELL)));
            // The terminal is as it was before, for the whole report.
            self.picture = None;
        }
        let left = self.ends.map(|ends| ends.saturating_duration_since(now));
        // Keys are looked at between waits.
        let keys = self.picture.as_ref().map(|picture| picture.look.saturating_duration_since(now));
        let timeout = [left, keys].into_iter().flatten().min();
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
