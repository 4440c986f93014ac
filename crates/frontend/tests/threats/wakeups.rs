//! Signals: none lost, and no more than are needed.

use crate::support::frame;
use crate::support::server::{RESTING, Rings, Server};
use crate::support::world::World;
use grantway_frontend::SendError;
use grantway_netif::Offload;
use grantway_netif::rx::RxFlags;
use grantway_netif::tx::status;
use grantway_ring::{Index, RingMemory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

/// Returns the number of round trips of the ping-pong; `GRANTWAY_ROUNDS` sets another.
fn rounds() -> u32 {
    std::env::var("GRANTWAY_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
}

/// Sleeps until the descriptor is readable.
#[track_caller]
fn sleep(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let patience = Timespec { tv_sec: 120, tv_nsec: 0 };
    let found = poll(&mut fds, Some(&patience)).unwrap();
    assert!(found > 0, "nobody signals any more: a wake-up was lost");
}

#[test]
fn seed_003_no_wakeup_is_lost_while_both_sides_sleep() {
    let rounds = rounds();
    let mut world = World::new();
    let mut rings = world.connect();
    let World { vif, server, .. } = &mut world;
    std::thread::scope(|scope| {
        // The backend answers each frame and sends it back; it sleeps between.
        scope.spawn(|| {
            let mut echoed = 0;
            while echoed < rounds {
                echoed += echo(server, &mut rings);
            }
        });
        let mut buffer = [0; 200];
        for round in 0..rounds {
            // The pause is long enough, now and then, for the backend to fall asleep, or to be
            // caught at any point on its way there.
            pause(round.wrapping_mul(0x9e37_79b9) >> 16);
            let sent = frame(60, round as u8);
            if let Err(SendError::Full) = vif.send(&sent, Offload::default()) {
                // The echo was there at once, a ring's worth of times.
                vif.reap().unwrap();
                vif.send(&sent, Offload::default()).unwrap();
            }
            vif.flush().unwrap();
            let received = loop {
                if let Some(received) = vif.recv(&mut buffer).unwrap() {
                    break received;
                }
                vif.reap().unwrap();
                if !vif.arm().unwrap() {
                    sleep(vif.queues()[0].events().descriptor().unwrap());
                }
                vif.take_events().unwrap();
            };
            assert_eq!(buffer[..received.len], frame(60, round as u8), "round {round}");
            // Nothing else posts pages while echoes are there at once for long.
            vif.repost().unwrap();
        }
    });
    world.ends(rings);
}

/// A guest's way of waiting for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The guest goes by the state of the ring, and looks at it once more after it was armed.
    Level,
    /// The guest goes by signals, and forgets those before the wait, as Mirage did.
    Edge,
}

/// A guest's step from one sleep to the next; [`Wait::steps`] has their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Drain,
    Arm,
    TakeEvents,
    Work,
}

impl Wait {
    fn steps(self) -> [Step; 4] {
        match self {
            Self::Level => [Step::Drain, Step::Work, Step::TakeEvents, Step::Arm],
            Self::Edge => [Step::Drain, Step::Arm, Step::Work, Step::TakeEvents],
        }
    }
}

/// Goes through every 97th of the schedules in which up to two frames arrive before each step of a
/// guest, for a few sleeps. Returns the number of schedules in which a frame was slept over, and
/// the number tried. Such a frame is on the ring, and no signal says so.
fn slept_over(wait: Wait) -> (u32, u32) {
    const SLEEPS: u32 = 3;
    let steps = wait.steps();
    // Frames before each step: none, one or two.
    let schedules = 3u32.pow(steps.len() as u32 * SLEEPS);
    let mut world = World::new();
    let mut rings = world.connect();
    let mut buffer = [0; 200];
    let (mut stalls, mut tried) = (0, 0);
    // Every 97th: a prime, so that each position comes with each number.
    for schedule in (0..schedules).step_by(97) {
        tried += 1;
        let mut frames = schedule;
        let mut slept_over = false;
        'sleeps: for _ in 0..SLEEPS {
            loop {
                let mut again = false;
                for step in steps {
                    for n in 0..frames % 3 {
                        if rings.deliver(&world.server, &frame(60, n as u8)) {
                            world.server.kick(rings.rx_event);
                        }
                    }
                    frames /= 3;
                    match step {
                        Step::Drain => while world.vif.recv(&mut buffer).unwrap().is_some() {},
                        Step::Arm => again = world.vif.arm().unwrap(),
                        Step::TakeEvents => drop(world.vif.take_events().unwrap()),
                        Step::Work => world.vif.repost().unwrap(),
                    }
                    if again {
                        break;
                    }
                }
                if !again {
                    break;
                }
            }
            // Now it sleeps.
            let signalled = is_readable(world.vif.queues()[0].events().descriptor().unwrap());
            let waits = rings.rx.load(Index::RspProd) != world_consumed(&world);
            if waits && !signalled {
                slept_over = true;
                break 'sleeps;
            }
        }
        stalls += u32::from(slept_over);
        // All is as at the beginning again.
        world.vif.take_events().unwrap();
        while world.vif.recv(&mut buffer).unwrap().is_some() {}
        world.vif.repost().unwrap();
    }
    world.ends(rings);
    (stalls, tried)
}

/// Returns the number of responses that the frontend has taken, of its only queue.
fn world_consumed(world: &World) -> u32 {
    world.vif.stats().rx_slots as u32
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn seed_003_a_wait_by_signals_alone_misses_a_frame_and_the_real_one_never() {
    let (stalls, tried) = slept_over(Wait::Level);
    assert_eq!(stalls, 0, "of {tried} schedules");
    let (stalls, tried) = slept_over(Wait::Edge);
    println!("by signals: {stalls} of {tried} schedules sleep over a frame");
    assert!(stalls * 4 > tried, "{stalls} of {tried} schedules");
}

/// Spins for up to about 16 us.
fn pause(random: u32) {
    let until = Instant::now() + Duration::from_nanos(u64::from(random % 16_384));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Serves the frames that are there, and sleeps if there is none. Returns the number of frames.
fn echo(server: &mut Server, rings: &mut Rings) -> u32 {
    let slots = rings.tx.load(Index::ReqProd).wrapping_sub(rings.tx_cons);
    if slots == 0 {
        rings.tx.store(Index::ReqEvent, rings.tx_cons.wrapping_add(1));
        fence(SeqCst);
        if rings.tx.load(Index::ReqProd) == rings.tx_cons {
            sleep(server.events.as_fd());
            server.events.poll(&mut |_| {}).unwrap();
        }
        return 0;
    }
    let first = rings.tx_cons;
    let requests = rings.requests();
    for (n, words) in requests.iter().enumerate() {
        let request = grantway_netif::tx::TxRequest::from_words(*words);
        let (_run, page) = server.peek(grantway_hypervisor::GrantRef(request.gref)).unwrap();
        let mut bytes = vec![0; usize::from(request.size)];
        page.read(request.offset.into(), &mut bytes).unwrap();
        rings.tx_put(first.wrapping_add(n as u32), request.id, status::OKAY);
        if rings.deliver(server, &bytes) {
            server.kick(rings.rx_event);
        }
    }
    if rings.tx_publish(rings.tx_cons) {
        server.kick(rings.tx_event);
    }
    requests.len() as u32
}

#[test]
fn openbsd_xnf_receive_pages_are_always_posted_again() {
    let mut world = World::new();
    let mut rings = world.connect();
    assert_eq!(rings.posted(), RESTING);
    let mut buffer = vec![0; 65_536];
    let mut numbers = 60u32;
    for round in 0..3000 {
        numbers = numbers.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Good, bad and long frames: each gives its pages back.
        match numbers >> 29 {
            0 => {
                let index = rings.rx_cons;
                let request = rings.take();
                rings.rx_put(index, request.id, 0, RxFlags::empty(), -1);
                rings.rx_publish(rings.rx_cons);
            }
            1 => drop(rings.deliver(&world.server, &frame(20_000, 1))),
            2 => drop(rings.deliver(&world.server, &frame(13, 1))),
            _ => drop(rings.deliver(&world.server, &frame(100, 1))),
        }
        while world.vif.recv(&mut buffer).unwrap().is_some() {}
        world.vif.repost().unwrap();
        assert!(rings.posted() > RESTING - 64 - 8, "round {round}: {} posted", rings.posted());
    }
    // Before the guest sleeps, all pages are posted, and the backend was told if it asked.
    rings.rx.store(Index::ReqEvent, rings.rx.load(Index::ReqProd).wrapping_add(1));
    let seen = server_count(&mut world.server, &rings);
    rings.deliver(&world.server, &frame(100, 1));
    while world.vif.recv(&mut buffer).unwrap().is_some() {}
    world.vif.arm().unwrap();
    assert_eq!(rings.posted(), RESTING);
    assert!(server_count(&mut world.server, &rings) > seen, "the backend waits for pages");
    world.ends(rings);
}

fn server_count(server: &mut Server, rings: &Rings) -> u64 {
    server.events.poll(&mut |_| {}).unwrap();
    server.events.count(rings.rx_event)
}

#[test]
fn linux_0ea09fb6d3_completions_are_not_reaped_in_each_transmit() {
    // A backend signals when the index that we asked for is passed. To reap within each transmit
    // would move that index each time.
    const BURSTS: usize = 2000;
    let mut world = World::new();
    let mut rings = world.connect();
    let mut asked = 0;
    let mut packets = 0;
    for burst in 0..BURSTS {
        for n in 0..8 {
            match world.vif.send(&frame(200, n), Offload::default()) {
                Ok(()) => packets += 1,
                Err(SendError::Full) => {
                    // The caller waits, is woken, and takes in, as it should.
                    world.vif.flush().unwrap();
                    if !world.vif.arm().unwrap() {
                        world.vif.reap().unwrap();
                    }
                }
                Err(e) => panic!("{e}"),
            }
        }
        world.vif.flush().unwrap();
        // The backend is as fast as can be: answered before the next burst.
        let (_, signal) = rings.serve_tx();
        asked += usize::from(signal);
        assert!(asked <= 1 + burst / 8, "burst {burst}: {asked} signals asked for");
    }
    assert!(packets > BURSTS * 7, "{packets}");
    assert!(asked * 100 <= packets, "{asked} signals for {packets} packets");
    world.vif.reap().unwrap();
    world.works(&mut rings);
    world.ends(rings);
}

#[test]
fn a_full_ring_sleeps_until_a_part_of_it_is_free() {
    let mut world = World::new();
    let mut rings = world.connect();
    while world.vif.send(&frame(60, 0), Offload::default()).is_ok() {}
    let armed = world.vif.arm().unwrap();
    assert!(!armed);
    let from = rings.tx_cons;
    let requests = rings.requests();
    assert_eq!(requests.len(), 256);
    let mut asked = Vec::new();
    for (n, words) in requests.iter().enumerate() {
        let index = from.wrapping_add(n as u32);
        rings.tx_put(index, grantway_netif::tx::TxRequest::from_words(*words).id, status::OKAY);
        if rings.tx_publish(index.wrapping_add(1)) {
            asked.push(n + 1);
        }
    }
    assert_eq!(asked, [64], "one signal, at a quarter");
    let reaped = world.vif.reap().unwrap();
    assert_eq!(reaped, 256);
    std::thread::sleep(Duration::from_millis(1));
    world.ends(rings);
}

#[test]
fn a_queue_that_waits_only_for_room_is_not_woken_by_frames() {
    let mut world = World::new();
    let mut rings = world.connect();
    let (sent, mut buffer) = (frame(60, 1), [0; 200]);
    rings.deliver(&world.server, &sent);
    assert!(world.vif.recv(&mut buffer).unwrap().is_some());
    while world.vif.send(&sent, Offload::default()).is_ok() {}
    // The ring was not armed for receiving since that frame, and is not now.
    assert!(!world.vif.queues()[0].arm_for_room().unwrap(), "no room");
    assert!(!rings.deliver(&world.server, &sent), "a signal is asked for");
    assert!(!world.vif.queues()[0].arm_for_room().unwrap(), "a frame is no room");
    let (answered, asked) = rings.serve_tx();
    assert!(answered > 0 && asked, "nobody signals room");
    assert!(world.vif.queues()[0].arm_for_room().unwrap(), "there is room");
    assert!(world.vif.arm().unwrap(), "the frame is still there");
    assert!(world.vif.recv(&mut buffer).unwrap().is_some());
    world.ends(rings);
}
