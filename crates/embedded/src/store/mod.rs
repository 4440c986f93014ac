//! The embedded host's xenstore, with no I/O in it: bytes of the real wire protocol in, bytes out,
//! so that a stock `xenstore-ls` may talk to it.
//!
//! - `tree`, `children`: the nodes; persistent, so that a snapshot costs nothing.
//! - `transaction`, `view`: reads and changes of a domain, all at once.
//! - `watches`, `queue`: the receivers of a change, and output that waits.
//! - `request`: one message of the wire, and its answer.
//! - `host`: the same operations for the host's own process, as domain 0.
//!
//! # Promises
//!
//! - Permissions are those of xenstored: domain 0 may do everything. A domain learns that a node is
//!   missing (`ENOENT`) only if it may do the same with the nearest node above. Others get
//!   `EACCES`.
//! - A transaction sees the store as it was at its start. Its end gives `EAGAIN` if another
//!   connection has since changed a node that it looked at or changed. Nodes are judged one by one,
//!   and a node's value apart from its children's names: two transactions that make different
//!   children of one node both win. A transaction that changed nothing always wins.
//! - A watch fires once when it is set. Then it fires for its path, for all paths below, and for
//!   its path if that goes with a node above it. The watcher is told if it may read the node, could
//!   read it before, or may read its parent. Watches of a transaction fire at its end. An answer
//!   comes before the events that its request fired on the same connection.
//! - Equal events that wait are merged, and past a bound an event is told as one of the watched
//!   path. A connection with long output has no requests taken in until it has read (XSA-349 and
//!   its kind). No other connection waits for it.
//! - Quotas and their refusals: see [`Quotas`].
//! - When a domain is released, its nodes go, and its name goes from the permissions of others
//!   (XSA-322). So a later domain of that number inherits nothing.
//!
//! `SET_TARGET` is not implemented (`ENOSYS`): only device models need it.

mod access;
mod children;
mod host;
mod queue;
mod quota;
mod request;
mod transaction;
mod tree;
mod view;
mod watches;

pub use quota::{Quotas, Usage};

use grantway_hypervisor::{DomId, Permission, StoreErrno};
use grantway_xenstore::path;
use grantway_xenstore::wire::{Decoder, TooLong};
use queue::OutputQueue;
use quota::Ledger;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use transaction::{Change, Transaction};
use tree::Node;
use view::View;
use watches::Watches;

/// Bytes of output from which on no requests are taken in.
const PAUSE_AT: usize = 64 * 1024;

/// Most bytes of input that are held back. A host that looks at [`Server::wants_input`] before each
/// read never comes near.
const MAX_HELD: usize = 1024 * 1024;

/// Most distinct events that wait for an unprivileged connection, and for one of domain 0. Further
/// events are told as events of the watched path.
const MAX_EVENTS: usize = 1024;
const MAX_EVENTS_DOM0: usize = 8192;

const INTRODUCE: &str = "@introduceDomain";
const RELEASE: &str = "@releaseDomain";

/// Number of a connection. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(u64);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reason why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fatal {
    /// A payload is too long. The stream cannot be read any more.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// Too many bytes came in while the other side did not read its output. See
    /// [`Server::wants_input`].
    #[error("xenstore input: found {held} bytes held back, expected at most {MAX_HELD}")]
    Overrun {
        /// Bytes that are held back.
        held: usize,
    },
    /// The connection does not exist, or was closed.
    #[error("xenstore connection {0}: found none with this number, expected an open one")]
    Closed(ConnId),
}

/// Bytes that wait in a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes that came in and were not looked at, or are no whole message.
    pub input: usize,
    /// Bytes to be written.
    pub output: usize,
}

#[derive(Debug)]
struct Connection {
    domain: DomId,
    decoder: Decoder,
    output: OutputQueue,
    transactions: BTreeMap<u32, Transaction>,
}

/// The store.
#[derive(Debug)]
pub struct Server {
    quotas: Quotas,
    root: Arc<Node>,
    /// The last generation that was given out.
    clock: u64,
    last_connection: u64,
    last_transaction: u32,
    connections: BTreeMap<ConnId, Connection>,
    /// Connections that have output.
    speaking: BTreeSet<ConnId>,
    watches: Watches,
    ledger: Ledger,
    introduced: BTreeSet<DomId>,
    /// Permissions of `@introduceDomain` and `@releaseDomain`.
    special: BTreeMap<&'static str, Arc<[Permission]>>,
}

impl Server {
    /// Makes a store with a root node only. Only domain 0 may read it.
    #[must_use]
    pub fn new(quotas: Quotas) -> Self {
        let mut ledger = Ledger::default();
        ledger.nodes(DomId::ZERO, 1);
        Self {
            quotas,
            root: Arc::new(Node::new(b"", tree::only_dom0(), 1)),
            clock: 1,
            last_connection: 0,
            last_transaction: 0,
            connections: BTreeMap::new(),
            speaking: BTreeSet::new(),
            watches: Watches::default(),
            ledger,
            introduced: BTreeSet::new(),
            special: [INTRODUCE, RELEASE].map(|name| (name, tree::only_dom0())).into(),
        }
    }

    /// Makes a connection of a domain; domain 0 is privileged.
    pub fn connect(&mut self, domain: DomId) -> ConnId {
        self.last_connection += 1;
        let id = ConnId(self.last_connection);
        let max_events = match domain {
            DomId::ZERO => MAX_EVENTS_DOM0,
            _ => MAX_EVENTS,
        };
        let connection = Connection {
            domain,
            decoder: Decoder::new(),
            output: OutputQueue::new(max_events),
            transactions: BTreeMap::new(),
        };
        self.connections.insert(id, connection);
        id
    }

    /// Ends a connection, its watches and its transactions.
    pub fn disconnect(&mut self, c: ConnId) {
        self.reset(c);
        self.connections.remove(&c);
        self.speaking.remove(&c);
    }

    /// Takes in bytes that the connection sent, and handles each whole message. Bytes that come
    /// while [`Server::wants_input`] is false are held back until the output was read.
    ///
    /// # Errors
    ///
    /// Returns [`Fatal`] if the connection must be closed. Call [`Server::disconnect`] then.
    pub fn input(&mut self, c: ConnId, bytes: &[u8]) -> Result<(), Fatal> {
        let connection = self.connections.get_mut(&c).ok_or(Fatal::Closed(c))?;
        connection.decoder.push(bytes);
        self.work(c)?;
        match self.backlog(c).input {
            held if held > MAX_HELD => Err(Fatal::Overrun { held }),
            _ => Ok(()),
        }
    }

    /// Returns true if the connection may be read from now. It may not while it does not read its
    /// own output.
    #[must_use]
    pub fn wants_input(&self, c: ConnId) -> bool {
        self.connections.get(&c).is_some_and(|connection| connection.output.bytes() < PAUSE_AT)
    }

    /// Returns the next bytes to write to the connection; empty if there are none. Tell the number
    /// of bytes written with [`Server::written`].
    pub fn output(&mut self, c: ConnId) -> &[u8] {
        match self.connections.get_mut(&c) {
            Some(connection) => connection.output.front(),
            None => &[],
        }
    }

    /// Notes that the first `count` bytes of [`Server::output`] were written, and goes on with
    /// requests that were held back.
    ///
    /// # Errors
    ///
    /// The errors of [`Server::input`].
    pub fn written(&mut self, c: ConnId, count: usize) -> Result<(), Fatal> {
        let connection = self.connections.get_mut(&c).ok_or(Fatal::Closed(c))?;
        connection.output.advance(count);
        if connection.output.bytes() == 0 {
            self.speaking.remove(&c);
        }
        self.work(c)
    }

    /// Returns the connections that have output. Check them after each call that may fire watches,
    /// since any connection may have events then.
    pub fn connections_with_output(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.speaking.iter().copied()
    }

    /// Returns the bytes that wait in a connection.
    #[must_use]
    pub fn backlog(&self, c: ConnId) -> Backlog {
        self.connections.get(&c).map_or_else(Backlog::default, |connection| Backlog {
            input: connection.decoder.held(),
            output: connection.output.bytes(),
        })
    }

    /// Returns the present usage of a domain.
    #[must_use]
    pub fn usage(&self, domain: DomId) -> Usage {
        self.ledger.of(domain)
    }

    /// Handles messages for as long as there are whole ones and the output is short.
    fn work(&mut self, c: ConnId) -> Result<(), Fatal> {
        while self.wants_input(c) {
            let Some(connection) = self.connections.get_mut(&c) else {
                break;
            };
            let domain = connection.domain;
            match connection.decoder.next_message()? {
                Some(message) => self.handle(c, domain, &message),
                None => break,
            }
        }
        Ok(())
    }

    /// Ends all watches and transactions of a connection.
    fn reset(&mut self, c: ConnId) {
        let Some(connection) = self.connections.get_mut(&c) else {
            return;
        };
        let transactions = connection.transactions.len();
        connection.transactions.clear();
        let domain = connection.domain;
        let watches = self.watches.remove_all(c);
        self.ledger.change(domain, |usage| {
            usage.transactions = usage.transactions.saturating_sub(transactions);
            usage.watches = usage.watches.saturating_sub(watches);
        });
    }

    /// Carries out `body` at once. [`Server::fire`] has to tell the change, once the answer is on
    /// its way.
    fn at_once<T>(
        &mut self,
        caller: DomId,
        body: impl FnOnce(&mut View<'_>) -> Result<T, StoreErrno>,
    ) -> Result<(T, Option<Change>), StoreErrno> {
        let mut transaction = Transaction::at_once(&self.root);
        let value = body(&mut View {
            transaction: &mut transaction,
            caller,
            quotas: &self.quotas,
            ledger: &self.ledger,
            clock: &mut self.clock,
        })?;
        let change = self.commit(caller, transaction)?;
        Ok((value, change))
    }

    /// Makes a transaction's changes the store's. Returns the change, if there is one.
    fn commit(
        &mut self,
        caller: DomId,
        transaction: Transaction,
    ) -> Result<Option<Change>, StoreErrno> {
        let new = transaction.onto(&self.root, &mut self.clock)?;
        if caller != DomId::ZERO {
            let delta = transaction.nodes.get(&caller).copied().unwrap_or(0);
            let nodes = self.ledger.of(caller).nodes.saturating_add_signed(delta);
            if delta > 0 && nodes > self.quotas.nodes {
                return Err(StoreErrno::Enospc);
            }
        }
        if transaction.touched.is_empty() {
            return Ok(None);
        }
        for (domain, delta) in transaction.nodes {
            self.ledger.nodes(domain, delta);
        }
        let old = std::mem::replace(&mut self.root, Arc::clone(&new));
        let touched = transaction.touched;
        Ok(Some(Change { old, new, touched }))
    }

    /// Fires the watches of a change.
    fn fire(&mut self, change: &Change) {
        for (path, touch) in &change.touched {
            let old = tree::lookup(&change.old, path);
            let new = tree::lookup(&change.new, path);
            let gone = new.is_none() && (old.is_none() || !touch.replaced);
            if touch.fires && !gone {
                self.tell(path, false, change);
            }
            if let (true, Some(old)) = (touch.replaced, old) {
                tree::walk(path, old, &mut |below, _| {
                    if below != path && tree::lookup(&change.new, below).is_none() {
                        self.tell(below, true, change);
                    }
                });
            }
        }
    }

    /// Tells one path's change to the watches on that path, and unless `exact` to those above.
    fn tell(&mut self, path: &str, exact: bool, change: &Change) {
        let above = tree::parent(path).unwrap_or("/");
        let nodes = [
            tree::lookup(&change.new, path),
            tree::lookup(&change.old, path),
            tree::lookup(&change.new, above).or_else(|| tree::lookup(&change.old, above)),
        ];
        for (top, watcher) in self.watches.of(path, exact) {
            let mut nodes = nodes.iter().flatten();
            if nodes.any(|n| access::may(watcher.domain, &n.permissions, access::Want::Read)) {
                let shown = path.get(watcher.hidden..).unwrap_or_default();
                let top = top.get(watcher.hidden..).unwrap_or_default();
                if let Some(connection) = self.connections.get_mut(&watcher.connection) {
                    connection.output.event(shown, &watcher.token, top);
                    self.speaking.insert(watcher.connection);
                }
            }
        }
    }

    /// Fires `@introduceDomain` or `@releaseDomain`.
    fn tell_special(&mut self, name: &str) {
        let permissions = self.special.get(name).cloned().unwrap_or_default();
        for (_, watcher) in self.watches.of(name, true) {
            if access::may(watcher.domain, &permissions, access::Want::Read)
                && let Some(connection) = self.connections.get_mut(&watcher.connection)
            {
                connection.output.event(name, &watcher.token, name);
                self.speaking.insert(watcher.connection);
            }
        }
    }

    /// Returns the absolute path, and the number of its bytes that were not in `given`.
    fn resolve(&self, domain: DomId, given: &[u8]) -> Result<(String, usize), StoreErrno> {
        let (kind, text) = path::validate(given).map_err(|_| StoreErrno::Einval)?;
        let (full, hidden) = match kind {
            path::Kind::Absolute | path::Kind::Special => (text.to_owned(), 0),
            path::Kind::Relative => {
                let home = path::home(domain);
                (format!("{home}/{text}"), home.len() + 1)
            }
        };
        let deepest = self.quotas.depth.min(Quotas::MAX_DEPTH);
        match tree::names(&full).count() <= deepest {
            true => Ok((full, hidden)),
            false => Err(StoreErrno::Einval),
        }
    }

    /// Returns the absolute path of a node, as [`Server::resolve`] does, and refuses the special
    /// ones.
    fn node_path(&self, domain: DomId, given: &[u8]) -> Result<String, StoreErrno> {
        match self.resolve(domain, given)? {
            (path, _) if path.starts_with('/') => Ok(path),
            _ => Err(StoreErrno::Einval),
        }
    }
}
