//! Connections of the store: bytes between sockets and the server, which has no I/O of its own.
//! Beside them the host's changes of the store as a toolstack.

use super::clients::{Reply, os};
use super::{Host, ON_STORE};
use crate::protocol::{Answer, Refusal};
use crate::store::{ConnId, Quotas, Server};
use grantway_hypervisor::{DomId, Error, Permission, Rights, StoreOps};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::collections::{BTreeMap, BTreeSet};

/// Most store connections of one guest.
const CONNECTIONS_MAX: u32 = 64;

/// Bytes read at once.
const READ: usize = 4096;

/// The store and its connections.
#[derive(Debug)]
pub(super) struct Stores {
    server: Server,
    connections: BTreeMap<u64, Connection>,
    /// The host's number of each connection, by the server's.
    ids: BTreeMap<ConnId, u64>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    server_id: ConnId,
    domain: DomId,
    interest: EventFlags,
}

impl Stores {
    pub(super) fn new() -> Self {
        Self {
            server: Server::new(Quotas::default()),
            connections: BTreeMap::new(),
            ids: BTreeMap::new(),
        }
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of connections of a domain.
    pub(super) fn connections_of(&self, domain: DomId) -> u32 {
        let own = |connection: &&Connection| connection.domain == domain;
        self.connections.values().filter(own).count() as u32
    }

    /// Returns a domain's usage: nodes, watches, transactions.
    pub(super) fn usage(&self, domain: DomId) -> crate::store::Usage {
        self.server.usage(domain)
    }

    /// Introduces a domain that boots.
    pub(super) fn introduce(&mut self, domain: DomId) {
        self.server.introduce(domain);
    }

    /// Retires a domain whose process is gone, but which may boot again: its nodes stay. The host
    /// closes its vifs on its behalf, as a toolstack that restarts the domain would, so that their
    /// backends go back to waiting.
    pub(super) fn leave(&mut self, epoll: &OwnedFd, domain: DomId) {
        self.disconnect_all(epoll, domain);
        self.server.retire(domain);
        let vifs = format!("/local/domain/{domain}/device/vif");
        for vif in self.server.list(&vifs).unwrap_or_default() {
            let path = format!("{vifs}/{vif}/state");
            match self.server.read(&path).as_deref() {
                // The vif was never started, or is closed already.
                Err(_) | Ok(b"1" | b"6") => {}
                Ok(_) => told(self.server.write(&path, b"6"), "closing a vif"),
            }
        }
    }

    /// Makes the folder of a new domain.
    pub(super) fn create(&mut self, domain: DomId, name: &str) {
        let home = format!("/local/domain/{domain}");
        let permissions = [
            Permission { domain: DomId::ZERO, rights: Rights::None },
            Permission { domain, rights: Rights::Read },
        ];
        // Nodes that are made below a node take its permissions.
        let made = self
            .server
            .write(&home, b"")
            .and_then(|()| self.server.set_permissions(&home, &permissions))
            .and_then(|()| self.server.write(&format!("{home}/name"), name.as_bytes()))
            .and_then(|()| {
                let number = domain.to_string();
                self.server.write(&format!("{home}/domid"), number.as_bytes())
            });
        told(made, "making a domain's folder");
    }

    /// Releases a domain that is ended for good, and removes its folder.
    pub(super) fn destroy(&mut self, epoll: &OwnedFd, domain: DomId) {
        self.disconnect_all(epoll, domain);
        self.server.release(domain);
        let home = format!("/local/domain/{domain}");
        if self.server.exists(&home) {
            told(self.server.remove(&home), "removing a domain's folder");
        }
    }

    fn disconnect_all(&mut self, epoll: &OwnedFd, domain: DomId) {
        let own: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.domain == domain)
            .map(|(&id, _)| id)
            .collect();
        for id in own {
            self.disconnect(epoll, id);
        }
    }

    fn disconnect(&mut self, epoll: &OwnedFd, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            let _ = epoll::delete(epoll, &connection.socket);
            self.ids.remove(&connection.server_id);
            self.server.disconnect(connection.server_id);
        }
    }

    fn connect(
        &mut self,
        epoll: &OwnedFd,
        id: u64,
        socket: OwnedFd,
        domain: DomId,
    ) -> Result<(), Errno> {
        let interest = EventFlags::IN;
        epoll::add(epoll, &socket, EventData::new_u64(id), interest)?;
        let server_id = self.server.connect(domain);
        self.ids.insert(server_id, id);
        self.connections.insert(id, Connection { socket, server_id, domain, interest });
        Ok(())
    }

    /// Takes in the bytes that a connection sent.
    fn input(&mut self, epoll: &OwnedFd, id: u64, flags: EventFlags) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let server_id = connection.server_id;
        let over = EventFlags::HUP | EventFlags::ERR;
        // A connection with long output is not read, only ended.
        if !self.server.wants_input(server_id) {
            if flags.intersects(over) {
                self.disconnect(epoll, id);
            }
            return;
        }
        if !flags.intersects(EventFlags::IN | over) {
            return;
        }
        let mut buffer = [0; READ];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&connection.socket, &mut buffer));
        let open = match read {
            Err(Errno::AGAIN) => true,
            Ok(0) | Err(_) => false,
            Ok(bytes) => match self.server.input(server_id, &buffer[..bytes]) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(domain = %connection.domain, %error, "store connection closed");
                    false
                }
            },
        };
        if !open {
            self.disconnect(epoll, id);
        }
    }

    /// Writes the output of all connections that have some, and sets the events that each is to be
    /// woken for. Connections without output cost nothing.
    fn flush(&mut self, epoll: &OwnedFd) {
        let mut full: BTreeSet<ConnId> = BTreeSet::new();
        let mut seen: BTreeSet<ConnId> = BTreeSet::new();
        loop {
            let waiting = self.server.connections_with_output();
            let waiting: Vec<ConnId> = waiting.filter(|id| !full.contains(id)).collect();
            if waiting.is_empty() {
                break;
            }
            seen.extend(&waiting);
            for server_id in waiting {
                match self.write(server_id) {
                    Ok(true) => {}
                    Ok(false) => {
                        full.insert(server_id);
                    }
                    Err(()) => match self.ids.get(&server_id) {
                        Some(&id) => self.disconnect(epoll, id),
                        None => self.server.disconnect(server_id),
                    },
                }
            }
        }
        for server_id in seen {
            self.settle(epoll, server_id, full.contains(&server_id));
        }
    }

    /// Sets the events of epoll that a connection is to be woken for.
    fn settle(&mut self, epoll: &OwnedFd, server_id: ConnId, full: bool) {
        let Some(&id) = self.ids.get(&server_id) else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, self.server.wants_input(server_id));
        interest.set(EventFlags::OUT, full);
        if interest != connection.interest
            && epoll::modify(epoll, &connection.socket, EventData::new_u64(id), interest).is_ok()
        {
            connection.interest = interest;
        }
    }

    /// Writes once to one connection. Returns true if more may be written.
    fn write(&mut self, server_id: ConnId) -> Result<bool, ()> {
        let connection =
            self.ids.get(&server_id).and_then(|id| self.connections.get(id)).ok_or(())?;
        let bytes = self.server.output(server_id);
        if bytes.is_empty() {
            return Ok(false);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::io::retry_on_intr(|| rustix::net::send(&connection.socket, bytes, flags)) {
            Ok(written) => self.server.written(server_id, written).map(|()| true).map_err(|_| ()),
            Err(Errno::AGAIN) => Ok(false),
            Err(_) => Err(()),
        }
    }
}

fn told(done: Result<(), Error>, what: &str) {
    if let Err(error) = done {
        tracing::warn!(%error, "{what}");
    }
}

impl Host {
    /// Accepts a connection through the socket file, which is domain 0's.
    pub(super) fn accept_store(&mut self) {
        if let Some(socket) = self.accept(ON_STORE) {
            let id = self.fresh_id();
            let _ = self.stores.connect(&self.epoll, id, socket, DomId::ZERO);
        }
    }

    /// Makes a connection for a domain that asks through its control connection.
    pub(super) fn open_store(&mut self, domain: DomId) -> Result<Reply, Refusal> {
        if domain != DomId::ZERO && self.stores.connections_of(domain) >= CONNECTIONS_MAX {
            return Err(os("store connections")(Errno::MFILE));
        }
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(os("socketpair"))?;
        // The other end blocks, ours does not.
        rustix::io::ioctl_fionbio(&ours, true).map_err(os("ioctl"))?;
        let id = self.fresh_id();
        self.stores.connect(&self.epoll, id, ours, domain).map_err(os("epoll_ctl"))?;
        Reply::new(Answer::Done).with(theirs)
    }

    pub(super) fn serve_store(&mut self, id: u64, flags: EventFlags) {
        self.stores.input(&self.epoll, id, flags);
        self.flush_stores();
    }

    pub(super) fn flush_stores(&mut self) {
        self.stores.flush(&self.epoll);
    }
}
