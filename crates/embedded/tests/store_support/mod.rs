//! A store to talk to: in memory, or on Unix sockets in a thread.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../support/guard.rs"]
mod guard;

use grantway_embedded::store::{ConnId, Fatal, Quotas, Server};
use grantway_hypervisor::{DomId, StoreErrno};
use grantway_xenstore::wire::{Decoder, MessageType as M, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

#[allow(unused_imports, reason = "each test file uses a part")]
pub use guard::{GUARD, eventually};

/// A server, and everything that its connections have been told.
pub struct Talk {
    pub server: Server,
    ears: BTreeMap<ConnId, (Decoder, Vec<(String, String)>)>,
    last: u32,
}

/// Makes a store with dom0, and with domains 1 and 2 in folders of their own.
pub fn three() -> (Talk, [ConnId; 3]) {
    three_with(Quotas::default())
}

/// Makes the store of [`three`] with these quotas.
pub fn three_with(quotas: Quotas) -> (Talk, [ConnId; 3]) {
    let mut talk = Talk::with(quotas);
    let connections = [0, 1, 2].map(|domain| talk.connect(domain));
    for domain in [1, 2] {
        let home = format!("/local/domain/{domain}");
        talk.mkdir(connections[0], 0, &home).unwrap();
        talk.chmod(connections[0], 0, &home, &format!("n{domain}")).unwrap();
        talk.server.introduce(DomId(domain));
    }
    (talk, connections)
}

pub type Answer = Result<Vec<u8>, StoreErrno>;

impl Talk {
    pub fn new() -> Self {
        Self::with(Quotas::default())
    }

    pub fn with(quotas: Quotas) -> Self {
        Self { server: Server::new(quotas), ears: BTreeMap::new(), last: 0 }
    }

    pub fn connect(&mut self, domain: u16) -> ConnId {
        let c = self.server.connect(DomId(domain));
        self.ears.insert(c, Default::default());
        c
    }

    /// Sends a request, reads all there is, and returns the request's answer.
    pub fn ask_in(&mut self, c: ConnId, tx: u32, kind: M, payload: &[u8]) -> Answer {
        self.last += 1;
        let bytes = encode(kind.number(), self.last, tx, &[payload]).unwrap();
        self.server.input(c, &bytes).unwrap();
        let (_, req, answer) = self.listen(c).pop().expect("an answer");
        assert_eq!(req, self.last);
        answer
    }

    pub fn ask(&mut self, c: ConnId, kind: M, payload: &[u8]) -> Answer {
        self.ask_in(c, 0, kind, payload)
    }

    /// Reads all that a connection has been sent. Returns the answers, and keeps the events.
    pub fn listen(&mut self, c: ConnId) -> Vec<(u32, u32, Answer)> {
        let (decoder, events) = self.ears.get_mut(&c).unwrap();
        let mut answers = Vec::new();
        loop {
            let bytes = self.server.output(c).to_vec();
            if bytes.is_empty() {
                break;
            }
            decoder.push(&bytes);
            self.server.written(c, bytes.len()).unwrap();
            while let Some(m) = decoder.next_message().unwrap() {
                if m.header.kind == M::WatchEvent.number() {
                    assert_eq!((m.header.req_id, m.header.tx_id), (0, 0));
                    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                    let strings = m.strings().unwrap();
                    assert_eq!(strings.len(), 2);
                    events.push((text(strings[0]), text(strings[1])));
                } else if m.header.kind == M::Error.number() {
                    let name = m.payload.strip_suffix(&[0]).unwrap();
                    let errno = StoreErrno::from_wire(name);
                    assert_eq!(errno.as_str().as_bytes(), name);
                    answers.push((m.header.kind, m.header.req_id, Err(errno)));
                } else {
                    answers.push((m.header.kind, m.header.req_id, Ok(m.payload)));
                }
            }
        }
        answers
    }

    /// Returns the paths of the events since the last call, with their tokens.
    pub fn events(&mut self, c: ConnId) -> Vec<(String, String)> {
        assert!(self.listen(c).is_empty(), "an answer that nobody awaits");
        std::mem::take(&mut self.ears.get_mut(&c).unwrap().1)
    }

    /// Returns the events of [`Talk::events`] as `path=token`.
    pub fn fired(&mut self, c: ConnId) -> Vec<String> {
        let events = self.events(c);
        events.iter().map(|(p, t)| format!("{p}={t}")).collect()
    }

    pub fn write(&mut self, c: ConnId, tx: u32, path: &str, value: &str) -> Result<(), StoreErrno> {
        let payload = format!("{path}\0{value}");
        self.ask_in(c, tx, M::Write, payload.as_bytes()).map(|ok| {
            assert_eq!(ok, b"OK\0");
        })
    }

    pub fn read(&mut self, c: ConnId, tx: u32, path: &str) -> Result<String, StoreErrno> {
        let value = self.ask_in(c, tx, M::Read, format!("{path}\0").as_bytes())?;
        Ok(String::from_utf8(value).unwrap())
    }

    pub fn rm(&mut self, c: ConnId, tx: u32, path: &str) -> Result<(), StoreErrno> {
        let payload = format!("{path}\0");
        self.ask_in(c, tx, M::Rm, payload.as_bytes()).map(drop)
    }

    pub fn mkdir(&mut self, c: ConnId, tx: u32, path: &str) -> Result<(), StoreErrno> {
        let payload = format!("{path}\0");
        self.ask_in(c, tx, M::Mkdir, payload.as_bytes()).map(drop)
    }

    pub fn list(&mut self, c: ConnId, tx: u32, path: &str) -> Result<Vec<String>, StoreErrno> {
        let names = self.ask_in(c, tx, M::Directory, format!("{path}\0").as_bytes())?;
        let names = String::from_utf8(names).unwrap();
        Ok(names.split_terminator('\0').map(str::to_owned).collect())
    }

    /// Sets permissions, written as `n0,r1`.
    pub fn chmod(&mut self, c: ConnId, tx: u32, path: &str, to: &str) -> Result<(), StoreErrno> {
        let payload = format!("{path}\0{}\0", to.replace(',', "\0"));
        self.ask_in(c, tx, M::SetPerms, payload.as_bytes()).map(drop)
    }

    pub fn perms(&mut self, c: ConnId, tx: u32, path: &str) -> Result<String, StoreErrno> {
        let text = self.ask_in(c, tx, M::GetPerms, format!("{path}\0").as_bytes())?;
        let text = text.strip_suffix(&[0]).unwrap().to_vec();
        Ok(String::from_utf8(text).unwrap().replace('\0', ","))
    }

    pub fn watch(&mut self, c: ConnId, path: &str, token: &str) -> Result<(), StoreErrno> {
        let payload = format!("{path}\0{token}\0");
        self.ask(c, M::Watch, payload.as_bytes()).map(drop)
    }

    pub fn unwatch(&mut self, c: ConnId, path: &str, token: &str) -> Result<(), StoreErrno> {
        let payload = format!("{path}\0{token}\0");
        self.ask(c, M::Unwatch, payload.as_bytes()).map(drop)
    }

    pub fn begin(&mut self, c: ConnId) -> Result<u32, StoreErrno> {
        let number = self.ask(c, M::TransactionStart, b"\0")?;
        let number = number.strip_suffix(&[0]).unwrap();
        Ok(std::str::from_utf8(number).unwrap().parse().unwrap())
    }

    pub fn end(&mut self, c: ConnId, tx: u32, keep: bool) -> Result<(), StoreErrno> {
        let how: &[u8] = if keep { b"T\0" } else { b"F\0" };
        self.ask_in(c, tx, M::TransactionEnd, how).map(drop)
    }
}

/// A server on Unix sockets, one for each domain, in a thread.
pub struct Served {
    pub server: Arc<Mutex<Server>>,
    folder: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn start(domains: &[u16]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listeners = domains
            .iter()
            .map(|d| {
                let listener = UnixListener::bind(socket(folder.path(), *d)).unwrap();
                listener.set_nonblocking(true).unwrap();
                (listener, DomId(*d))
            })
            .collect();
        let server = Arc::new(Mutex::new(Server::new(Quotas::default())));
        let stop = Arc::new(AtomicBool::new(false));
        let (s, st) = (Arc::clone(&server), Arc::clone(&stop));
        let thread = Some(std::thread::spawn(move || serve(&s, listeners, &st)));
        Self { server, folder, stop, thread }
    }

    pub fn socket(&self, domain: u16) -> PathBuf {
        socket(self.folder.path(), domain)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn socket(folder: &Path, domain: u16) -> PathBuf {
    folder.join(format!("domain-{domain}"))
}

fn serve(server: &Mutex<Server>, listeners: Vec<(UnixListener, DomId)>, stop: &AtomicBool) {
    let mut streams: Vec<(UnixStream, ConnId)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        {
            let server = server.lock().unwrap();
            let mut fds: Vec<PollFd<'_>> =
                listeners.iter().map(|(l, _)| PollFd::new(l, PollFlags::IN)).collect();
            for (stream, c) in &streams {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, server.wants_input(*c));
                flags.set(PollFlags::OUT, server.backlog(*c).output > 0);
                fds.push(PollFd::new(stream, flags));
            }
            drop(server);
            let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            poll(&mut fds, Some(&timeout)).unwrap();
        }
        let mut server = server.lock().unwrap();
        for (listener, domain) in &listeners {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).unwrap();
                streams.push((stream, server.connect(*domain)));
            }
        }
        streams.retain_mut(|(stream, c)| {
            let open = turn(&mut server, stream, *c).is_ok();
            if !open {
                server.disconnect(*c);
            }
            open
        });
    }
}

/// Reads once and writes what can be written. An error ends the connection.
fn turn(server: &mut Server, stream: &mut UnixStream, c: ConnId) -> Result<(), String> {
    let fatal = |e: Fatal| e.to_string();
    let mut chunk = [0; 8192];
    if server.wants_input(c) {
        match stream.read(&mut chunk) {
            Ok(0) => return Err("end".into()),
            Ok(n) => server.input(c, &chunk[..n]).map_err(fatal)?,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    loop {
        let bytes = server.output(c);
        if bytes.is_empty() {
            return Ok(());
        }
        match stream.write(bytes) {
            Ok(n) => server.written(c, n).map_err(fatal)?,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e.to_string()),
        }
    }
}
