//! A domain, from the inside: a process that grants pages (a guest), or a process beside it (a
//! backend, a toolstack).

mod control;
mod copy;
mod events;
mod foreign;
mod granter;
mod mapped;
mod toolstack;

use crate::host::STORE;
use crate::protocol::{Answer, Refusal, Request, VERSION};
use crate::state::Lives;
use crate::sys::let_peers_reach_us;
use control::{Control, os_error, take, unexpected};
use copy::Scratch;
use foreign::Foreigners;
use granter::Granting;
pub use granter::Revoke;
use grantway_hypervisor::{
    Access, BackendPlatform, CopyOp, CounterSnapshot, Counters, DomId, Error, EventChannels,
    FrontendEvents, FrontendPlatform, FrontendStore, GrantRef, Granted, Mapper, Platform, Released,
    Store,
};
use grantway_ring::SharedRun;
use grantway_xenstore::Client;
pub use mapped::copy_by_mapping;
use rustix::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Role of a process in its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The process runs the domain: it has the memory and the grant table. The domain ends with the
    /// process. A domain has at most one guest process.
    Guest,
    /// The process works in the domain beside others, as a backend or a toolstack. It has events,
    /// the store, maps and copies. It grants no pages.
    Service,
}

/// Reason why a process cannot join a domain. The message names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No host serves the folder.
    #[error("no embedded host serves {}; start one: grantway host --dir {}", dir.display(), dir.display())]
    NoHost {
        /// The folder.
        dir: PathBuf,
    },
    /// The host is another user's.
    #[error("the embedded host at {} belongs to another user; run as that user", dir.display())]
    NotAllowed {
        /// The folder.
        dir: PathBuf,
    },
    /// Another process runs the domain.
    #[error("process {pid} runs domain {domain}; stop it, or use another domain")]
    Held {
        /// The domain.
        domain: DomId,
        /// The process.
        pid: u32,
    },
    /// The platform returned an error, for example since the domain does not exist, or since the
    /// host has another version.
    #[error(transparent)]
    Platform(#[from] Error),
}

/// A domain of an embedded host, for one process.
///
/// The process's connection to the host ends with the last clone of the `Arc`, and with the last
/// event channels and mapped runs made from it. The host then takes back what the process
/// held, as it does if the process is killed.
#[derive(Debug)]
pub struct Domain {
    id: DomId,
    role: Role,
    boot: u32,
    ports: u32,
    control: Arc<Control>,
    counters: Arc<Counters>,
    granting: Option<Arc<Granting>>,
    foreigners: Foreigners,
    scratch: Mutex<Vec<Scratch>>,
}

impl Domain {
    /// Becomes a process of domain `id` at the host that serves `dir`.
    ///
    /// Domain 0 always exists. [`Domain::create_domain`] makes any other domain.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectError`]. The message names the remedy.
    pub fn connect(dir: &Path, id: DomId, role: Role) -> Result<Arc<Self>, ConnectError> {
        // The host knows the process once it said hello, and answers with the tables' sizes.
        let control = Arc::new(Control::connect(dir)?);
        let hello = Request::Hello { version: VERSION, domid: id.0, guest: role == Role::Guest };
        let (answer, fds) = match control.ask(&hello)? {
            (Answer::Refused(refusal), _) => return Err(Refusal::into(refusal)),
            answered => answered,
        };
        let Answer::Welcome { boot, ports, grant_entries, ram_pages } = answer else {
            return Err(unexpected(&answer).into());
        };
        let mut fds = fds.into_iter();
        let mmap = |reason| os_error("mmap", reason);
        let lives = Arc::new(Lives::of(&take(&mut fds)?).map_err(mmap)?);
        let_peers_reach_us();
        let counters = Arc::new(Counters::default());
        // A guest is alive for others only once its memory is mapped, so it tells the address last.
        let granting = if role == Role::Guest {
            let (ram, table) = (take(&mut fds)?, take(&mut fds)?);
            let granting =
                Granting::new(&ram, ram_pages, &table, grant_entries, &counters).map_err(mmap)?;
            let base = granting.base();
            control.request(&Request::Booted { base })?;
            Some(Arc::new(granting))
        } else {
            None
        };
        Ok(Arc::new(Self {
            id,
            role,
            boot,
            ports,
            foreigners: Foreigners::new(id, &control, &counters, lives),
            control,
            counters,
            granting,
            scratch: Mutex::new(Vec::new()),
        }))
    }

    /// Returns the role of this process in the domain.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the number of this boot, different for each boot of each domain of the host; 0 for a
    /// service.
    #[must_use]
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Returns the folder of the host.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.control.dir()
    }

    /// Returns a descriptor that becomes readable, with a hang-up, when the host is gone. Otherwise
    /// only an answer that another thread of this process waits for makes it readable. Wait for
    /// `POLLHUP` (no events asked), and do not read it.
    #[must_use]
    pub fn host_descriptor(&self) -> BorrowedFd<'_> {
        self.control.descriptor()
    }

    /// Returns true if the host still runs.
    #[must_use]
    pub fn host_is_alive(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::from_borrowed_fd(self.control.descriptor(), PollFlags::empty())];
        let now = Timespec::default();
        // A signal may interrupt even a look that does not wait.
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now))).is_ok()
            && !fds[0].revents().contains(PollFlags::HUP)
    }

    /// Revokes one grant by an atomic operation, without a test before it (XSA-396).
    pub fn revoke(&self, gref: GrantRef) -> Revoke {
        match &self.granting {
            Some(granting) => granting.revoke(gref),
            None => Revoke::Unknown,
        }
    }

    fn open_store(&self) -> Result<Client<UnixStream>, Error> {
        let stream = if self.id == DomId::ZERO {
            UnixStream::connect(self.dir().join(STORE)).map_err(|_| self.control.gone())?
        } else {
            let (answer, fds) = self.control.request(&Request::OpenStore)?;
            if answer != Answer::Done {
                return Err(unexpected(&answer));
            }
            UnixStream::from(take(&mut fds.into_iter())?)
        };
        Ok(Client::over(stream).named(format!("the embedded host at {}", self.dir().display())))
    }
}

impl FrontendPlatform for Domain {
    fn domain(&self) -> DomId {
        self.id
    }

    fn grant(&self, peer: DomId, pages: usize, access: Access) -> Result<Granted, Error> {
        match &self.granting {
            Some(granting) => granting.grant(peer, pages, access),
            None => Err(Error::Exhausted {
                what: "the grant table of a service process",
                limit: 0,
                remedy: "grant from the process that runs the domain (Role::Guest)",
            }),
        }
    }

    fn release(&self, granted: Granted) -> Released {
        match &self.granting {
            Some(granting) => granting.release(granted),
            None => Released::default(),
        }
    }

    fn frontend_events(&self) -> Result<Box<dyn FrontendEvents>, Error> {
        Ok(self.events()?)
    }

    fn frontend_store(&self) -> Result<Box<dyn FrontendStore>, Error> {
        Ok(Box::new(self.open_store()?.patient()))
    }
}

impl Mapper for Domain {
    fn map(&self, peer: DomId, grefs: &[GrantRef], access: Access) -> Result<SharedRun, Error> {
        self.foreigners.get(peer)?.map(grefs, access)
    }

    fn copy(&self, arena: &mut [u8], ops: &mut [CopyOp]) -> Result<(), Error> {
        let done = if mapped::is_chosen() {
            mapped::copy(&self.foreigners, arena, ops)
        } else {
            let scratch = control::lock(&self.scratch).pop();
            let mut scratch = scratch.unwrap_or_default();
            let done = scratch.copy(&self.foreigners, arena, ops);
            control::lock(&self.scratch).push(scratch);
            done
        };
        copy::count(&self.counters, ops);
        done
    }
}

impl BackendPlatform for Domain {
    fn events(&self) -> Result<Box<dyn EventChannels>, Error> {
        Ok(Box::new(events::EventSet::open(self.id, self.ports, &self.control, &self.counters)?))
    }
}

impl Platform for Domain {
    fn host(&self) -> &'static str {
        "embedded"
    }

    fn store(&self) -> Result<Box<dyn Store>, Error> {
        Ok(Box::new(self.open_store()?))
    }

    fn counters(&self) -> CounterSnapshot {
        self.counters.snapshot()
    }
}
