//! The reason for level-triggered waits. Two guests with a stack in user space are joined by a
//! bridge of the kernel, with a queue of 32 frames before each vif. One sends to the other by TCP.
//! With a wait that knows only signals which come during the wait, as Mirage's once did, the stream
//! stalls again and again. With a wait that looks once more after it has armed, it never stalls.
//!
//! As a test, a fixed number of bytes crosses with the real wait. The stalls of the other wait are
//! shown by schedules, in the frontend's `wakeups.rs`. With `GRANTWAY_STALL_SECONDS` both waits run
//! for that time, and their stalls are counted (`make measure`). Needs root, /dev/net/tun and `ip`.

mod common;

use common::network::{Namespace, available};
use common::site::Site;
use common::{PROMPT, alone, say, succeed, wait_for};
use grantway_embedded::{Domain, Role};
use grantway_frontend::{Vif, VifStatus, Wishes};
use grantway_hypervisor::DomId;
use grantway_stack::smoltcp::iface::SocketHandle;
use grantway_stack::smoltcp::socket::tcp;
use grantway_stack::smoltcp::time::Duration as StackDuration;
use grantway_stack::{Stack, StackConfig, tcp_socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A pause of the stream that somebody would notice.
const STALL: Duration = Duration::from_millis(100);
/// Frames that wait before each vif.
const TXQUEUELEN: &str = "32";
const PORT: u16 = 5001;
/// Bytes of a socket's buffer, either way: half of what that queue holds in segments, so
/// that no pause is one in which TCP waits to send again what found the queue full.
const WINDOW: usize = 16 * 1460;
/// Work of a guest after each turn of its sockets.
const WORK: Duration = Duration::from_micros(20);
/// Time after which a guest wakes in any case.
const ELSE: Duration = Duration::from_secs(1);
/// Longest delay of a signal behind its frame on busy processors.
const LATE: Duration = Duration::from_secs(100);

/// Bytes that cross as a test.
const BYTES: u64 = 64 << 20;

/// End of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Bytes(u64),
    Seconds(u64),
}

/// The way in which a guest waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// By the state of the ring: it is asked once more after it was armed.
    Level,
    /// By signals: those that came before it waits are forgotten.
    Edge,
}

/// One of the two guests, and its connection.
struct Guest {
    vif: Vif<Stack>,
    socket: SocketHandle,
    began: Instant,
    wait: Wait,
    sends: bool,
    /// Bytes that it took, when the last of them came, and the pauses between.
    taken: u64,
    last: Option<Instant>,
    stalls: Vec<Duration>,
    /// True if no signal ended the last sleep, and the number of such sleeps during which a frame
    /// was there.
    unsignalled: bool,
    slept_over: u64,
}

impl Guest {
    fn open(dir: &Path, number: u8, wait: Wait) -> Self {
        let domain = Domain::connect(dir, DomId(number.into()), Role::Guest).expect("a domain");
        let address = |n: u8| format!("10.99.1.{n}").parse().unwrap();
        let own = grantway_stack::smoltcp::wire::IpCidr::new(address(number), 24);
        let config = StackConfig { addresses: vec![own], ..StackConfig::new(number.into()) };
        let began = Instant::now();
        let stack = Stack::new(&config, at(began)).expect("a stack");
        let wishes = Wishes { gso: false, checksum: false, ..Wishes::default() };
        let mut vif = Vif::open_with(domain, 0, wishes, stack).expect("a vif");
        let stack = vif.runner_mut();
        assert!(stack.set_station([0, 0x16, 0x3e, 0, 0, number], 1500));
        let send = tcp::SocketBuffer::new(vec![0; WINDOW]);
        let mut socket = tcp_socket(WINDOW, send, StackDuration::from_secs(60));
        let sends = number == 1;
        if !sends {
            socket.listen(PORT).expect("to listen");
        }
        let socket = stack.sockets().add(socket);
        let mut guest = Self {
            vif,
            socket,
            began,
            wait,
            sends,
            taken: 0,
            last: None,
            stalls: Vec::new(),
            unsignalled: false,
            slept_over: 0,
        };
        wait_for("a vif to connect", PROMPT, || {
            guest.vif.take_answers().expect("answers");
            let status = guest.vif.store_changed().expect("a store");
            (status == VifStatus::Connected).then_some(())
        });
        if sends {
            let (sockets, context) = guest.vif.runner_mut().connecting();
            let socket = sockets.get_mut::<tcp::Socket<'_>>(guest.socket);
            socket.connect(context, (address(2), PORT), 49_152).expect("to connect");
        }
        guest
    }

    /// Reads or writes all that there is, and works; whether there was anything.
    fn talk(&mut self) -> bool {
        let began = Instant::now();
        let moved = self.exchange();
        while moved && began.elapsed() < WORK {
            std::hint::spin_loop();
        }
        moved
    }

    fn exchange(&mut self) -> bool {
        let socket = self.vif.runner_mut().sockets().get_mut::<tcp::Socket<'_>>(self.socket);
        let mut moved = 0;
        if self.sends {
            while socket.can_send() {
                moved += socket.send(|room| (room.len(), room.len())).expect("to send");
            }
            return moved > 0;
        }
        while socket.can_recv() {
            moved += socket.recv(|bytes| (bytes.len(), bytes.len())).expect("to receive");
        }
        if moved > 0 {
            let now = Instant::now();
            let pause = self.last.map_or(Duration::ZERO, |last| now - last);
            self.stalls.extend((pause > STALL).then_some(pause));
            self.taken += moved as u64;
            self.last = Some(now);
        }
        moved > 0
    }

    /// Goes on until then; `taken` is what the receiver took, for both.
    fn run(&mut self, until: Until, taken: &AtomicU64) {
        let begun = Instant::now();
        let late = if matches!(until, Until::Bytes(_)) { LATE } else { STALL };
        let goes_on = |so_far: u64| match until {
            Until::Bytes(bytes) => {
                assert!(begun.elapsed() < PROMPT, "{so_far} of {bytes} bytes in {PROMPT:?}");
                so_far < bytes
            }
            Until::Seconds(seconds) => begun.elapsed() < Duration::from_secs(seconds),
        };
        while goes_on(taken.load(Relaxed)) {
            taken.fetch_max(self.taken, Relaxed);
            let came = self.receive();
            let unsignalled = std::mem::take(&mut self.unsignalled);
            // What came just now has a signal, or gets it from a backend that was interrupted
            // between the two; what lay there all the while never gets one.
            self.slept_over += u64::from(came && unsignalled && !self.is_signalled(late));
            match self.wait {
                Wait::Level => {
                    if came | self.talk() | self.send() {
                        continue;
                    }
                    self.take_events();
                    if !self.arm() {
                        self.sleep();
                    }
                }
                Wait::Edge => {
                    // The ring is asked to the end, then the sockets have their turn.
                    if came | self.arm() {
                        continue;
                    }
                    self.talk();
                    self.send();
                    self.take_events();
                    self.sleep();
                }
            }
        }
        // The other ended then, too.
        let pause = self.last.map_or(Duration::ZERO, |last| last.elapsed());
        self.stalls.extend((pause > STALL).then_some(pause));
    }

    /// Until a signal comes, or what else wakes it: its timers send what is due, but do
    /// not look for what came.
    fn sleep(&mut self) {
        let since = Instant::now();
        while !self.signalled() {
            self.send();
            self.unsignalled = since.elapsed() > ELSE;
            if self.unsignalled {
                break;
            }
        }
    }

    fn receive(&mut self) -> bool {
        let now = at(self.began);
        self.vif.runner_mut().receive(now).expect("a sound backend")
    }

    fn send(&mut self) -> bool {
        let now = at(self.began);
        self.vif.runner_mut().send(now).expect("a sound backend")
    }

    fn arm(&mut self) -> bool {
        self.vif.runner_mut().arm().expect("a sound backend")
    }

    fn take_events(&mut self) {
        self.vif.runner_mut().take_events().expect("a host");
    }

    /// Waits for a signal as long as nothing is due; whether one came.
    fn signalled(&self) -> bool {
        self.is_signalled(self.vif.runner().poll_delay().map_or(ELSE, Duration::from))
    }

    /// Waits for a signal; whether one came.
    fn is_signalled(&self, delay: Duration) -> bool {
        let descriptor = self.vif.runner().descriptor().expect("a connection");
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        let timeout =
            Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        poll(&mut polled, Some(&timeout)).expect("poll") > 0
    }
}

/// smoltcp's clock.
fn at(began: Instant) -> grantway_stack::smoltcp::time::Instant {
    let micros = i64::try_from(began.elapsed().as_micros()).unwrap();
    grantway_stack::smoltcp::time::Instant::from_micros(micros)
}

/// Result of a stream.
struct Outcome {
    /// Pauses that somebody would notice.
    stalls: Vec<Duration>,
    /// Number of sleeps of a guest although a frame had come.
    slept_over: u64,
}

/// A stream between two guests that wait like this.
fn stream(wait: Wait, until: Until) -> Outcome {
    let outside = Namespace::new("b");
    let site = Site::start();
    outside.ip(&["link", "add", "gwbr", "type", "bridge"]);
    outside.ip(&["link", "set", "gwbr", "up"]);
    for domain in ["1", "2"] {
        let vif = format!("mac=00:16:3e:00:00:0{domain},vifname=gwb{domain}");
        succeed(site.command(None, "attach", &["--domain", domain, &vif]), PROMPT);
    }
    let mut backend = site.backend(Some(&outside), &["--merge", "off"]);
    for tap in ["gwb1", "gwb2"] {
        wait_for(tap, PROMPT, || outside.interface(tap));
        let args = ["link", "set", tap, "master", "gwbr", "txqueuelen", TXQUEUELEN, "up"];
        outside.ip(&args);
    }
    let (both, crossed) = (Barrier::new(2), AtomicU64::new(0));
    let ends = std::thread::scope(|scope| {
        let ends: Vec<_> = [1, 2]
            .map(|number| {
                let (dir, both, crossed) = (site.dir(), &both, &crossed);
                scope.spawn(move || {
                    let mut guest = Guest::open(dir, number, wait);
                    both.wait();
                    guest.run(until, crossed);
                    guest
                })
            })
            .into();
        ends.into_iter().map(|end| end.join().expect("a guest")).collect::<Vec<_>>()
    });
    let slept_over = ends.iter().map(|guest| guest.slept_over).sum();
    let taken = ends.iter().map(|guest| guest.taken).sum::<u64>();
    let stalls: Vec<_> = ends.into_iter().flat_map(|guest| guest.stalls).collect();
    backend.terminate();
    say(format!(
        "{wait:?}: {} stalls over {} ms, the longest {} ms; {slept_over} times a frame was \
         slept over; {} MB",
        stalls.len(),
        STALL.as_millis(),
        stalls.iter().max().map_or(0, Duration::as_millis),
        taken >> 20
    ));
    assert!(taken > 0, "{wait:?}: nothing came");
    Outcome { stalls, slept_over }
}

#[test]
fn a_stream_over_the_kernels_bridge_sleeps_over_no_frame() {
    let _alone = alone();
    if !available(&["ip"]) {
        return;
    }
    let asked = std::env::var("GRANTWAY_STALL_SECONDS").ok();
    let until = match asked {
        Some(text) => Until::Seconds(text.parse().expect("a number of seconds")),
        None => Until::Bytes(BYTES),
    };
    let level = stream(Wait::Level, until);
    assert_eq!(level.slept_over, 0, "a frame came, and its guest slept on");
    if let Until::Seconds(_) = until {
        // To be read beside it: how often the variant stands still, and for how long.
        let edge = stream(Wait::Edge, until);
        let stalls = [&level, &edge].map(|outcome| outcome.stalls.len());
        say(format!("stalls: {} by the ring's state, {} by signals", stalls[0], stalls[1]));
    }
}
