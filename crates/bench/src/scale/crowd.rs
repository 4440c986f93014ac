//! Many guests in one process, each a domain with a vif, in one thread.

use super::args::GuestsArgs;
use crate::turns::send;
use grantway_command::error::CommandError;
use grantway_command::toolstack::config::VifConfig;
use grantway_command::toolstack::device;
use grantway_command::toolstack::mac::Mac;
use grantway_command::toolstack::of_host;
use grantway_embedded::{Domain, Role};
use grantway_frontend::{QueueStats, Vif, VifStatus, Wishes};
use grantway_hypervisor::DomId;
use grantway_ports::RECV_BUFFER;
use rustix::event::{Timespec, epoll};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for all vifs together to connect, or to close.
const PATIENCE: Duration = Duration::from_secs(120);
/// Times that one vif is looked at again in a turn because more had come.
const LOOKS: usize = 16;
/// Event data of a descriptor that belongs to no vif.
const OTHER: u64 = u64::MAX;
/// A frame of 64 bytes from one test station to another. Its EtherType is for experiments.
const FRAME: [u8; 64] = {
    let mut frame = [0; 64];
    let header = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5";
    let mut at = 0;
    while at < header.len() {
        frame[at] = header[at];
        at += 1;
    }
    frame
};

/// The vif of one guest.
struct Member {
    vif: Vif,
    /// True if the event channels of the vif wake this process.
    watched: bool,
}

impl Member {
    /// Returns true if packets may flow by the policy that was asked for.
    fn is_settled(&self) -> bool {
        self.watched && self.vif.staging().iter().all(|queue| queue.staged == queue.wished)
    }

    /// Returns the reason for which the vif will never be settled, if there is one.
    fn refusal(&mut self) -> Option<CommandError> {
        let failure = self.vif.take_failure().map(CommandError::failed);
        failure.or_else(|| self.vif.take_staging_refusal().map(CommandError::failed))
    }
}

/// All guests of the process.
pub struct Crowd {
    dir: PathBuf,
    members: Vec<Member>,
    epoll: OwnedFd,
    buffer: Vec<u8>,
    /// Time that it took to attach all vifs, and to connect them.
    pub attached_in: Duration,
    pub connected_in: Duration,
}

impl Crowd {
    /// Attaches and opens all vifs, and waits until they are connected.
    ///
    /// # Errors
    ///
    /// The host does not run, one of the domains already runs, or a vif did not connect.
    pub fn open(args: &GuestsArgs) -> Result<Self, CommandError> {
        let start = Instant::now();
        attach(&args.host, args.vifs)?;
        let attached_in = start.elapsed();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        let mut crowd = Self {
            dir: args.host.clone(),
            members: Vec::with_capacity(args.vifs.into()),
            epoll,
            buffer: vec![0; RECV_BUFFER],
            attached_in,
            connected_in: Duration::ZERO,
        };
        let start = Instant::now();
        let wishes =
            Wishes { queues: args.queues, policy: args.policy.kind(), ..Wishes::default() };
        for domain in 1..=args.vifs {
            let own = Domain::connect(&args.host, DomId(domain), Role::Guest);
            let own = own.map_err(CommandError::failed)?;
            let vif = Vif::open(own, 0, wishes).map_err(CommandError::failed)?;
            if let Some(store) = vif.store().descriptor() {
                watch(&crowd.epoll, store, crowd.members.len() as u64)?;
            }
            crowd.members.push(Member { vif, watched: false });
        }
        crowd.attend_all()?;
        crowd.until("connect", Member::is_settled)?;
        crowd.connected_in = start.elapsed();
        Ok(crowd)
    }

    /// Looks at the vifs that are woken until all are as wanted.
    fn until(&mut self, what: &str, wanted: fn(&Member) -> bool) -> Result<(), CommandError> {
        let start = Instant::now();
        let mut missing: Vec<usize> = (0..self.members.len()).collect();
        loop {
            let members = &self.members;
            missing.retain(|&at| members.get(at).is_some_and(|member| !wanted(member)));
            let Some(&first) = missing.first() else { return Ok(()) };
            if let Some(refusal) = self.members.get_mut(first).and_then(Member::refusal) {
                return Err(refusal);
            }
            if start.elapsed() > PATIENCE {
                return Err(CommandError::Failed(format!(
                    "{} of {} vifs did not {what} within {} s, the first one in domain {}; read \
                     the log of the backend",
                    missing.len(),
                    self.members.len(),
                    PATIENCE.as_secs(),
                    first + 1
                )));
            }
            self.look(Some(Duration::from_millis(100)))?;
        }
    }

    /// Looks at all vifs once. Changes that came together with an answer of the store wake no
    /// process.
    fn attend_all(&mut self) -> Result<(), CommandError> {
        for (number, member) in (0..).zip(&mut self.members) {
            attend(member, &self.epoll, number, &mut self.buffer)?;
        }
        Ok(())
    }

    /// Lets `descriptor` wake [`Crowd::look`], too.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn wake_by(&self, descriptor: BorrowedFd<'_>) -> Result<(), CommandError> {
        watch(&self.epoll, descriptor, OTHER)
    }

    /// Looks at the vifs that have events. Waits for an event until the timeout; without a timeout,
    /// for ever.
    ///
    /// # Errors
    ///
    /// The host ended, or a backend broke the protocol.
    pub fn look(&mut self, timeout: Option<Duration>) -> Result<(), CommandError> {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; 256];
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let found = match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            Ok((found, _)) => &*found,
            Err(rustix::io::Errno::INTR) => &[],
            Err(e) => return Err(os("epoll_wait")(e)),
        };
        for event in found {
            let number = event.data.u64();
            if let Some(member) = self.members.get_mut(number as usize) {
                attend(member, &self.epoll, number, &mut self.buffer)?;
            }
        }
        Ok(())
    }

    /// Sends a frame on each queue of each vif, and waits for the answers.
    ///
    /// # Errors
    ///
    /// A frame is not answered.
    pub fn pass(&mut self) -> Result<(), CommandError> {
        for member in &mut self.members {
            for queue in member.vif.queues() {
                send(queue, &[&FRAME]).map_err(CommandError::failed)?;
            }
        }
        let start = Instant::now();
        let mut answered = 0;
        while let Some(member) = self.members.get_mut(answered) {
            member.vif.reap().map_err(CommandError::failed)?;
            if member.vif.queues().iter().all(|queue| queue.outstanding() == 0) {
                answered += 1;
            } else if start.elapsed() > PATIENCE {
                let domain = answered + 1;
                return Err(CommandError::Failed(format!(
                    "a frame of domain {domain} was not answered; read the log of the backend"
                )));
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Sends bursts from the first `active` vifs, as far as they fit. Returns the number of frames.
    ///
    /// # Errors
    ///
    /// A backend broke the protocol.
    pub fn load(&mut self, active: usize) -> Result<usize, CommandError> {
        let frames = [&FRAME[..]; 32];
        let mut sent = 0;
        for member in self.members.iter_mut().take(active) {
            for queue in member.vif.queues() {
                sent += send(queue, &frames).map_err(CommandError::failed)?;
            }
        }
        Ok(sent)
    }

    /// Asks for events of the first `active` vifs, before [`Crowd::look`] waits. Returns true if
    /// something came meanwhile.
    ///
    /// # Errors
    ///
    /// Fails as [`Crowd::look`] does.
    pub fn arm(&mut self, active: usize) -> Result<bool, CommandError> {
        let mut there = false;
        for member in self.members.iter_mut().take(active) {
            there |= member.vif.arm().map_err(CommandError::failed)?;
        }
        Ok(there)
    }

    /// Returns the sum of all queues' statistics, and the number of frames that were answered.
    pub fn carried(&mut self) -> (QueueStats, u64) {
        let mut sum = QueueStats::default();
        let mut outstanding = 0;
        for member in &mut self.members {
            sum.add(&member.vif.stats());
            let queues = member.vif.queues().iter();
            outstanding += queues.map(|queue| u64::from(queue.outstanding())).sum::<u64>();
        }
        // Each frame takes one slot, so the outstanding slots are frames.
        (sum, sum.tx_packets.saturating_sub(outstanding))
    }

    /// Closes and detaches all vifs.
    ///
    /// # Errors
    ///
    /// The host ended, or the backend did not let go of a vif.
    pub fn close(mut self) -> Result<(), CommandError> {
        for member in &mut self.members {
            member.vif.shutdown().map_err(CommandError::failed)?;
        }
        self.attend_all()?;
        self.until("close", |member| member.vif.status() == VifStatus::Gone)?;
        let (_host, mut store) = of_host(&self.dir)?;
        for domain in 1..=self.members.len() {
            // The number of members was given as a `u16`.
            let vif = device::VifId { domain: DomId(domain as u16), devid: 0 };
            device::remove(store.as_mut(), vif).map_err(CommandError::failed)?;
        }
        Ok(())
    }
}

/// Makes the domains, each with a vif.
fn attach(dir: &Path, vifs: u16) -> Result<(), CommandError> {
    let (host, mut store) = of_host(dir)?;
    for number in 1..=vifs {
        let domain = DomId(number);
        host.create_domain(domain, &format!("guest-{domain}"))?;
        let [high, low] = number.to_be_bytes();
        let spare = [0, high, low];
        let config = VifConfig { mac: Some(Mac::of_xen(spare)), ..VifConfig::default() };
        device::attach(store.as_mut(), domain, &config, spare).map_err(CommandError::failed)?;
    }
    Ok(())
}

/// Handles all that came for one vif.
fn attend(
    member: &mut Member,
    epoll: &OwnedFd,
    number: u64,
    buffer: &mut [u8],
) -> Result<(), CommandError> {
    let failed = CommandError::failed;
    let vif = &mut member.vif;
    for _ in 0..LOOKS {
        let connected = vif.store_changed().map_err(failed)? == VifStatus::Connected;
        if connected && !std::mem::replace(&mut member.watched, connected) {
            for descriptor in vif.event_descriptors() {
                watch(epoll, descriptor, number)?;
            }
        }
        vif.take_events().map_err(failed)?;
        vif.reap().map_err(failed)?;
        while vif.recv(buffer).map_err(failed)?.is_some() {}
        vif.repost().map_err(failed)?;
        if !vif.arm().map_err(failed)? {
            break;
        }
    }
    Ok(())
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, number: u64) -> Result<(), CommandError> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
        .map_err(os("epoll_ctl"))
}

fn os(call: &'static str) -> impl Fn(rustix::io::Errno) -> CommandError {
    move |e| CommandError::Failed(format!("{call}: {e}; raise the limit of open files (ulimit -n)"))
}
