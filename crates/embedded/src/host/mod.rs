//! The host: one thread and one epoll for every domain, and nothing in the way of a packet. Each
//! message of a process gets one answer. A process that sends anything else is disconnected, and
//! loses what it held.

mod channels;
mod clients;
mod domains;
mod error;
mod folder;
mod guard;
mod stores;

pub use error::HostError;
pub(crate) use folder::{CONTROL, STORE};
pub use guard::HostGuard;

use crate::state::{Board, LIVES};
use channels::Channels;
use clients::Client;
use domains::Record;
use folder::Folder;
use grantway_hypervisor::DomId;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use stores::Stores;

/// Size of a domain's table of event channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortTable {
    /// Table of 4096 ports, as in Xen's two-level tables.
    #[default]
    TwoLevel,
    /// Table of 131072 ports, as in Xen's FIFO tables.
    Fifo,
}

impl PortTable {
    /// Returns the number of ports of a domain; port 0 is reserved.
    #[must_use]
    pub fn ports(self) -> u32 {
        match self {
            Self::TwoLevel => 4096,
            Self::Fifo => 131_072,
        }
    }
}

/// The size of a host's tables, the same for each domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostConfig {
    /// Event channels of a domain.
    pub ports: PortTable,
    /// Entries of a domain's grant table, of 8 bytes; the first 8 are reserved.
    pub grant_entries: u32,
    /// Pages that a domain may grant. The memory is sparse: only pages that were touched take any.
    pub ram_pages: u32,
}

impl Default for HostConfig {
    /// Returns Xen's defaults, 4096 ports and 64 frames of grant table, with 256 MiB of memory.
    fn default() -> Self {
        Self { ports: PortTable::TwoLevel, grant_entries: 64 * 512, ram_pages: 65_536 }
    }
}

/// Subjects of epoll events. Clients and store connections have numbers from [`FIRST_ID`] on, never
/// used twice.
const ON_CONTROL: u64 = 0;
const ON_STORE: u64 = 1;
const ON_SHUTDOWN: u64 = 2;
const FIRST_ID: u64 = 16;

/// Host of domains. It has the state that the hypervisor and xenstored have on Xen.
#[derive(Debug)]
pub struct Host {
    folder: Folder,
    config: HostConfig,
    epoll: OwnedFd,
    /// A descriptor given up for a moment to turn a process away when descriptors run out.
    spare: Option<OwnedFd>,
    lives: Board,
    channels: Channels,
    domains: BTreeMap<DomId, Record>,
    clients: BTreeMap<u64, Client>,
    stores: Stores,
    next_id: u64,
    boots: u32,
}

impl Host {
    /// Opens a host in the folder `dir`, and listens there. Makes the folder if it does not exist.
    /// Replaces the sockets of a host that has ended.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if another host serves the folder, if the path is no folder, or if it
    /// cannot be written.
    pub fn bind(dir: &Path, config: HostConfig) -> Result<Self, HostError> {
        let folder = Folder::open(dir)?;
        raise_descriptor_limit();
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(HostError::os("epoll_create"))?;
        let lives = Board::new("grantway-lives", LIVES).map_err(HostError::os("memfd_create"))?;
        let host = Self {
            folder,
            config,
            epoll,
            spare: spare(),
            lives,
            channels: Channels::new(config.ports.ports()),
            domains: BTreeMap::from([(DomId::ZERO, Record::new("Domain-0".to_owned()))]),
            clients: BTreeMap::new(),
            stores: Stores::new(),
            next_id: FIRST_ID,
            boots: 0,
        };
        host.watch(&host.folder.control, ON_CONTROL, EventFlags::IN)
            .and_then(|()| host.watch(&host.folder.store, ON_STORE, EventFlags::IN))
            .map_err(HostError::os("epoll_ctl"))?;
        Ok(host)
    }

    /// Returns the folder that the host serves.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Serves until `shutdown` is readable.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Os`] if epoll fails. No action of a process ends a host.
    pub fn run(&mut self, shutdown: impl AsFd) -> Result<(), HostError> {
        self.watch(&shutdown, ON_SHUTDOWN, EventFlags::IN).map_err(HostError::os("epoll_ctl"))?;
        let served = self.serve();
        let _ = epoll::delete(&self.epoll, shutdown);
        served
    }

    fn serve(&mut self) -> Result<(), HostError> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(reason) => {
                    return Err(HostError::Os { call: "epoll_wait", reason });
                }
            }
            for event in &events {
                let Event { flags, data } = *event;
                match data.u64() {
                    ON_SHUTDOWN => return Ok(()),
                    ON_CONTROL => self.accept_client(),
                    ON_STORE => self.accept_store(),
                    id if self.clients.contains_key(&id) => self.serve_client(id),
                    id => self.serve_store(id, flags),
                }
            }
        }
    }

    fn watch(
        &self,
        source: impl AsFd,
        id: u64,
        flags: EventFlags,
    ) -> std::result::Result<(), Errno> {
        epoll::add(&self.epoll, source, EventData::new_u64(id), flags)
    }

    fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Accepts one connection of a listening socket. Returns `None` if there is none.
    fn accept(&mut self, which: u64) -> Option<OwnedFd> {
        use rustix::net::{SocketFlags, accept_with};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = |folder: &Folder| {
            accept_with(if which == ON_CONTROL { &folder.control } else { &folder.store }, flags)
        };
        match accept(&self.folder) {
            Ok(socket) => Some(socket),
            Err(Errno::MFILE | Errno::NFILE) => {
                // The process is turned away: the host would be woken for it for ever.
                tracing::warn!("out of descriptors: a process is turned away; raise `ulimit -n`");
                self.spare = None;
                drop(accept(&self.folder));
                self.spare = spare();
                None
            }
            Err(_) => None,
        }
    }
}

fn spare() -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Raises the limit of open descriptors to the highest allowed value. A host needs a few
/// descriptors per process and per set of event channels. A backend needs some per vif. If the
/// limit cannot be raised, the call that reaches it reports the error.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
