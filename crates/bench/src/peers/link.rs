//! Two programs that exchange packets, and the link between them.

use super::end::{End, Plan, Role, Shown};
use super::plain::{self, Plain};
use super::testpmd::Testpmd;
use crate::namespace::Namespace;
use crate::rig::Direction;
use crate::tools::Watch;
use grantway_command::error::CommandError;
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit for the first packets, and number of attempts. The only packet of a round trip is
/// dropped if the other end's queue is not yet enabled.
const FLOW: Duration = Duration::from_secs(20);
const TRIES: usize = 3;
/// Time that the queues of a link take to be enabled, once the link is up.
const SETTLE: Duration = Duration::from_millis(50);
/// Interfaces of the backend and of the guest.
const INTERFACES: [&str; 2] = ["gwb1", "gwf1"];

/// A link by which packets get from one process to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Rings and buffers of memif.
    Memif,
    /// vhost-user and virtio-user, split ring.
    VhostSplit,
    /// vhost-user and virtio-user, packed ring.
    VhostPacked,
    /// AF_PACKET on both ends of a veth.
    Veth,
    /// TAPs of one bridge, by testpmd.
    Tap,
    /// TAPs of one bridge, by two programs that read and write one frame per system call.
    PlainTap,
}

impl Link {
    /// All links, those with shared memory first.
    pub const ALL: [Self; 6] =
        [Self::Memif, Self::VhostSplit, Self::VhostPacked, Self::Veth, Self::Tap, Self::PlainTap];

    /// Returns the name of the link on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memif => "memif",
            Self::VhostSplit => "vhost-split",
            Self::VhostPacked => "vhost-packed",
            Self::Veth => "veth",
            Self::Tap => "tap",
            Self::PlainTap => "plain-tap",
        }
    }

    /// Returns the link in words, as tables print it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Memif => "testpmd, memif",
            Self::VhostSplit => "testpmd, vhost split",
            Self::VhostPacked => "testpmd, vhost packed",
            Self::Veth => "testpmd, AF_PACKET",
            Self::Tap => "testpmd, net_tap, bridge",
            Self::PlainTap => "TAPs by read and write, bridge",
        }
    }

    /// Returns true if the kernel carries the packets, between interfaces.
    pub fn has_interfaces(self) -> bool {
        matches!(self, Self::Veth | Self::Tap) || !self.has_testpmd()
    }

    /// Returns true if testpmd is at both ends.
    pub fn has_testpmd(self) -> bool {
        self != Self::PlainTap
    }

    /// Returns the bursts to try, of those that were asked for. Programs that move one frame per
    /// system call have no other burst.
    pub fn bursts(self, asked: &[u32]) -> Vec<u32> {
        match self {
            Self::PlainTap => vec![1],
            _ => asked.to_vec(),
        }
    }

    /// Returns the backend's device, which listens if there is a socket, and the guest's device.
    /// All have 256 slots and copy. Virtio is fastest with receive buffers that are not merged and
    /// are used in order.
    pub fn devices(self, folder: &str) -> [String; 2] {
        let vhost = |packed: &str| {
            let guest = "queues=1,queue_size=256,mrg_rxbuf=0,in_order=1";
            [
                format!("net_vhost0,iface={folder}/vhost.sock,queues=1"),
                format!("net_virtio_user0,path={folder}/vhost.sock,{guest}{packed}"),
            ]
        };
        let [behind, guest] = INTERFACES;
        match self {
            Self::Memif => ["server", "client"].map(|role| {
                let place = format!("id=0,socket={folder}/memif.sock,socket-abstract=no");
                format!("net_memif0,role={role},{place},rsize=8,bsize=2048")
            }),
            Self::VhostSplit => vhost(""),
            Self::VhostPacked => vhost(",packed_vq=1"),
            Self::Veth => [behind, guest].map(|interface| {
                format!("net_af_packet0,iface={interface},framecnt=256,qdisc_bypass=1")
            }),
            Self::Tap => [behind, guest].map(|interface| format!("net_tap0,iface={interface}")),
            Self::PlainTap => [behind, guest].map(str::to_owned),
        }
    }
}

/// Returns the work of the backend's program, and that of the guest's.
fn roles(direction: Direction, size: usize) -> [Role; 2] {
    match direction {
        Direction::Rx => [Role::Send(size), Role::Take],
        Direction::RoundTrip => [Role::Echo, Role::Bounce(size)],
        Direction::Tx | Direction::GuestToGuest => [Role::Take, Role::Send(size)],
    }
}

/// Two programs that exchange packets.
pub struct Pair {
    ends: [Box<dyn End>; 2],
    /// Index of the end that receives the measured packets.
    receiver: usize,
    _namespace: Option<Namespace>,
    _folder: TempDir,
    /// The command lines, with DIR for the folder.
    pub commands: [String; 2],
}

impl Pair {
    /// Starts both, and waits until packets flow.
    ///
    /// # Errors
    ///
    /// An end did not start or connect (the error has its own words), no packet came through, or a
    /// signal asked this process to end.
    pub fn start(
        link: Link,
        direction: Direction,
        frames: (usize, u32),
        cpus: [usize; 2],
        watch: &Watch,
    ) -> Result<Self, CommandError> {
        for _ in 0..TRIES {
            let mut pair = Self::connect(link, direction, frames, cpus, watch)?;
            if pair.flows(watch)? {
                return Ok(pair);
            }
        }
        Err(CommandError::Failed(format!(
            "{}: no packet arrived within {} s in {TRIES} attempts; remove {} from --peer",
            link.words(),
            FLOW.as_secs(),
            link.name()
        )))
    }

    fn connect(
        link: Link,
        direction: Direction,
        (size, burst): (usize, u32),
        cpus: [usize; 2],
        watch: &Watch,
    ) -> Result<Self, CommandError> {
        let folder = tempfile::Builder::new().prefix("grantway-").tempdir();
        let folder = folder.map_err(|e| {
            CommandError::Failed(format!(
                "cannot create a directory: \
                                                                      {e}"
            ))
        })?;
        let path = folder.path().to_string_lossy().into_owned();
        let own = format!("gwp{}-{}", std::process::id(), link.name());
        let namespace = link.has_interfaces().then(|| Namespace::new(own, watch)).transpose()?;
        // The kernel's links need interfaces, which are in a namespace of this pair. A veth is made
        // before the programs start; TAPs are made by the programs.
        let ip = |args: &[&str]| match &namespace {
            Some(namespace) => namespace.ip(args, watch).map(drop),
            None => Ok(()),
        };
        let [behind, guest] = INTERFACES;
        if let Some(namespace) = &namespace {
            // Packets of the kernel's own would go round with the measured ones.
            namespace.without_ipv6(watch)?;
        }
        if link == Link::Veth {
            ip(&["link", "add", behind, "type", "veth", "peer", "name", guest])?;
            for interface in INTERFACES {
                ip(&["link", "set", interface, "up"])?;
            }
        }
        // Both ends are started, and later told to work.
        let devices = link.devices(&path);
        let roles = roles(direction, size);
        let plans = [0, 1].map(|at| Plan {
            name: ["backend", "guest"][at],
            device: &devices[at],
            role: roles[at],
            burst,
            cpu: cpus[at],
            folder: folder.path(),
        });
        let commands = plans.each_ref().map(|plan| match link.has_testpmd() {
            true => plan.args().join(" ").replace(&path, "DIR"),
            false => format!("grantway {}", plain::args(plan).join(" ")),
        });
        let start = |plan| -> Result<Box<dyn End>, CommandError> {
            match &namespace {
                Some(namespace) if !link.has_testpmd() => {
                    Ok(Box::new(Plain::start(plan, namespace, watch)?))
                }
                namespace => Ok(Box::new(Testpmd::start(plan, namespace.as_ref(), watch)?)),
            }
        };
        let ends = [start(&plans[0])?, start(&plans[1])?];
        if matches!(link, Link::Tap | Link::PlainTap) {
            ip(&["link", "add", "gwbr", "type", "bridge"])?;
            for interface in INTERFACES {
                // As many frames wait in a TAP as in any other link.
                ip(&["link", "set", interface, "txqueuelen", "256"])?;
                ip(&["link", "set", interface, "master", "gwbr"])?;
                // Returning packets have the other port's own address as their source.
                ip(&["link", "set", interface, "type", "bridge_slave", "learning", "off"])?;
            }
            ip(&["link", "set", "gwbr", "up"])?;
        }
        let receiver = usize::from(direction != Direction::Tx);
        let mut pair = Self { ends, receiver, _namespace: namespace, _folder: folder, commands };
        for end in &mut pair.ends {
            end.wait_link(watch)?;
        }
        std::thread::sleep(SETTLE);
        // The guest starts last: if it sends the only packet, all else must be ready.
        for end in &mut pair.ends {
            end.go()?;
        }
        Ok(pair)
    }

    /// Returns true if packets come through.
    fn flows(&mut self, watch: &Watch) -> Result<bool, CommandError> {
        let since = Instant::now();
        while since.elapsed() < FLOW {
            if self.show(watch)?.packets > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the statistics of the receiver.
    ///
    /// # Errors
    ///
    /// The receiver ended, or did not answer.
    pub fn show(&mut self, watch: &Watch) -> Result<Shown, CommandError> {
        self.ends[self.receiver].show(watch)
    }

    /// Sets the number of packets that both ends move at a time. This is for ends that send all the
    /// time, and both are held still before and after.
    ///
    /// # Errors
    ///
    /// An end ended, or did not answer.
    pub fn set_burst(&mut self, burst: u32, watch: &Watch) -> Result<(), CommandError> {
        self.resume();
        for end in &mut self.ends {
            end.set_burst(burst)?;
            // An answer comes once the end has done all that.
            end.show(watch)?;
        }
        self.pause();
        Ok(())
    }

    /// Returns the processor time that both ends had.
    pub fn time(&self) -> Duration {
        self.ends.iter().map(|end| end.time()).sum()
    }

    /// Holds both ends still.
    pub fn pause(&self) {
        self.ends.iter().for_each(|end| end.signal(Signal::STOP));
    }

    /// Lets both ends go on.
    pub fn resume(&self) {
        self.ends.iter().for_each(|end| end.signal(Signal::CONT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_as_many_slots() {
        let devices = |link: Link| link.devices("DIR").join(" ");
        assert!(devices(Link::Memif).matches("rsize=8,").count() == 2);
        for link in [Link::VhostSplit, Link::VhostPacked] {
            assert!(devices(link).contains("queue_size=256,"));
            assert_eq!(devices(link).contains("packed_vq=1"), link == Link::VhostPacked);
        }
        assert_eq!(devices(Link::Veth).matches("framecnt=256").count(), 2);
    }

    #[test]
    fn programs_that_move_one_frame_per_call_have_one_burst() {
        for link in Link::ALL {
            let tried = link.bursts(&[32, 64]);
            assert_eq!(tried == [32, 64], link.has_testpmd(), "{link:?}");
        }
        assert_eq!(Link::PlainTap.bursts(&[32, 64]), [1]);
    }

    #[test]
    fn who_sends_depends_on_the_direction() {
        assert_eq!(roles(Direction::Tx, 64), [Role::Take, Role::Send(64)]);
        assert_eq!(roles(Direction::Rx, 64), [Role::Send(64), Role::Take]);
        assert_eq!(roles(Direction::RoundTrip, 64), [Role::Echo, Role::Bounce(64)]);
    }
}
