//! A handwritten guest against the real backend, a hypervisor that is stepped and a model:
//! random lists that are added and taken back, packets, other requests, kills between any two
//! calls, new connections and new domains. At every moment the mapped pages are those that the
//! answers name, and within the quota. Every request is answered once. In the end nothing is
//! mapped, and no frame came twice or damaged.

mod guest;
mod link;
mod model;
mod told;

use super::backend::{Server, Setup, passes};
use super::port::Lines;
use super::toolstack::Toolstack;
use super::xen::Xen;
use grantway_backend::VifId;
use grantway_backend::policy::{Policy, PolicyLimits};
use grantway_hypervisor::{DomId, Platform};
use grantway_netif::XenbusState;
use grantway_testkit::Numbers;
use guest::Guest;
use model::Model;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
pub use told::Told;

/// Passes over backend and guest within which anything that must come comes.
const PASSES: u32 = 2000;
/// Random acts of a conversation.
const TICKS: usize = 160;

pub struct Conversation {
    numbers: Numbers,
    xen: Xen,
    server: Server,
    toolstack: Toolstack,
    lines: Arc<Lines>,
    guest: Guest,
    model: Model,
    most: Policy,
    queues: usize,
    persistent: bool,
    /// True if the conversation is disturbed: the backend is killed at times, the guest begins
    /// anew, and so on.
    troubled: bool,
    next_domain: u16,
    story: String,
    told: Told,
    folder: tempfile::TempDir,
}

impl Conversation {
    pub fn new(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Mostly about staging.
        let most = match numbers.once_in(4) {
            true => numbers.one_of(&Policy::ALL),
            false => Policy::Staging,
        };
        let pages = if numbers.once_in(6) { 1 } else { 8 } + numbers.below(32);
        let queues = 1 + numbers.below(2);
        let xen = Xen::new();
        let tools = xen.spawn(DomId(0));
        let toolstack = Toolstack { store: tools.store().unwrap(), backend: DomId(0) };
        let mut lines = Lines::default();
        lines.add(numbers.one_of(&[60, 300, 1514]));
        let lines = Arc::new(lines);
        let folder = tempfile::tempdir().unwrap();
        let policy = PolicyLimits { most, pages, ..PolicyLimits::default() };
        let setup = Setup {
            run_folder: folder.path().to_owned(),
            queues: queues as u32,
            bridged: false,
            workers: 1,
            by_rules: false,
            lines: Arc::clone(&lines),
            policy,
        };
        let id = VifId { domain: DomId(1), devid: 0 };
        xen.create(id.domain);
        let guest = Guest::new(&xen, id);
        let model = Model { stages: false, queues: 0, quota: pages, staged: BTreeMap::default() };
        let mut conversation = Self {
            troubled: !numbers.once_in(4),
            server: Server::new(setup),
            numbers,
            xen,
            toolstack,
            lines,
            guest,
            model,
            most,
            queues,
            persistent: false,
            next_domain: 2,
            story: format!("at most {most}, {pages} pages, {queues} queues\n"),
            told: Told::default(),
            folder,
        };
        conversation.attach();
        conversation
    }

    pub fn story(&self) -> String {
        self.story.clone()
    }

    fn tell(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.story, "{what}");
    }

    fn attach(&mut self) {
        let id = self.guest.id;
        self.lines.name(0, id);
        self.toolstack.attach(id, &[]);
    }

    pub fn run(&mut self) -> Told {
        self.server.start(&self.xen, None);
        self.connect();
        for tick in 0..TICKS {
            self.tick(tick);
            self.look();
        }
        self.server.lives();
        self.settle();
        self.look_at_frames();
        self.goes();
        std::mem::take(&mut self.told)
    }

    fn tick(&mut self, tick: usize) {
        let kills = self.server.killed;
        match self.numbers.below(32) {
            0..=5 => {
                if let Some(said) = self.guest.ask(&mut self.numbers, &self.model) {
                    self.tell(format_args!("{tick}: {said}"));
                }
            }
            6..=9 => self.guest.send(&mut self.numbers, kills),
            10..=12 => self.guest.post(&mut self.numbers, &self.model, kills),
            13 => {
                let frames = self.numbers.below(20) as u64;
                self.lines.credit(0, frames);
            }
            14..=21 => drop(self.server.step()),
            22..=29 => drop(self.server.serve()),
            30 => passes(Duration::from_millis(self.numbers.below(1000) as u64)),
            _ if self.troubled => self.trouble(tick),
            _ => {}
        }
        if !self.server.is_running() && self.numbers.once_in(3) {
            let calls = self.numbers.once_in(4).then(|| 1 + self.numbers.below(60) as u64);
            self.server.start(&self.xen, calls);
            self.tell(format_args!("{tick}: backend started, to die after {calls:?}"));
        }
    }

    fn trouble(&mut self, tick: usize) {
        match self.numbers.below(8) {
            0..=3 => {
                let calls = 1 + self.numbers.below(40) as u64;
                self.server.dies_after(calls);
                self.tell(format_args!("{tick}: backend dies after {calls} calls"));
            }
            4 => {
                self.server.dies_at_signal();
                self.tell(format_args!("{tick}: backend dies at its next signal"));
            }
            5 => {
                self.tell(format_args!("{tick}: the guest begins anew"));
                self.begins_anew();
                self.connect();
            }
            6 => {
                self.tell(format_args!("{tick}: backend ends"));
                self.ends();
                self.connect();
            }
            _ => self.destroy(tick),
        }
    }

    /// The backend's process ends in order, or is killed at that.
    fn ends(&mut self) {
        let id = self.guest.id;
        self.server.ends();
        let shown = move |all: &mut Self| {
            let state = all.toolstack.backend_state(id);
            matches!(state, Some(XenbusState::Closing | XenbusState::Closed))
        };
        self.until("its Closing", move |all| !all.server.is_running() || shown(all));
        if shown(self) {
            self.shows(XenbusState::Closed);
        }
        self.until("the end of the backend", |all| !all.server.is_running());
    }

    /// The guest's domain dies with all that it has staged.
    fn destroy(&mut self, tick: usize) {
        let old = self.guest.id;
        self.tell(format_args!("{tick}: {old} is destroyed"));
        self.xen.destroy(old.domain);
        self.toolstack.ask_to_close(old);
        for _ in 0..self.numbers.below(20) {
            self.server.step();
        }
        self.toolstack.remove_both(old);
        let next = VifId { domain: DomId(self.next_domain), devid: 0 };
        self.next_domain += 1;
        self.xen.create(next.domain);
        // Its tables are gone, so nothing is given back.
        drop(self.guest.doubt_all());
        self.guest.moves(&self.xen, next);
        self.attach();
        self.told.destroyed += 1;
        self.until("the old vif's end", |all| all.server.report_of(old).is_none());
        assert_eq!(self.xen.holds(old.domain), (0, 0, 0), "of {old}");
        self.connect();
    }

    /// Lets the backend act until something holds.
    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) {
        for pass in 0..PASSES {
            if holds(self) {
                return;
            }
            if !self.server.is_running() {
                self.server.start(&self.xen, None);
            }
            self.server.step();
            self.server.serve();
            if pass > PASSES / 2 {
                self.server.lives();
            }
        }
        panic!("it never comes: {what}; {:?}", self.server.report_of(self.guest.id));
    }

    fn until_shown(&mut self, states: &'static [XenbusState]) {
        self.until("a state of the backend's", move |all| {
            let id = all.guest.id;
            all.toolstack.backend_state(id).is_some_and(|found| states.contains(&found))
        });
    }

    fn shows(&mut self, state: XenbusState) {
        self.guest.key("state", state.as_str());
    }

    /// Ends the connection from any state, checks that none of its pages is mapped, and waits
    /// until the backend expects a new connection.
    fn begins_anew(&mut self) {
        use XenbusState as S;
        self.until_shown(&[S::InitWait, S::Connected, S::Closing, S::Closed]);
        let id = self.guest.id;
        if self.toolstack.backend_state(id) != Some(S::InitWait) {
            // In order, or as one that crashed.
            let first = self.numbers.one_of(&[S::Closing, S::Closed]);
            self.shows(first);
            self.until_shown(&[S::Closing, S::Closed]);
            self.shows(S::Closed);
            self.until_shown(&[S::Closed]);
            // A successor has it from the store, and may not have looked.
            self.until("a look at it", |all| all.server.report_of(id).is_some());
            assert_eq!(self.xen.mapped(id.domain), BTreeMap::new(), "mapped by nobody");
        }
        self.guest.drop_link();
        self.model.staged.clear();
        self.shows(S::Initialising);
        self.until_shown(&[S::InitWait]);
    }

    fn connect(&mut self) {
        self.begins_anew();
        self.persistent = self.numbers.once_in(5);
        let queues = 1 + self.numbers.below(self.queues);
        for key in ["multi-queue-num-queues", "queue-0", "queue-1"] {
            let front = self.toolstack.front(self.guest.id);
            let _ = self.guest.store.remove(&format!("{front}/{key}"));
        }
        self.guest.publish(queues, self.persistent);
        self.shows(XenbusState::Connected);
        self.until_shown(&[XenbusState::Connected]);
        let kind = Policy::chosen(self.persistent, true).within(self.most);
        (self.model.stages, self.model.queues) = (kind == Policy::Staging, queues as u32);
        self.told.connections += 1;
        self.tell(format_args!("connected by {kind}, {queues} queues"));
    }

    /// Takes answers in; then all that is mapped has an owner.
    fn look(&mut self) {
        let said = self.guest.take_answers(&mut self.model, self.server.killed);
        if let Some(said) = said {
            self.tell(format_args!("{said}"));
        }
        let Some(link) = &self.guest.link else { return };
        let mut mapped = self.xen.mapped(self.guest.id.domain);
        let report = self.server.report_of(self.guest.id);
        let Some(report) = report.filter(|report| report.connected) else { return };
        for ring in link.rings() {
            assert_eq!(mapped.remove(&ring), Some(1), "a ring, which is mapped once");
        }
        let pages: usize = mapped.values().map(|&count| count as usize).sum();
        assert!(pages <= self.model.quota, "{pages} pages mapped");
        assert_eq!(pages, report.mapped, "as it says");
        let kind = Policy::chosen(self.persistent, true).within(self.most);
        // Who stages nothing yet is shown as copied to.
        let shown = if pages == 0 && kind == Policy::Staging { Policy::Copy } else { kind };
        assert_eq!(report.policy, shown);
        match kind {
            Policy::Staging => {
                let staged: BTreeMap<u32, u32> =
                    self.model.staged.keys().map(|&gref| (gref, 1)).collect();
                assert_eq!(mapped, staged, "what is mapped, and what was answered");
            }
            Policy::Copy => assert_eq!(pages, 0),
            _ => assert!(mapped.keys().all(|&gref| self.guest.knows(gref)), "{mapped:?}"),
        }
    }

    /// Lets both ends act until every request is answered and neither has anything to do.
    fn settle(&mut self) {
        for _ in 0..PASSES {
            if !self.server.is_running() {
                self.server.start(&self.xen, None);
            }
            let busy = self.server.step() | self.server.serve();
            self.look();
            if !busy {
                let link = self.guest.link.as_ref().expect("it is connected");
                assert!(link.asked.is_empty(), "{} requests unanswered", link.asked.len());
                let out: usize = link.queues.iter().map(|queue| queue.out.len()).sum();
                assert_eq!(out, 0, "slots unanswered");
                return;
            }
        }
        panic!("after {PASSES} passes the backend still finds something to do");
    }

    fn look_at_frames(&mut self) {
        let line = self.lines.look(0);
        let (from, to) = (line.from_guest.total(), self.guest.seen.total());
        for (way, checker, total) in
            [("from", &line.from_guest, from), ("to", &self.guest.seen, to)]
        {
            let bad = total.duplicated + total.stale + checker.corrupt() + checker.foreign();
            assert_eq!(bad, 0, "{way} the guest: {total:?}");
        }
        let (sent, doubtful) = (self.guest.sent, self.guest.doubtful);
        let right = (sent..=sent + doubtful).contains(&from.received);
        assert!(right, "{sent} sent, {doubtful} in doubt: {from:?}");
        self.told.frames += from.received + to.received;
        let report = self.server.report_of(self.guest.id).expect("it is served");
        self.told.hits += report.stats.mapped_hits;
    }

    /// Takes everything away, and checks that nothing is left.
    fn goes(&mut self) {
        let id = self.guest.id;
        self.toolstack.ask_to_close(id);
        self.until_shown(&[XenbusState::Closing, XenbusState::Closed]);
        self.shows(XenbusState::Closed);
        self.until_shown(&[XenbusState::Closed]);
        assert_eq!(self.xen.mapped(id.domain), BTreeMap::new(), "mapped by nobody");
        self.guest.leaves();
        self.toolstack.remove_both(id);
        self.until("the vif's end", |all| all.server.report_of(id).is_none());
        let (grants, mapped, ports) = self.xen.holds(id.domain);
        assert_eq!((grants, mapped, ports), (0, 0, 0), "grants, of them mapped, ports");
        assert_eq!(self.xen.holds(DomId(0)).2, 0, "event channels of the backend");
        let line = self.lines.look(0);
        assert_eq!((line.handles, line.there), (0, false), "the port");
        let left = std::fs::read_dir(self.folder.path().join("backend-0"));
        assert_eq!(left.map_or(0, Iterator::count), 0, "journals");
        self.told.kills = self.server.killed;
        self.told.add(&self.guest.take_told());
    }
}
