//! Control connections: one per process, from its hello to its end.

use super::{Host, ON_CONTROL};
use crate::protocol::{Answer, Refusal, Request, VERSION, decode, domid, encode};
use crate::sys::{MESSAGE_MAX, receive, send};
use grantway_hypervisor::DomId;
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Sets of event channels that one process may have: each takes descriptors
/// and memory of the host.
const SETS_MAX: usize = 256;

/// A process.
#[derive(Debug)]
pub(super) struct Client {
    socket: OwnedFd,
    /// The process id that the kernel tells, not one that the process tells.
    pub(super) pid: i32,
    /// The domain, once the process said hello.
    pub(super) domain: Option<DomId>,
    /// True if the process runs the domain.
    pub(super) guest: bool,
    sets: Vec<u64>,
}

/// An answer and the descriptors that go with it.
#[derive(Debug)]
pub(super) struct Reply {
    answer: Answer,
    fds: Vec<OwnedFd>,
}

impl Reply {
    pub(super) fn new(answer: Answer) -> Self {
        Self { answer, fds: Vec::new() }
    }

    pub(super) fn with(mut self, fd: impl AsFd) -> Result<Self, Refusal> {
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(os("dup"))?;
        self.fds.push(fd);
        Ok(self)
    }
}

/// Returns the refusal for a resource that the host itself lacks.
pub(super) fn os(call: &'static str) -> impl Fn(Errno) -> Refusal {
    move |errno| Refusal::Os { call: call.to_owned(), errno: errno.raw_os_error() }
}

impl Host {
    pub(super) fn accept_client(&mut self) {
        let Some(socket) = self.accept(ON_CONTROL) else {
            return;
        };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else {
            return;
        };
        let id = self.fresh_id();
        if self.watch(&socket, id, EventFlags::IN).is_err() {
            return;
        }
        self.clients.insert(
            id,
            Client {
                socket,
                pid: peer.pid.as_raw_nonzero().get(),
                domain: None,
                guest: false,
                sets: Vec::new(),
            },
        );
    }

    /// Serves one message of a process, or its end.
    pub(super) fn serve_client(&mut self, id: u64) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let mut buffer = [0; MESSAGE_MAX];
        let request = match receive(&client.socket, &mut buffer) {
            Err(Errno::AGAIN) => return,
            // Descriptors were not asked for: they are closed with `message`.
            Ok(message) if message.bytes > 0 => decode::<Request>(&buffer[..message.bytes]),
            Ok(_) | Err(_) => None,
        };
        let Some(request) = request else {
            self.drop_client(id);
            return;
        };
        let reply =
            self.answer(id, request).unwrap_or_else(|refusal| Reply::new(Answer::Refused(refusal)));
        let fds: Vec<_> = reply.fds.iter().map(AsFd::as_fd).collect();
        let sent = match (self.clients.get(&id), encode(&reply.answer)) {
            (Some(client), Some(bytes)) => send(&client.socket, &bytes, &fds).is_ok(),
            _ => false,
        };
        if !sent {
            // The process is gone, or asks without reading the answers.
            self.drop_client(id);
        }
    }

    fn answer(&mut self, id: u64, request: Request) -> Result<Reply, Refusal> {
        let client = self.clients.get(&id).ok_or(Refusal::Confused)?;
        let (pid, domain) = (client.pid, client.domain);
        // A hello comes first and once. No other request is served before it.
        if let Request::Hello { version, domid: number, guest } = request {
            if version != VERSION {
                return Err(Refusal::Version { host: VERSION });
            }
            if domain.is_some() {
                return Err(Refusal::Confused);
            }
            let domain = domid(number)
                .filter(|domain| self.domains.contains_key(domain))
                .ok_or(Refusal::NoDomain { domid: number })?;
            let reply = if guest {
                self.hold(id, pid, domain)?
            } else {
                Reply::new(self.welcome(0)).with(self.lives.fd())?
            };
            if let Some(client) = self.clients.get_mut(&id) {
                client.domain = Some(domain);
                client.guest = guest;
            }
            return Ok(reply);
        }
        // All other requests are of a known domain, and some of domain 0 only.
        let us = domain.ok_or(Refusal::Confused)?;
        let privileged = || {
            if us == DomId::ZERO { Ok(()) } else { Err(Refusal::NotPrivileged) }
        };
        match request {
            Request::Hello { .. } => Err(Refusal::Confused),
            Request::Booted { base } => self.booted(id, us, base),
            Request::OpenSet => self.open_set(id, us),
            Request::CloseSet { set } => {
                self.own_set(id, set)?;
                self.channels.close_set(set);
                if let Some(client) = self.clients.get_mut(&id) {
                    client.sets.retain(|&own| own != set);
                }
                Ok(Reply::new(Answer::Done))
            }
            Request::AllocUnbound { set, remote } => {
                self.own_set(id, set)?;
                let remote = domid(remote).ok_or(Refusal::NoDomain { domid: remote })?;
                let port = self.channels.alloc_unbound(set, remote)?;
                Ok(Reply::new(Answer::Port { port }))
            }
            Request::Bind { set, remote, port } => {
                self.own_set(id, set)?;
                let port = self.channels.bind(set, DomId(remote), port)?;
                Ok(Reply::new(Answer::Port { port }))
            }
            Request::ClosePort { set, port } => {
                self.own_set(id, set)?;
                self.channels.close(set, port)?;
                Ok(Reply::new(Answer::Done))
            }
            Request::Peer { set, port } => {
                self.own_set(id, set)?;
                let Some(peer) = self.channels.peer(set, port) else {
                    return Ok(Reply::new(Answer::Done));
                };
                Reply::new(Answer::Peer { binding: peer.binding, set: peer.id, port: peer.port })
                    .with(peer.set.pending_fd())?
                    .with(peer.set.wake())
            }
            Request::Lease { domid: granter } => self.lease(id, us, DomId(granter)),
            Request::OpenStore => self.open_store(us),
            Request::Create { domid, name } => {
                privileged()?;
                self.create(domid, name)
            }
            Request::Destroy { domid } => {
                privileged()?;
                self.destroy(domid)
            }
            Request::Tables { from } => {
                privileged()?;
                Ok(self.tables(from))
            }
        }
    }

    fn own_set(&self, id: u64, set: u64) -> Result<(), Refusal> {
        let own = self.clients.get(&id).is_some_and(|client| client.sets.contains(&set));
        if own { Ok(()) } else { Err(Refusal::Confused) }
    }

    fn open_set(&mut self, id: u64, domain: DomId) -> Result<Reply, Refusal> {
        let set = self.fresh_id();
        let client = self.clients.get_mut(&id).ok_or(Refusal::Confused)?;
        if client.sets.len() >= SETS_MAX {
            return Err(os("eventfd")(Errno::MFILE));
        }
        let made = self.channels.open_set(set, domain).map_err(os("memfd_create"))?;
        client.sets.push(set);
        Reply::new(Answer::Set { set })
            .with(made.pending_fd())?
            .with(made.states_fd())?
            .with(made.wake())
    }

    /// Ends a process's connection and takes back all that it held.
    pub(super) fn drop_client(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &client.socket);
        for set in client.sets {
            self.channels.close_set(set);
        }
        if let Some(domain) = client.domain {
            self.bury(id, domain);
        }
    }

    /// Ends a connection whose process is gone already, ahead of its turn in the queue of events.
    /// Returns true if it is ended.
    pub(super) fn drop_if_gone(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get(&id) else {
            return true;
        };
        let mut fds = [PollFd::new(&client.socket, PollFlags::empty())];
        let now = Timespec::default();
        let gone = rustix::event::poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().contains(PollFlags::HUP);
        if gone {
            self.drop_client(id);
        }
        gone
    }
}
