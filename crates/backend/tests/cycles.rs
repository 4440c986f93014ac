//! Thousands of vifs that come, carry frames and go cost nothing that stays: of
//! host, backend, frontend and toolstack, which are all in this process. Alone in
//! it, since the process is what is measured.

mod support;

use grantway_backend::{VifId, WaitMode};
use grantway_embedded::{Domain, Role, Tables};
use grantway_frontend::{Policy, Vif, VifStatus, Wishes};
use grantway_hypervisor::DomId;
use grantway_netif::{Offload, XenbusState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::control::Control;
use support::hostile::frame;
use support::port::Ports;
use support::toolstack::Toolstack;
use support::world::World;
use support::{PROMPT, eventually};

/// Counts what is held of the heap, byte by byte: the kernel's figure for the
/// process goes up and down with what the allocator keeps for later.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Guests that come and go side by side.
const LANES: u16 = 16;
/// Cycles of each: first those that fill what keeps its room (arenas of the
/// allocator, tables, lists), then those that count: ten thousand vifs together.
const WARM_UP: u32 = 25;
const CYCLES: u32 = 625;
/// Frames each way in a cycle.
const FRAMES: u64 = 4;

/// Bytes a cycle that the heap may grow by: less than the smallest thing that could
/// be kept of each vif. Some 3 were seen at ten thousand, of what the last guests leave behind.
const HEAP_MORE: u64 = 16;
/// Descriptors and mappings that may be more in the end. What was mapped of a guest that died
/// is let go when the next guest is looked for, so each lane may owe one. The allocator also
/// maps or splits an arena when threads meet in it. A leak of one in a hundred cycles would be
/// a hundred.
const OWED: usize = LANES as usize;
const MAPPINGS_MORE: usize = OWED + 16;

/// End of a vif.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The toolstack asks its backend to close, and the guest follows.
    Detached,
    /// The guest closes first.
    Shut,
    /// The guest's process dies.
    Dies,
}

/// Resources that the process and the host hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    /// Counts that must be exactly the same in the end.
    exact: Exact,
    descriptors: usize,
    mappings: usize,
    /// Bytes of the heap.
    heap: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Exact {
    threads: usize,
    /// Journals in the backend's folder.
    journals: usize,
    /// Pages that the backend has mapped.
    mapped: u64,
    /// Connections and event sets of the host; grants, ports and leases of each
    /// domain, and its nodes, watches and transactions in the store.
    tables: Tables,
}

impl Exact {
    /// Returns true if all guests' processes have ended, and the host knows it.
    fn is_as_idle_as(&self, fresh: &Self) -> bool {
        let Self { threads, mapped, tables, .. } = self;
        let host =
            |tables: &Tables| (tables.connections, tables.store_connections, tables.event_sets);
        (*threads, *mapped, host(tables)) == (fresh.threads, fresh.mapped, host(&fresh.tables))
    }
}

impl Held {
    fn now(world: &World) -> Self {
        let count = |path: &str| std::fs::read_dir(path).unwrap().count();
        let heap = HEAP.stats();
        // A block that changed its size is in the first two by the difference.
        let held = heap.bytes_allocated - heap.bytes_deallocated;
        let mut tables = world.tools.host_tables().unwrap();
        // How often a domain booted is no leak.
        tables.domains.iter_mut().for_each(|domain| domain.boot = 0);
        let journals = world.setup.run_folder.join("backend-0");
        let exact = Exact {
            threads: count("/proc/self/task"),
            journals: std::fs::read_dir(journals).map_or(0, Iterator::count),
            mapped: world.control().counters().mapped,
            tables,
        };
        Self {
            exact,
            descriptors: count("/proc/self/fd"),
            mappings: std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            heap: held as u64,
        }
    }
}

/// One guest that comes and goes.
struct Lane<'a> {
    world: &'a Shared<'a>,
    guest: DomId,
    toolstack: Toolstack,
    /// The guest's process.
    domain: Option<Arc<Domain>>,
}

/// Parts of the world that all lanes use.
struct Shared<'a> {
    tools: &'a Arc<Domain>,
    dir: &'a std::path::Path,
    control: &'a Control,
    ports: &'a Ports,
}

impl Lane<'_> {
    /// Attaches a vif and ends it. The vif's name was never used before, so records that are
    /// kept by name are not those of an earlier vif.
    fn cycle(&mut self, devid: u32, end: End) {
        let Shared { dir, control, ports, .. } = self.world;
        let (id, vif) = (self.guest, VifId { domain: self.guest, devid });
        // One that died may still be on the host's mind.
        let domain = self.domain.take().unwrap_or_else(|| {
            eventually("the guest boots", || Domain::connect(dir, id, Role::Guest).ok())
        });
        self.toolstack.attach(vif, &[]);
        let wishes = Wishes { policy: Policy::Copy, ..Wishes::default() };
        let mut guest = Vif::open(Arc::clone(&domain) as _, devid, wishes).unwrap();
        step(&mut guest, "connect", |guest| guest.status() == VifStatus::Connected);
        let behind = ports.of(vif);
        for _ in 0..FRAMES {
            behind.give(frame(5000), Offload::default());
            guest.send(&frame(300), Offload::default()).unwrap();
        }
        guest.flush().unwrap();
        let (mut buffer, mut received) = (vec![0; 65_536], 0);
        step(&mut guest, "carry frames", |guest| {
            while guest.recv(&mut buffer).unwrap().is_some() {
                received += 1;
            }
            received == FRAMES && behind.look().sent == FRAMES
        });
        match end {
            End::Detached => self.toolstack.ask_to_close(vif),
            End::Shut => guest.shutdown().unwrap(),
            End::Dies => {}
        }
        if !matches!(end, End::Dies) {
            let closed = Some(XenbusState::Closed);
            step(&mut guest, "close", |_| self.toolstack.backend_state(vif) == closed);
            self.toolstack.ask_to_close(vif);
            self.toolstack.await_closed(vif);
        }
        drop(guest);
        if !matches!(end, End::Dies) {
            self.domain = Some(domain);
        }
        self.toolstack.remove_both(vif);
        eventually("the backend's forgetting of the vif", || {
            control.report_of(vif).is_none().then_some(())
        });
        eventually("the end of its port", || ports.forget(vif).then_some(()));
    }
}

/// Drives a guest until something holds.
#[track_caller]
fn step(guest: &mut Vif, what: &str, mut holds: impl FnMut(&mut Vif) -> bool) {
    let start = Instant::now();
    loop {
        guest.store_changed().unwrap();
        guest.take_events().unwrap();
        assert_eq!(guest.take_failure(), None);
        if holds(guest) {
            return;
        }
        guest.reap().unwrap();
        guest.repost().unwrap();
        assert!(start.elapsed() < PROMPT, "does not {what}: {:?}", guest.status());
        if !guest.arm().unwrap() {
            let fds = guest.event_descriptors().chain(guest.store().descriptor());
            let mut fds: Vec<_> =
                fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let pause = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let _ = poll(&mut fds, Some(&pause));
        }
    }
}

/// Runs `cycles` cycles in each lane, with vifs numbered from `from`.
fn run(world: &World, from: u32, cycles: u32) {
    let shared = Shared {
        tools: &world.tools,
        dir: &world.setup.dir,
        control: world.control(),
        ports: &world.ports,
    };
    std::thread::scope(|scope| {
        for number in 0..LANES {
            let shared = &shared;
            scope.spawn(move || {
                let guest = DomId(20 + number);
                let toolstack = Toolstack::new(shared.tools, DomId(0));
                shared.tools.create_domain(guest, &format!("guest-{guest}")).unwrap();
                let mut lane = Lane { world: shared, guest, toolstack, domain: None };
                for cycle in 0..cycles {
                    let ends = [End::Detached, End::Shut, End::Detached, End::Dies];
                    lane.cycle(from + cycle, ends[cycle as usize % ends.len()]);
                    // What the backend told its log is the test's own.
                    shared.control.log.clear();
                }
            });
        }
    });
}

#[test]
fn thousands_of_vifs_come_and_go_and_nothing_stays() {
    let world = World::of_workers(1, WaitMode::Interrupt, false);
    let fresh = Held::now(&world).exact;
    run(&world, 0, WARM_UP);
    // The host may still be at the last guests' ends.
    let before = eventually("the guests' ends", || {
        let now = Held::now(&world);
        now.exact.is_as_idle_as(&fresh).then_some(now)
    });
    let start = Instant::now();
    run(&world, WARM_UP, CYCLES);
    let ended = Instant::now();
    let mut after = Held::now(&world);
    while after.exact != before.exact && ended.elapsed() < PROMPT {
        std::thread::sleep(Duration::from_millis(5));
        after = Held::now(&world);
    }
    let cycles = u64::from(CYCLES) * u64::from(LANES);
    println!(
        "{cycles} cycles in {:.0?}: heap {} and {} bytes, {} and {} mappings",
        ended - start,
        before.heap,
        after.heap,
        before.mappings,
        after.mappings
    );
    assert_eq!(after.exact, before.exact);
    assert!(after.descriptors <= before.descriptors + OWED, "{before:?}\n{after:?}");
    assert!(after.mappings <= before.mappings + MAPPINGS_MORE, "{before:?}\n{after:?}");
    let grown = after.heap.saturating_sub(before.heap);
    assert!(grown < HEAP_MORE * cycles, "the heap grew by {} bytes a cycle", grown / cycles);
    world.bridge_stands();
}
