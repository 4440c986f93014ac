//! One request of the wire, and its answer.

use super::access::{Want, may};
use super::transaction::{Change, Transaction};
use super::view::View;
use super::watches::Watcher;
use super::{ConnId, Server};
use grantway_hypervisor::{DomId, Permission, StoreErrno};
use grantway_xenstore::wire::{Message, MessageType, PAYLOAD_MAX, encode};
use grantway_xenstore::{path, permission};
use std::sync::Arc;

/// An answer, and the events that are told after it.
struct Answer {
    payload: Vec<u8>,
    then: Then,
}

enum Then {
    Nothing,
    Fire(Change),
    /// The event of a watch that was just set.
    First {
        path: Vec<u8>,
        token: Arc<[u8]>,
    },
    Introduce(DomId),
    Release(DomId),
}

type Result<T> = std::result::Result<T, StoreErrno>;

const OK: &[u8] = b"OK\0";

const HELP: &[u8] = b"Supported commands:\ncheck\nhelp\nprint\n\0";

impl Answer {
    fn of(payload: impl Into<Vec<u8>>) -> Self {
        let payload = payload.into();
        let then = Then::Nothing;
        Self { payload, then }
    }

    fn ok(then: Then) -> Self {
        let payload = OK.to_vec();
        Self { payload, then }
    }

    fn changed(change: Option<Change>) -> Self {
        Self::ok(change.map_or(Then::Nothing, Then::Fire))
    }
}

/// The sender of a request, and its transaction.
#[derive(Clone, Copy)]
struct Asker {
    connection: ConnId,
    domain: DomId,
    transaction: u32,
}

impl Server {
    /// Handles one message, and queues its answer and then the events that it fired.
    pub(super) fn handle(&mut self, c: ConnId, domain: DomId, message: &Message) {
        let header = message.header;
        let asker = Asker { connection: c, domain, transaction: header.tx_id };
        let answer = self.answer(asker, header.kind, &message.payload);
        let (kind, payload, then) = match answer {
            Ok(answer) if answer.payload.len() <= PAYLOAD_MAX => {
                (header.kind, answer.payload, answer.then)
            }
            // Only reads have long answers, and reads have no `then`.
            Ok(_) => error(StoreErrno::E2big),
            Err(errno) => error(errno),
        };
        if let Some(connection) = self.connections.get_mut(&c) {
            // The payload was measured above, so it is never too long.
            let bytes = encode(kind, header.req_id, header.tx_id, &[&payload]);
            connection.output.answer(bytes.unwrap_or_default());
            self.speaking.insert(c);
        }
        match then {
            Then::Nothing => {}
            Then::Fire(change) => self.fire(&change),
            Then::First { path, token } => {
                if let Some(connection) = self.connections.get_mut(&c) {
                    let path = String::from_utf8_lossy(&path);
                    connection.output.event(&path, &token, &path);
                }
            }
            Then::Introduce(domain) => self.introduce(domain),
            Then::Release(domain) => self.release(domain),
        }
    }

    fn answer(&mut self, asker: Asker, kind: u32, payload: &[u8]) -> Result<Answer> {
        use MessageType as M;
        let kind = M::from_wire(kind).ok_or(StoreErrno::Enosys)?;
        // A transaction has to be one of this connection's.
        if asker.transaction != 0 {
            let connection = self.connections.get(&asker.connection);
            connection
                .filter(|c| c.transactions.contains_key(&asker.transaction))
                .ok_or(StoreErrno::Enoent)?;
        }
        match kind {
            M::Read => {
                let path = self.only_path(asker, payload)?;
                let (value, _) = self.within(asker, |view| view.read(&path))?;
                Ok(Answer::of(value.to_vec()))
            }
            M::Directory => self.directory(asker, payload),
            M::DirectoryPart => self.directory_part(asker, payload),
            M::GetPerms => self.get_permissions(asker, payload),
            M::SetPerms => self.set_perms(asker, payload),
            M::Write => {
                let (given, value) = split(payload)?;
                let path = self.node_path(asker.domain, given)?;
                let ((), change) = self.within(asker, |view| view.write(&path, value))?;
                Ok(Answer::changed(change))
            }
            M::Mkdir => {
                let path = self.only_path(asker, payload)?;
                let ((), change) = self.within(asker, |view| view.make(&path))?;
                Ok(Answer::changed(change))
            }
            M::Rm => {
                let path = self.only_path(asker, payload)?;
                let ((), change) = self.within(asker, |view| view.remove(&path))?;
                Ok(Answer::changed(change))
            }
            M::Watch => self.watch(asker, payload),
            M::Unwatch => self.unwatch(asker, payload),
            M::ResetWatches => {
                self.reset(asker.connection);
                Ok(Answer::ok(Then::Nothing))
            }
            M::TransactionStart => self.start(asker),
            M::TransactionEnd => self.end(asker, payload),
            M::GetDomainPath => {
                let domain = only_domain(payload)?;
                Ok(Answer::of(path::home(domain) + "\0"))
            }
            M::IsDomainIntroduced => {
                let known = self.is_introduced(only_domain(payload)?);
                Ok(Answer::of(if known { *b"T\0" } else { *b"F\0" }))
            }
            M::Introduce => {
                privileged(asker)?;
                // A frame and a port follow, which mean nothing here.
                let (domain, _) = split(payload)?;
                Ok(Answer::ok(Then::Introduce(domain_of(domain)?)))
            }
            M::Release => {
                privileged(asker)?;
                match only_domain(payload)? {
                    DomId::ZERO => Err(StoreErrno::Einval),
                    d if self.is_introduced(d) => Ok(Answer::ok(Then::Release(d))),
                    _ => Err(StoreErrno::Enoent),
                }
            }
            M::Resume => {
                privileged(asker)?;
                match self.is_introduced(only_domain(payload)?) {
                    true => Ok(Answer::ok(Then::Nothing)),
                    false => Err(StoreErrno::Enoent),
                }
            }
            M::Control => {
                privileged(asker)?;
                let (command, _) = split(payload)?;
                match command {
                    b"check" | b"print" => Ok(Answer::ok(Then::Nothing)),
                    b"help" => Ok(Answer::of(HELP)),
                    _ => Err(StoreErrno::Einval),
                }
            }
            M::SetTarget | M::WatchEvent | M::Error => Err(StoreErrno::Enosys),
        }
    }

    /// Carries out `body` in the asker's transaction, or at once.
    fn within<T>(
        &mut self,
        asker: Asker,
        body: impl FnOnce(&mut View<'_>) -> Result<T>,
    ) -> Result<(T, Option<Change>)> {
        if asker.transaction == 0 {
            return self.at_once(asker.domain, body);
        }
        let connection = self.connections.get_mut(&asker.connection);
        let transaction = connection
            .and_then(|c| c.transactions.get_mut(&asker.transaction))
            .ok_or(StoreErrno::Enoent)?;
        let value = body(&mut View {
            transaction,
            caller: asker.domain,
            quotas: &self.quotas,
            ledger: &self.ledger,
            clock: &mut self.clock,
        })?;
        Ok((value, None))
    }

    fn only_path(&self, asker: Asker, payload: &[u8]) -> Result<String> {
        self.node_path(asker.domain, only(payload)?)
    }

    fn directory(&mut self, asker: Asker, payload: &[u8]) -> Result<Answer> {
        let path = self.only_path(asker, payload)?;
        let (node, _) = self.within(asker, |view| view.list(&path))?;
        let mut names = Vec::new();
        for name in node.children.names() {
            if names.len() > PAYLOAD_MAX {
                return Err(StoreErrno::E2big);
            }
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        Ok(Answer::of(names))
    }

    /// Returns the list's generation, then names from an offset on, in bytes of the whole list with
    /// its NULs. An empty name ends the last part.
    fn directory_part(&mut self, asker: Asker, payload: &[u8]) -> Result<Answer> {
        let (given, rest) = split(payload)?;
        let path = self.node_path(asker.domain, given)?;
        let offset = std::str::from_utf8(only(rest)?).ok();
        let offset: usize = offset.and_then(|text| text.parse().ok()).ok_or(StoreErrno::Einval)?;
        let (node, _) = self.within(asker, |view| view.list(&path))?;
        let mut part = format!("{}\0", node.children_generation).into_bytes();
        let mut at = 0_usize;
        for name in node.children.names() {
            // One byte is kept for the empty name, which follows if this name is the last.
            if at >= offset && part.len() + name.len() + 2 > PAYLOAD_MAX {
                return Ok(Answer::of(part));
            }
            if at >= offset {
                part.extend_from_slice(name.as_bytes());
                part.push(0);
            }
            at += name.len() + 1;
        }
        part.push(0);
        Ok(Answer::of(part))
    }

    fn get_permissions(&mut self, asker: Asker, payload: &[u8]) -> Result<Answer> {
        let (path, _) = self.resolve(asker.domain, only(payload)?)?;
        let permissions = if path.starts_with('@') {
            let there = self.special.get(path.as_str()).ok_or(StoreErrno::Enoent)?;
            match may(asker.domain, there, Want::Read) {
                true => Arc::clone(there),
                false => return Err(StoreErrno::Eacces),
            }
        } else {
            self.within(asker, |view| view.permissions(&path))?.0
        };
        let mut text = Vec::new();
        for permission in permissions.iter() {
            text.extend_from_slice(permission::to_text(*permission).as_bytes());
            text.push(0);
        }
        Ok(Answer::of(text))
    }

    fn set_perms(&mut self, asker: Asker, payload: &[u8]) -> Result<Answer> {
        let (given, rest) = split(payload)?;
        let (path, _) = self.resolve(asker.domain, given)?;
        let texts = rest.strip_suffix(&[0]).ok_or(StoreErrno::Einval)?;
        let permissions: Option<Vec<Permission>> =
            texts.split(|byte| *byte == 0).map(permission::from_text).collect();
        let permissions = permissions.ok_or(StoreErrno::Einval)?;
        if path.starts_with('@') {
            privileged(asker)?;
            let there = self.special.get_mut(path.as_str());
            *there.ok_or(StoreErrno::Enoent)? = permissions.into();
            return Ok(Answer::ok(Then::Nothing));
        }
        let ((), change) = self.within(asker, |view| view.set_permissions(&path, &permissions))?;
        Ok(Answer::changed(change))
    }

    fn watch(&mut self, asker: Asker, payload: &[u8]) -> Result<Answer> {
        let (given, rest) = split(payload)?;
        let token: Arc<[u8]> = only(rest)?.into();
        let (path, hidden) = self.resolve(asker.domain, given)?;
        let watcher = Watcher {
            connection: asker.connection,
            domain: asker.domain,
            token: Arc::clone(&token),
            hidden,
        };
        let used = self.ledger.of(asker.domain).watches;
        let full = asker.domain != DomId::ZERO && used >= self.quotas.watches;
        if full && !self.watches.has(&path, &watcher) {
            return Err(StoreErrno::E2big);
        }
        if !self.watches.add(&path, watcher) {
            return Err(StoreErrno::Eexist);
        }
        self.ledger.change(asker.domain, |usage| usage.watches += 1);
        let path = given.to_vec();
        Ok(Answer::ok(Then::First { path, token }))
    }

    fn unwatch(&mut self, asker: Asker, payload: &[u8]) -> Result<Answer> {
        let (given, rest) = split(payload)?;
        let (path, _) = self.resolve(asker.domain, given)?;
        if !self.watches.remove(&path, asker.connection, only(rest)?) {
            return Err(StoreErrno::Enoent);
        }
        self.ledger.change(asker.domain, |usage| {
            usage.watches = usage.watches.saturating_sub(1);
        });
        Ok(Answer::ok(Then::Nothing))
    }

    fn start(&mut self, asker: Asker) -> Result<Answer> {
        if asker.transaction != 0 {
            return Err(StoreErrno::Ebusy);
        }
        let used = self.ledger.of(asker.domain).transactions;
        if asker.domain != DomId::ZERO && used >= self.quotas.transactions {
            return Err(StoreErrno::Enospc);
        }
        let connection = self.connections.get_mut(&asker.connection);
        let transactions = &mut connection.ok_or(StoreErrno::Eio)?.transactions;
        loop {
            self.last_transaction = self.last_transaction.wrapping_add(1).max(1);
            if !transactions.contains_key(&self.last_transaction) {
                break;
            }
        }
        transactions.insert(self.last_transaction, Transaction::begin(&self.root));
        self.ledger.change(asker.domain, |usage| usage.transactions += 1);
        Ok(Answer::of(format!("{}\0", self.last_transaction)))
    }

    fn end(&mut self, asker: Asker, payload: &[u8]) -> Result<Answer> {
        let keep = match only(payload)? {
            b"T" => true,
            b"F" => false,
            _ => return Err(StoreErrno::Einval),
        };
        let connection = self.connections.get_mut(&asker.connection);
        let transaction = connection
            .and_then(|c| c.transactions.remove(&asker.transaction))
            .ok_or(StoreErrno::Enoent)?;
        self.ledger.change(asker.domain, |usage| {
            usage.transactions = usage.transactions.saturating_sub(1);
        });
        if !keep {
            return Ok(Answer::ok(Then::Nothing));
        }
        Ok(Answer::changed(self.commit(asker.domain, transaction)?))
    }
}

fn error(errno: StoreErrno) -> (u32, Vec<u8>, Then) {
    let mut name = errno.as_str().as_bytes().to_vec();
    name.push(0);
    (MessageType::Error.number(), name, Then::Nothing)
}

fn privileged(asker: Asker) -> Result<()> {
    match asker.domain {
        DomId::ZERO => Ok(()),
        _ => Err(StoreErrno::Eacces),
    }
}

/// Returns the first string, and the bytes after its NUL.
fn split(payload: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = payload.iter().position(|byte| *byte == 0);
    let (first, rest) = payload.split_at(end.ok_or(StoreErrno::Einval)?);
    Ok((first, rest.get(1..).unwrap_or_default()))
}

/// Returns the string of a payload that is one string.
fn only(payload: &[u8]) -> Result<&[u8]> {
    match split(payload)? {
        (string, []) => Ok(string),
        _ => Err(StoreErrno::Einval),
    }
}

fn only_domain(payload: &[u8]) -> Result<DomId> {
    domain_of(only(payload)?)
}

fn domain_of(digits: &[u8]) -> Result<DomId> {
    let domain = permission::domain(digits).ok_or(StoreErrno::Einval)?;
    match domain.0 < DomId::FIRST_RESERVED {
        true => Ok(domain),
        false => Err(StoreErrno::Einval),
    }
}
