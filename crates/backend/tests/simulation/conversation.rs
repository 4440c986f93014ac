//! One conversation: its actors, what is done to them, and what must hold.

mod frames;
mod hostile;

use super::backend::{Server, Setup, passes};
use super::enemy::Enemy;
use super::guest::Guest;
use super::port::Lines;
use super::told::Told;
use super::toolstack::Toolstack;
use super::xen::Xen;
use grantway_backend::VifId;
use grantway_backend::policy::{Policy, PolicyLimits};
use grantway_frontend::{Reopen, Wishes};
use grantway_hypervisor::{DomId, Platform};
use grantway_netif::XenbusState;
use grantway_testkit::Numbers;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Frames on their way from one guest at most, so that the bounded queue of one
/// that has to wait for its turn does not overflow.
const OUTSTANDING: u64 = 100;
/// Frames that each guest must carry each way in the end.
const LAST: u64 = 20;
/// Passes over all actors after which none should have anything to do.
const PASSES: u32 = 20_000;
/// Time that may pass while frames wait and are not to be dropped: they are, after
/// 10 s.
const PATIENT: Duration = Duration::from_secs(8);

/// Events that may disturb a conversation.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    guest_kills: bool,
    backend_kills: bool,
    backend_ends: bool,
    detaches: bool,
    guest_closes: bool,
    destroys: bool,
    rates: bool,
    /// Time passes in large steps, so that guests are waited for in vain.
    long: bool,
}

/// Progress of a vif's removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attachment {
    Attached,
    /// Asked to close; its folders go by then at the latest.
    Closing {
        until: u32,
    },
    Detached,
}

pub struct Conversation {
    numbers: Numbers,
    trouble: Trouble,
    bridged: bool,
    queues: u32,
    xen: Xen,
    server: Server,
    toolstack: Toolstack,
    lines: Arc<Lines>,
    guests: Vec<Guest>,
    attachments: Vec<Attachment>,
    enemies: Vec<Enemy>,
    next_domain: u16,
    passed: Duration,
    story: String,
    told: Told,
    folder: tempfile::TempDir,
}

impl Conversation {
    pub fn new(seed: u64) -> Self {
        // Seeds that differ by one differ in all.
        let mut numbers = Numbers::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut once_in = |many| numbers.once_in(many);
        let calm = once_in(8);
        let trouble = Trouble {
            guest_kills: !calm && once_in(2),
            backend_kills: !calm && once_in(3),
            backend_ends: !calm && once_in(6),
            detaches: !calm && once_in(3),
            guest_closes: !calm && once_in(3),
            destroys: !calm && once_in(4),
            rates: once_in(6),
            long: !calm && once_in(8),
        };
        let bridged = once_in(3);
        let queues = numbers.one_of(&[1, 1, 2]);
        let mut policy = PolicyLimits::default();
        if numbers.once_in(4) {
            policy.most = Policy::Map;
            policy.pages = numbers.one_of(&[20, 4096]);
        }
        let xen = Xen::new();
        let tools = xen.spawn(DomId(0));
        let toolstack = Toolstack { store: tools.store().unwrap(), backend: DomId(0) };
        let guests = 2 + numbers.below(2);
        let mut lines = Lines::default();
        (0..guests).for_each(|_| lines.add(numbers.one_of(&[60, 300, 1514])));
        let enemies = if numbers.once_in(3) { 2 + numbers.below(2) } else { 0 };
        (0..enemies).for_each(|_| lines.add(60));
        let by_rules = enemies > 0 && numbers.once_in(4);
        let lines = Arc::new(lines);
        let folder = tempfile::tempdir().unwrap();
        let run_folder = folder.path().to_owned();
        let lines_too = Arc::clone(&lines);
        let workers = numbers.one_of(&[1, 1, 2, 3]);
        let setup =
            Setup { run_folder, queues, bridged, workers, by_rules, policy, lines: lines_too };
        let mut conversation = Self {
            numbers,
            trouble,
            bridged,
            queues,
            xen,
            server: Server::new(setup),
            toolstack,
            lines,
            guests: Vec::new(),
            attachments: Vec::new(),
            enemies: Vec::new(),
            next_domain: 1,
            passed: Duration::ZERO,
            story: String::new(),
            told: Told::default(),
            folder,
        };
        conversation.tell(format_args!(
            "{trouble:?} bridged: {bridged} queues: {queues} workers: {workers}"
        ));
        conversation.tell(format_args!("{policy:?} by rules: {by_rules} enemies: {enemies}"));
        conversation.invite(guests);
        conversation.suffer(enemies);
        conversation
    }

    fn tell(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.story, "{what}");
    }

    /// Returns the events of the conversation, for a message about its failure.
    pub fn story(&self) -> String {
        self.story.clone()
    }

    fn fresh_vif(&mut self) -> VifId {
        let domain = DomId(self.next_domain);
        self.next_domain += 1;
        self.xen.create(domain);
        VifId { domain, devid: self.numbers.below(2) as u32 }
    }

    fn invite(&mut self, count: usize) {
        for number in 0..count {
            let id = self.fresh_vif();
            let mut flag = || !self.numbers.once_in(4);
            let wishes = Wishes {
                scatter_gather: flag(),
                gso: flag(),
                checksum: flag(),
                split_events: flag(),
                queues: self.queues as u16,
                control: flag(),
                policy: self.numbers.one_of(&[
                    Policy::Copy,
                    Policy::Persistent,
                    Policy::Staging,
                    Policy::Staging,
                ]),
                reopen: match number % 2 {
                    0 => Reopen::Initialising,
                    _ => Reopen::Connected,
                },
            };
            // Who takes no scattered frames is sent none, by those beside it.
            let sizes: &[usize] = match self.bridged || !wishes.scatter_gather {
                true => &[60, 300, 1514],
                false => &[60, 1514, 5000, 17_000],
            };
            let size = self.numbers.one_of(sizes);
            let to = if self.bridged { (number + 1) % count } else { number };
            self.guests.push(Guest::new(number, id, wishes, size, to));
            self.attachments.push(Attachment::Detached);
            self.attach(number);
        }
    }

    fn attach(&mut self, number: usize) {
        let id = self.guests[number].id;
        self.lines.name(number, id);
        let mut keys = Vec::new();
        if self.trouble.rates && self.numbers.once_in(2) {
            keys.push(("rate", "2000000,50000"));
        }
        self.toolstack.attach(id, &keys);
        self.attachments[number] = Attachment::Attached;
        self.tell(format_args!("guest {number}: {id} attached {keys:?}"));
    }

    pub fn run(&mut self) -> Told {
        self.server.start(&self.xen, None);
        if self.bridged {
            // What goes to one that is not there yet is lost.
            self.settle();
        }
        let ticks = 40 + self.numbers.below(120) as u32;
        for tick in 0..ticks {
            self.tick(tick);
            // What a kill left is seen best where nothing comes after it.
            if self.server.killed > 0 && !self.server.is_running() && self.numbers.once_in(4) {
                break;
            }
        }
        self.mend(ticks);
        self.all_are_served();
        self.all_go();
        std::mem::take(&mut self.told)
    }

    /// Lets one of the actors do something.
    fn tick(&mut self, tick: u32) {
        let guests = self.guests.len();
        if !self.enemies.is_empty() && self.numbers.once_in(2) {
            self.hurt(tick);
        }
        match self.numbers.below(20) {
            0..=8 => {
                let number = self.numbers.below(guests);
                self.guests[number].opens(&self.xen);
                if self.numbers.once_in(2) {
                    self.offer(number, 16);
                }
                let guest = &mut self.guests[number];
                guest.step(&mut self.numbers, false);
            }
            9..=12 => drop(self.server.step()),
            13..=17 => drop(self.server.serve()),
            18 => {
                let longest = if self.trouble.long { 20_000 } else { 200 };
                let time = Duration::from_millis(self.numbers.below(longest) as u64);
                self.pass(time);
            }
            _ => self.trouble(tick),
        }
        if !self.server.is_running() && self.numbers.once_in(4) {
            // One that is killed while it starts is started again.
            let dies = self.trouble.backend_kills && self.numbers.once_in(4);
            let calls = dies.then(|| self.numbers.below(60) as u64 + 1);
            self.server.start(&self.xen, calls);
            self.tell(format_args!("{tick}: backend started, to die after {calls:?}"));
        }
        for number in 0..guests {
            self.go_on_detaching(number, tick);
        }
    }

    fn pass(&mut self, time: Duration) {
        if self.trouble.long || self.passed + time < PATIENT {
            self.passed += time;
            passes(time);
        }
    }

    /// Gives a guest, and the port behind it, frames to send.
    fn offer(&mut self, number: usize, most: usize) {
        let arrived = self.arrived(number);
        let count = 1 + self.numbers.below(most) as u64;
        let guest = &mut self.guests[number];
        let room = OUTSTANDING.saturating_sub(guest.sent + guest.to_send - arrived.min(guest.sent));
        guest.to_send += count.min(room);
        if !self.bridged {
            self.lines.credit(number, count);
        }
    }

    /// Frames of a guest that arrived.
    fn arrived(&self, number: usize) -> u64 {
        match self.bridged {
            true => self.guests[(number + 1) % self.guests.len()].seen.total().received,
            false => self.lines.look(number).from_guest.total().received,
        }
    }

    /// Something goes wrong, or is taken away.
    fn trouble(&mut self, tick: u32) {
        let number = self.numbers.below(self.guests.len());
        // The last one is left in peace, by all but the backend.
        let peaceful = number + 1 == self.guests.len();
        let trouble = self.trouble;
        match self.numbers.below(6) {
            0 if trouble.guest_kills && !peaceful => {
                let calls = 1 + self.numbers.below(40) as u64;
                self.guests[number].dies_after(calls);
                self.told.guest_kills += 1;
                self.tell(format_args!("{tick}: guest {number} dies after {calls} calls"));
            }
            1 if trouble.backend_kills => {
                if self.numbers.once_in(4) {
                    self.server.dies_at_signal();
                    return self.tell(format_args!("{tick}: backend dies at its next signal"));
                }
                let calls = 1 + self.numbers.below(60) as u64;
                self.server.dies_after(calls);
                self.tell(format_args!("{tick}: backend dies after {calls} calls"));
            }
            2 if trouble.backend_ends && self.server.is_running() => {
                self.server.ends();
                self.guests.iter_mut().for_each(|guest| guest.disturbed = true);
                self.tell(format_args!("{tick}: backend ends"));
            }
            3 if trouble.detaches && !peaceful => self.detach(number, tick),
            4 if trouble.guest_closes && !peaceful => {
                self.guests[number].close();
                self.told.closes += 1;
                self.tell(format_args!("{tick}: guest {number} closes"));
            }
            5 if trouble.destroys && !peaceful => self.destroy(number, tick),
            _ => {}
        }
    }

    fn detach(&mut self, number: usize, tick: u32) {
        let id = self.guests[number].id;
        match self.attachments[number] {
            Attachment::Attached => {
                self.guests[number].disturbed = true;
                self.toolstack.ask_to_close(id);
                let until = tick + self.numbers.below(40) as u32;
                self.attachments[number] = Attachment::Closing { until };
                self.told.detaches += 1;
                self.tell(format_args!("{tick}: guest {number}: {id} to close by {until}"));
            }
            Attachment::Closing { .. } => {}
            Attachment::Detached => self.attach(number),
        }
    }

    fn go_on_detaching(&mut self, number: usize, tick: u32) {
        let Attachment::Closing { until } = self.attachments[number] else { return };
        let id = self.guests[number].id;
        let closed = matches!(self.toolstack.backend_state(id), None | Some(XenbusState::Closed));
        if !closed && tick < until {
            return;
        }
        self.told.forced += u64::from(!closed);
        self.toolstack.remove_both(id);
        self.attachments[number] = Attachment::Detached;
        self.tell(format_args!("{tick}: guest {number}: {id} detached, closed: {closed}"));
    }

    /// The domain dies; another takes its place.
    fn destroy(&mut self, number: usize, tick: u32) {
        let id = self.guests[number].id;
        self.guests[number].kill();
        self.xen.destroy(id.domain);
        self.toolstack.ask_to_close(id);
        // The toolstack waits for the backend, at times in vain.
        for _ in 0..self.numbers.below(20) {
            self.server.step();
        }
        self.toolstack.remove_both(id);
        self.attachments[number] = Attachment::Detached;
        self.told.destroys += 1;
        self.guests[number].id = self.fresh_vif();
        self.tell(format_args!("{tick}: guest {number}: {id} destroyed"));
        self.attach(number);
    }

    /// Ends all disturbances, and brings back what is missing.
    fn mend(&mut self, tick: u32) {
        self.server.lives();
        self.guests.iter_mut().for_each(Guest::lives);
        self.settle();
        self.server.waits_no_longer();
        self.settle();
        for number in 0..self.guests.len() {
            if let Attachment::Closing { .. } = self.attachments[number] {
                self.attachments[number] = Attachment::Closing { until: 0 };
                self.go_on_detaching(number, tick);
                self.settle();
            }
            if self.attachments[number] == Attachment::Detached {
                self.attach(number);
            }
        }
        self.settle();
        self.tell(format_args!("mended"));
    }

    /// Lets all actors act until none has anything to do.
    fn settle(&mut self) {
        for _ in 0..PASSES {
            if !self.server.is_running() {
                self.server.start(&self.xen, None);
            }
            let mut busy = self.server.step() | self.server.serve();
            for guest in &mut self.guests {
                busy |= guest.opens(&self.xen);
                if guest.is_ready() {
                    guest.step(&mut self.numbers, true);
                    busy = true;
                }
            }
            if !busy {
                return self.nobody_oversleeps();
            }
        }
        panic!("after {PASSES} passes somebody still finds something to do: {}", self.stand());
    }

    /// Nobody waits for a signal while there is something for him already.
    fn nobody_oversleeps(&mut self) {
        for number in 0..self.guests.len() {
            if self.guests[number].oversleeps(&mut self.numbers) {
                panic!("guest {number} was not woken for what was there\n{}", self.stand());
            }
        }
    }

    /// Returns the state of every guest and its vif, for a message about a failure.
    fn stand(&mut self) -> String {
        let mut stand = String::new();
        for number in 0..self.guests.len() {
            let id = self.guests[number].id;
            let report = self.server.report_of(id);
            let shown = self.toolstack.backend_state(id);
            let error = self.toolstack.backend_key(id, "error");
            let front = self.toolstack.read(&format!("{}/state", self.toolstack.front(id)));
            let guest = &self.guests[number];
            let (status, to_send, sent) = (guest.status(), guest.to_send, guest.sent);
            let seen = guest.seen.total();
            let _ = writeln!(
                stand,
                "guest {number} ({id}): {status:?}, front {front:?}, back {shown:?}, {to_send} to \
                 send, {sent} sent, seen {seen:?}; error {error:?}; {report:?}"
            );
        }
        stand
    }

    /// Everybody is connected and loses nothing.
    fn all_are_served(&mut self) {
        for number in 0..self.guests.len() {
            if !self.guests[number].is_connected() {
                panic!("guest {number} is not connected\n{}", self.stand());
            }
        }
        // What is limited takes its time, also on the ring.
        let carried = |all: &Self| -> Vec<_> {
            let guests = 0..all.guests.len();
            guests.map(|number| (all.guests[number].to_send, all.counts(number))).collect()
        };
        let (mut last, mut same) = (carried(self), 0);
        self.wait_for(|all| {
            let now = carried(all);
            same = if now == last { same + 1 } else { 0 };
            last = now;
            // A tenth of a second without a frame: twice what a limit waits for.
            same > 5
        });
        self.look_at_frames();
        let before: Vec<_> = (0..self.guests.len()).map(|number| self.counts(number)).collect();
        for number in 0..self.guests.len() {
            self.guests[number].to_send += LAST;
            self.guests[number].wakes();
            if !self.bridged {
                self.lines.credit(number, LAST);
            }
        }
        let arrived = |all: &Self| {
            (0..all.guests.len()).all(|number| {
                let (sent, got) = all.counts(number);
                (sent, got) == (before[number].0 + LAST, before[number].1 + LAST)
            })
        };
        if !self.wait_for(arrived) {
            panic!("not all of the last frames arrived; before {before:?}\n{}", self.stand());
        }
        self.look_at_frames();
        self.look_at_mappings();
    }

    /// Checks that the backend has mapped exactly the pages that guests believe to be staged,
    /// even after kills, and that no page is mapped for packets that have arrived.
    fn look_at_mappings(&mut self) {
        for guest in &self.guests {
            let report = self.server.report_of(guest.id).expect("it is served");
            if report.policy == Policy::Map {
                if report.mapped != 0 {
                    panic!("{} are mapped for no packet\n{}", report.mapped, self.stand());
                }
                self.told.in_place += report.stats.mapped_hits;
                continue;
            }
            let states = guest.staging();
            if states.is_empty() {
                continue;
            }
            let settled = states.iter().all(|state| state.is_settled() && state.refusal.is_none());
            let staged = states.iter().map(|state| state.staged).sum::<usize>();
            if !settled || report.mapped != staged {
                panic!("{} are mapped of {states:?}\n{}", report.mapped, self.stand());
            }
            self.told.staged += staged as u64;
            self.told.hits += report.stats.mapped_hits;
        }
    }

    /// Lets time pass until something holds. Returns false if it never does.
    fn wait_for(&mut self, mut holds: impl FnMut(&Self) -> bool) -> bool {
        for _ in 0..400 {
            self.settle();
            if holds(self) {
                return true;
            }
            passes(Duration::from_millis(20));
        }
        false
    }

    /// Everything is taken away, and nothing is left.
    fn all_go(&mut self) {
        self.enemies_go();
        for number in 0..self.guests.len() {
            self.told.frames += self.guests[number].seen.total().received + self.arrived(number);
            self.told.bulk += self.guests[number].bulk;
            let id = self.guests[number].id;
            self.toolstack.ask_to_close(id);
            self.settle();
            let state = self.toolstack.backend_state(id);
            if state != Some(XenbusState::Closed) {
                panic!("{id} is not closed\n{}", self.stand());
            }
            self.toolstack.remove_both(id);
            self.settle();
        }
        assert_eq!(self.server.vifs(), 0, "{}", self.stand());
        self.told.backend_kills = self.server.killed;
        self.told.backend_ends = self.server.ended;
        for domain in 1..self.next_domain {
            let held = self.xen.holds(DomId(domain));
            assert_eq!(held, (0, 0, 0), "domain {domain}: grants, of them mapped, ports");
            assert_eq!(self.xen.watches(DomId(domain)), 0, "domain {domain}: watches");
        }
        assert_eq!(self.xen.holds(DomId(0)).2, 0, "event channels of the backend");
        assert_eq!(self.xen.watches(DomId(0)), 1, "watches of the backend");
        for number in 0..self.lines.count() {
            let line = self.lines.look(number);
            assert_eq!((line.handles, line.there), (0, false), "port of guest {number}");
        }
        let left = std::fs::read_dir(self.folder.path().join("backend-0"));
        assert_eq!(left.map_or(0, Iterator::count), 0, "journals");
    }
}
