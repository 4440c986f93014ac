//! Client of a store.

#[cfg(all(test, feature = "std"))]
mod tests;

use crate::events::EventQueue;
use crate::permission;
use crate::transport::{Ready, Transport, TransportError};
use crate::wire::{Decoder, Message, MessageType, encode, strings};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
#[cfg(feature = "std")]
use grantway_hypervisor::Store;
use grantway_hypervisor::{
    DomId, Error, FrontendStore, Permission, StoreErrno, StoreOps, WatchEvent,
};
#[cfg(feature = "std")]
use std::os::fd::{AsFd, BorrowedFd};

/// Default path of xenstored's socket.
pub const DEFAULT_SOCKET: &str = "/run/xenstored/socket";

/// Number of attempts to read a list in parts that changes meanwhile.
const LIST_TRIES: usize = 100;

/// First and longest time between two attempts of a patient client to begin a transaction. Each
/// time is twice the one before: many clients that ask often would keep the store from the
/// requests for whose end they wait.
const BEGIN_WAIT: Duration = Duration::from_millis(5);
const BEGIN_WAIT_MAX: Duration = Duration::from_millis(320);
/// Time after which a patient client makes its last attempt. It is long, as a domain whose
/// processes all begin at once on a busy machine is slow.
const BEGIN_WITHIN: Duration = Duration::from_secs(120);

/// Client over any transport, such as a Unix socket or the file `/dev/xen/xenbus`.
///
/// A request blocks until its answer comes. Watch events that come meanwhile are queued for
/// [`FrontendStore::next_event`]. Equal events are merged. Their memory is limited
/// ([`Client::events_within`]). Past the limit, one event per watch is kept: an event only means
/// "read again".
///
/// The connection ends if the store breaks the protocol or closes it. Every later call then returns
/// [`Error::Gone`].
pub struct Client<T> {
    transport: T,
    name: String,
    decoder: Decoder,
    events: EventQueue,
    last_request: u32,
    transaction: Option<u32>,
    /// Time to wait for room for a transaction.
    begin_within: Duration,
    gone: bool,
}

impl<T> fmt::Debug for Client<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .field("transaction", &self.transaction)
            .field("gone", &self.gone)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "std")]
impl Client<std::os::unix::net::UnixStream> {
    /// Connects to the store that listens on a Unix socket.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Os`] if no store listens there. The message names the program to start.
    pub fn connect(socket: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        use std::io::ErrorKind;
        let socket = socket.as_ref();
        let stream = std::os::unix::net::UnixStream::connect(socket).map_err(|e| Error::Os {
            call: format!("connect {}", socket.display()),
            reason: e.to_string(),
            remedy: match e.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    "start `grantway host` (any Linux) or xenstored (Xen), or name its socket"
                }
                ErrorKind::PermissionDenied => "run as root, or as the user who started the store",
                _ => "look at the path of the socket",
            },
        })?;
        let mut client = Self::over(stream);
        client.name = format!("xenstore at {}", socket.display());
        Ok(client)
    }
}

impl<T: Transport> Client<T> {
    /// Makes a client over a connected transport. The transport may be blocking or non-blocking.
    #[must_use]
    pub fn over(transport: T) -> Self {
        Self {
            transport,
            name: "xenstore".to_owned(),
            decoder: Decoder::new(),
            events: EventQueue::default(),
            last_request: 0,
            transaction: None,
            begin_within: Duration::ZERO,
            gone: false,
        }
    }

    /// Makes the client wait for at most two minutes if its domain has used up its transactions.
    /// xenstored allows ten at a time for all processes of a guest.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.begin_within = BEGIN_WITHIN;
        self
    }

    /// Limits the memory of queued events to this number of bytes, in place of
    /// [`crate::MAX_QUEUED_BYTES`]. Call it before the first watch.
    #[must_use]
    pub fn events_within(mut self, bytes: usize) -> Self {
        self.events = EventQueue::within(bytes);
        self
    }

    /// Sets the name of the store for [`Error::Gone`], in words that operators know.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns the permissions of a node. The first entry names its owner.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `ENOENT` if the node does not exist.
    pub fn permissions(&mut self, path: &str) -> Result<Vec<Permission>, Error> {
        let answer = self.on_path(MessageType::GetPerms, path, &[])?;
        let texts = strings(&answer);
        texts
            .and_then(|all| all.into_iter().map(permission::from_text).collect())
            .ok_or_else(|| self.broken(&answer, "permissions such as n0 or r7"))
    }

    /// Sets the permissions of a node. The first entry names its owner.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `EACCES` if the node belongs to another domain.
    pub fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error> {
        let mut texts = Vec::new();
        for permission in permissions {
            texts.extend_from_slice(permission::to_text(*permission).as_bytes());
            texts.push(0);
        }
        self.on_path(MessageType::SetPerms, path, &[&texts]).map(drop)
    }

    /// Ends a watch.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `ENOENT` if the connection has no such watch.
    pub fn unwatch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        if [path, token].iter().any(|s| s.as_bytes().contains(&0)) {
            return Err(refused("unwatch", path, StoreErrno::Einval));
        }
        let parts: [&[u8]; 4] = [path.as_bytes(), b"\0", token.as_bytes(), b"\0"];
        self.request(MessageType::Unwatch, 0, path, &parts)?;
        self.events.unwatch(path, token);
        Ok(())
    }

    /// Makes a node with an empty value, and its parents. An existing node does not change.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`StoreOps::write`].
    pub fn make_directory(&mut self, path: &str) -> Result<(), Error> {
        self.on_path(MessageType::Mkdir, path, &[]).map(drop)
    }

    /// Returns the folder of a domain, also if the domain does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`].
    pub fn domain_path(&mut self, domain: DomId) -> Result<String, Error> {
        let answer = self.on_path(MessageType::GetDomainPath, &domain.to_string(), &[])?;
        Ok(text(answer.strip_suffix(&[0]).unwrap_or(&answer)))
    }

    /// Returns true if the store knows the domain.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`].
    pub fn is_introduced(&mut self, domain: DomId) -> Result<bool, Error> {
        let answer = self.on_path(MessageType::IsDomainIntroduced, &domain.to_string(), &[])?;
        match answer.as_slice() {
            b"T\0" => Ok(true),
            b"F\0" => Ok(false),
            _ => Err(self.broken(&answer, "T or F")),
        }
    }

    /// Ends all watches and the transaction of this connection.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `ENOSYS` if the store is too old for this request.
    pub fn reset_watches(&mut self) -> Result<(), Error> {
        self.request(MessageType::ResetWatches, 0, "", &[b"\0"])?;
        self.events.unwatch_all();
        self.transaction = None;
        Ok(())
    }

    fn list_whole(&mut self, path: &str) -> Result<Vec<String>, Error> {
        let answer = self.on_path(MessageType::Directory, path, &[])?;
        match strings(&answer) {
            Some(names) => Ok(names.into_iter().map(text).collect()),
            None => Err(self.broken(&answer, "names that end in a NUL")),
        }
    }

    /// A long list, a part at a time; from the start when it changes meanwhile.
    fn list_parts(&mut self, path: &str) -> Result<Vec<String>, Error> {
        const WANTED: &str = "a generation and names, an empty one last";
        'again: for _ in 0..LIST_TRIES {
            let mut names: Vec<String> = Vec::new();
            let mut offset = 0_usize;
            let mut generation: Option<Vec<u8>> = None;
            loop {
                let from = offset.to_string();
                let parts: [&[u8]; 2] = [from.as_bytes(), b"\0"];
                let answer = self.on_path(MessageType::DirectoryPart, path, &parts)?;
                let Some((now, part)) = strings(&answer)
                    .as_deref()
                    .and_then(<[_]>::split_first)
                    .map(|(now, part)| (now.to_vec(), part.to_vec()))
                else {
                    return Err(self.broken(&answer, WANTED));
                };
                if *generation.get_or_insert_with(|| now.clone()) != now {
                    continue 'again;
                }
                for name in &part {
                    if name.is_empty() {
                        return Ok(names);
                    }
                    offset = offset.saturating_add(name.len() + 1);
                    names.push(text(name));
                }
                if part.is_empty() {
                    return Err(self.broken(&answer, WANTED));
                }
            }
        }
        Err(refused("list", path, StoreErrno::Eagain))
    }

    /// A request about a path, which ends in a NUL, with `rest` after it.
    fn on_path(&mut self, kind: MessageType, path: &str, rest: &[&[u8]]) -> Result<Vec<u8>, Error> {
        if path.as_bytes().contains(&0) {
            return Err(refused(kind.word(), path, StoreErrno::Einval));
        }
        let mut parts: Vec<&[u8]> = vec![path.as_bytes(), b"\0"];
        parts.extend_from_slice(rest);
        let tx = self.transaction.unwrap_or(0);
        self.request(kind, tx, path, &parts)
    }

    fn request(
        &mut self,
        kind: MessageType,
        tx: u32,
        path: &str,
        parts: &[&[u8]],
    ) -> Result<Vec<u8>, Error> {
        if self.gone {
            return Err(self.is_gone());
        }
        let req = self.last_request.wrapping_add(1);
        let bytes = encode(kind.number(), req, tx, parts)
            .map_err(|_| refused(kind.word(), path, StoreErrno::E2big))?;
        self.last_request = req;
        self.send(&bytes)?;
        loop {
            let message = match self.next_message()? {
                Some(message) => message,
                None => {
                    self.receive(true)?;
                    continue;
                }
            };
            let header = message.header;
            if header.kind == MessageType::WatchEvent.number() {
                self.take_event(&message)?;
                continue;
            }
            if header.req_id != req {
                let found = format!("the answer to request {}", header.req_id);
                return Err(self.broken_by(found, "the answer to the last request"));
            }
            if header.kind == MessageType::Error.number() {
                let name = message.payload.split(|b| *b == 0).next();
                let errno = StoreErrno::from_wire(name.unwrap_or_default());
                return Err(refused(kind.word(), path, errno));
            }
            if header.kind != kind.number() {
                let found = format!("an answer of type {}", header.kind);
                return Err(self.broken_by(found, "one of the request's type"));
            }
            return Ok(message.payload);
        }
    }

    /// Returns true if an event came, or may have come, that [`FrontendStore::next_event`] gives
    /// without a look at the transport.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || self.decoder.has_message()
    }

    fn take_event(&mut self, message: &Message) -> Result<(), Error> {
        // A third string may follow in later versions of the protocol.
        match message.strings().as_deref() {
            Some([path, token, ..]) => {
                self.events.push(text(path), text(token));
                Ok(())
            }
            _ => Err(self.broken(&message.payload, "a path and a token")),
        }
    }

    fn next_message(&mut self) -> Result<Option<Message>, Error> {
        match self.decoder.next_message() {
            Ok(message) => Ok(message),
            Err(e) => {
                Err(self.broken_by(format!("a payload of {} bytes", e.found), "at most 4096 bytes"))
            }
        }
    }

    /// Takes in what there is, once; waits for it if `block`. Whether anything
    /// came.
    fn receive(&mut self, block: bool) -> Result<bool, Error> {
        let mut chunk = [0; 4096];
        loop {
            if !self.wait(Ready::Read, block)? {
                return Ok(false);
            }
            match self.transport.read(&mut chunk) {
                Ok(n) => {
                    self.decoder.push(chunk.get(..n).unwrap_or_default());
                    return Ok(true);
                }
                Err(TransportError::NotReady) if block => {}
                Err(TransportError::NotReady) => return Ok(false),
                Err(e) => return Err(self.failed(e)),
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            match self.transport.write(bytes) {
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(TransportError::NotReady) => {
                    self.wait(Ready::Write, true)?;
                }
                Err(e) => return Err(self.failed(e)),
            }
        }
        Ok(())
    }

    /// Waits for the transport. Returns true if it is ready, or hung up; a read then reports the
    /// latter.
    fn wait(&mut self, ready: Ready, block: bool) -> Result<bool, Error> {
        self.transport.wait(ready, block).map_err(|e| self.failed(e))
    }

    fn failed(&mut self, error: TransportError) -> Error {
        self.gone = true;
        match error {
            TransportError::Failed(reason) => Error::Os {
                call: self.name.clone(),
                reason,
                remedy: "look at the store's log, and connect again",
            },
            TransportError::Closed | TransportError::NotReady => self.is_gone(),
        }
    }

    fn is_gone(&self) -> Error {
        let what = self.name.clone();
        Error::Gone { what }
    }

    fn broken(&mut self, found: &[u8], expected: &'static str) -> Error {
        let shown = found.get(..64).unwrap_or(found);
        self.broken_by(format!("\"{}\"", shown.escape_ascii()), expected)
    }

    /// The store cannot be understood any more.
    fn broken_by(&mut self, found: String, expected: &'static str) -> Error {
        self.gone = true;
        Error::Protocol { what: "xenstore", found, expected }
    }
}

impl<T: Transport> StoreOps for Client<T> {
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        self.on_path(MessageType::Read, path, &[])
    }

    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
        self.on_path(MessageType::Write, path, &[value]).map(drop)
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        self.on_path(MessageType::Rm, path, &[]).map(drop)
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        match self.list_whole(path) {
            Err(Error::Store { errno: StoreErrno::E2big, .. }) => self.list_parts(path),
            other => other,
        }
    }
}

impl<T: Transport + Send> FrontendStore for Client<T> {
    fn begin(&mut self) -> Result<(), Error> {
        if self.transaction.is_some() {
            return Err(refused("begin", "", StoreErrno::Ebusy));
        }
        let (mut waited, mut wait) = (Duration::ZERO, BEGIN_WAIT);
        let answer = loop {
            match self.request(MessageType::TransactionStart, 0, "", &[b"\0"]) {
                // Other processes of the domain are about to end theirs.
                Err(Error::Store { errno: StoreErrno::Enospc, .. })
                    if waited < self.begin_within =>
                {
                    self.transport.pause(wait);
                    waited += wait;
                    wait = (wait * 2).min(BEGIN_WAIT_MAX);
                }
                answer => break answer?,
            }
        };
        let number = answer.strip_suffix(&[0]).unwrap_or(&answer);
        let number = core::str::from_utf8(number).ok();
        match number.and_then(|n| n.parse().ok()).filter(|n| *n != 0) {
            Some(number) => {
                self.transaction = Some(number);
                Ok(())
            }
            None => Err(self.broken(&answer, "a transaction's number")),
        }
    }

    fn end(&mut self, commit: bool) -> Result<(), Error> {
        let Some(tx) = self.transaction.take() else {
            return Err(refused("end", "", StoreErrno::Enoent));
        };
        let how: &[u8] = if commit { b"T\0" } else { b"F\0" };
        self.request(MessageType::TransactionEnd, tx, "", &[how]).map(drop)
    }

    fn watch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        if [path, token].iter().any(|s| s.as_bytes().contains(&0)) {
            return Err(refused("watch", path, StoreErrno::Einval));
        }
        // Before the answer: the first event may come sooner than that.
        self.events.watch(path, token);
        let parts: [&[u8]; 4] = [path.as_bytes(), b"\0", token.as_bytes(), b"\0"];
        let answer = self.request(MessageType::Watch, 0, path, &parts);
        if answer.is_err() {
            self.events.unwatch(path, token);
        }
        answer.map(drop)
    }

    fn next_event(&mut self) -> Result<Option<WatchEvent>, Error> {
        loop {
            if let Some(event) = self.events.pop() {
                return Ok(Some(event));
            }
            if self.gone {
                return Err(self.is_gone());
            }
            while let Some(message) = self.next_message()? {
                if message.header.kind != MessageType::WatchEvent.number() {
                    let found = format!("an answer of type {}", message.header.kind);
                    return Err(self.broken_by(found, "no answer, as none is awaited"));
                }
                self.take_event(&message)?;
            }
            if let Some(event) = self.events.pop() {
                return Ok(Some(event));
            }
            if !self.receive(false)? {
                return Ok(None);
            }
        }
    }

    #[cfg(feature = "std")]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.transport.descriptor()
    }
}

#[cfg(feature = "std")]
impl<T: AsFd> AsFd for Client<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

#[cfg(feature = "std")]
impl<T: Transport + AsFd + Send> Store for Client<T> {
    fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error> {
        Self::set_permissions(self, path, permissions)
    }

    fn unwatch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        Self::unwatch(self, path, token)
    }
}

fn refused(what: &'static str, path: &str, errno: StoreErrno) -> Error {
    Error::Store { what, path: path.to_owned(), errno }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
