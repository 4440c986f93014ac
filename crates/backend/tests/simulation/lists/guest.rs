//! A guest by hand: pages, what it asks of a connection, and what must come back.

use super::super::guest::{checker, generator};
use super::super::support::rings::{SLOTS, slot};
use super::super::xen::{Domain, Xen};
use super::link::{Asked, LIST_PAGES, Link, Posted, Sent};
use super::model::{Model, Names, is_readonly};
use super::told::Told;
use grantway_backend::VifId;
use grantway_embedded::Revoke;
use grantway_hypervisor::{
    Access, BackendPlatform, DomId, EventChannels, FrontendPlatform, GrantRef, Granted, Platform,
    Store,
};
use grantway_netif::ctrl::{GrefEntry, GrefFlags, Message};
use grantway_netif::rx::RxRequest;
use grantway_netif::tx::{TxFlags, status};
use grantway_ports::{Checker, Generator};
use grantway_ring::SharedPage;
use grantway_testkit::Numbers;
use std::sync::Arc;

const BACKEND: DomId = DomId(0);
/// Bytes of each frame from the guest.
const SIZE: usize = 200;
/// Pages of each kind.
const PAGES: usize = 24;

/// A reference that a slot or a list may name.
struct Name {
    gref: u32,
    memory: Option<SharedPage>,
    /// Named by a slot that is not answered.
    busy: bool,
}

pub struct Guest {
    pub id: VifId,
    pub domain: Arc<Domain>,
    pub store: Box<dyn Store>,
    pub events: Box<dyn EventChannels>,
    pool: Vec<Name>,
    pub names: Names,
    granted: Vec<Granted>,
    pub link: Option<Link>,
    made: Generator,
    pub seen: Checker,
    /// Frames that must arrive, and those that may.
    pub sent: u64,
    pub doubtful: u64,
    told: Told,
}

impl Guest {
    pub fn new(xen: &Xen, id: VifId) -> Self {
        let domain = xen.spawn(id.domain);
        let (store, events) = (domain.store().unwrap(), domain.events().unwrap());
        let mut guest = Self {
            id,
            store,
            events,
            pool: Vec::new(),
            names: Names::new(),
            granted: Vec::new(),
            link: None,
            made: generator(SIZE, 0, 0),
            seen: checker(),
            sent: 0,
            doubtful: 0,
            told: Told::default(),
            domain,
        };
        guest.grants();
        guest
    }

    /// Moves the guest to another domain. The counts of frames that were sent and seen go on.
    pub fn moves(&mut self, xen: &Xen, id: VifId) {
        let mut next = Self::new(xen, id);
        std::mem::swap(&mut next.made, &mut self.made);
        std::mem::swap(&mut next.seen, &mut self.seen);
        next.told = std::mem::take(&mut self.told);
        (next.sent, next.doubtful) = (self.sent, self.doubtful);
        *self = next;
    }

    pub fn take_told(&mut self) -> Told {
        std::mem::take(&mut self.told)
    }

    fn grants(&mut self) {
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let granted = self.domain.grant(BACKEND, PAGES, access).unwrap();
            for (n, gref) in granted.grefs.iter().enumerate() {
                self.pool.push(Name { gref: gref.0, memory: granted.run.page(n), busy: false });
                self.names.insert(gref.0, access);
            }
            self.granted.push(granted);
        }
        // Granted to another, revoked, reserved, and never granted.
        let anothers = self.domain.grant(DomId(900), 1, Access::ReadWrite).unwrap();
        let revoked = self.domain.grant(BACKEND, 1, Access::ReadWrite).unwrap();
        assert_eq!(self.domain.revoke(revoked.grefs[0]), Revoke::Revoked);
        let useless = [anothers.grefs[0].0, revoked.grefs[0].0, 0, 7, 1 << 20, u32::MAX];
        self.granted.push(anothers);
        self.pool.extend(useless.map(|gref| Name { gref, memory: None, busy: false }));
    }

    pub fn key(&mut self, key: &str, value: &str) {
        let front = super::super::toolstack::frontend_path(self.id);
        self.store.write(&format!("{front}/{key}"), value.as_bytes()).unwrap();
    }

    /// Makes rings, and publishes them.
    pub fn publish(&mut self, queues: usize, persistent: bool) {
        let link = Link::new(&self.domain, self.events.as_mut(), BACKEND, queues);
        for (key, value) in link.keys(persistent) {
            self.key(&key, &value);
        }
        self.link = Some(link);
    }

    /// Gives up the connection, and what is on its rings.
    pub fn drop_link(&mut self) {
        if let Some(link) = self.doubt_all() {
            link.end(&self.domain, self.events.as_mut());
        }
        self.pool.iter_mut().for_each(|name| name.busy = false);
    }

    /// The connection is over: what was not answered may have arrived.
    pub fn doubt_all(&mut self) -> Option<Link> {
        let link = self.link.take()?;
        let lost = link.queues.iter().flat_map(|queue| &queue.out).filter(|sent| sent.good);
        let lost = lost.count() as u64;
        (self.sent, self.doubtful) = (self.sent - lost, self.doubtful + lost);
        Some(link)
    }

    /// A page that no slot names.
    fn any_page(&self, numbers: &mut Numbers) -> Option<usize> {
        let at = numbers.below(2 * PAGES);
        let at = if numbers.once_in(30) { 2 * PAGES + numbers.below(6) } else { at };
        (!self.pool[at].busy).then_some(at)
    }

    /// Puts a few frames on a ring.
    pub fn send(&mut self, numbers: &mut Numbers, kills: u64) {
        let count = self.link.as_ref().map_or(0, |link| link.queues.len());
        if count == 0 {
            return;
        }
        let number = numbers.below(count);
        for _ in 0..1 + numbers.below(6) {
            let Some(page) = self.any_page(numbers) else { continue };
            let queue = &mut self.link.as_mut().unwrap().queues[number];
            if queue.out.len() as u32 >= SLOTS {
                return;
            }
            let offset = numbers.below(4096 - SIZE + 1) as u16;
            let id = numbers.half();
            let name = &mut self.pool[page];
            if let Some(memory) = &name.memory {
                let mut frame = [0; SIZE];
                self.made.next_into(&mut frame);
                memory.write(offset.into(), &frame).unwrap();
                self.sent += 1;
                // Nobody touches a page of no use, so it may be named again.
                name.busy = true;
            }
            let good = name.memory.is_some();
            let flags = TxFlags::empty();
            queue.rings.put_tx(&[slot(GrantRef(name.gref), offset, SIZE as u16, id, flags)]);
            queue.out.push_back(Sent { id, page, good, kills });
        }
        let port = self.link.as_ref().unwrap().queues[number].rings.tx_event;
        self.events.notify(port).unwrap();
    }

    /// Posts a few pages.
    pub fn post(&mut self, numbers: &mut Numbers, model: &Model, kills: u64) {
        let count = self.link.as_ref().map_or(0, |link| link.queues.len());
        if count == 0 {
            return;
        }
        let number = numbers.below(count);
        for _ in 0..1 + numbers.below(10) {
            let Some(page) = self.any_page(numbers) else { continue };
            let link = self.link.as_mut().unwrap();
            if link.queues[number].posted.len() as u32 >= SLOTS {
                return;
            }
            let name = &mut self.pool[page];
            name.busy = name.memory.is_some();
            let gref = name.gref;
            let plain = self.names.get(&gref) == Some(&Access::ReadWrite);
            let here = model.staged.get(&gref).filter(|(at, _)| *at as usize == number);
            let now = here.map_or(plain, |(_, readonly)| !readonly);
            let rings = &mut link.queues[number].rings;
            let id = rings.rx_prod as u16;
            rings.put_rx(&[RxRequest { id, gref }]);
            let mut posted = Posted { id, page, writable: now, refused: !now, kills };
            for asked in &link.asked {
                changes(asked, gref, plain, &mut posted);
            }
            link.queues[number].posted.push_back(posted);
        }
        let port = self.link.as_ref().unwrap().queues[number].rings.rx_event;
        self.events.notify(port).unwrap();
    }

    /// A list, mostly as an honest guest would send it.
    fn list(&self, numbers: &mut Numbers, adds: bool, model: &Model, queue: u32) -> Vec<GrefEntry> {
        let mut count = 1 + numbers.below(10);
        if adds && !numbers.once_in(20) {
            count = count.min((model.quota - model.staged.len()).max(1));
        }
        let mut list: Vec<GrefEntry> = Vec::new();
        for _ in 0..8 * count {
            if list.len() == count {
                break;
            }
            let at = numbers.below(2 * PAGES);
            let at = if numbers.once_in(100) { 2 * PAGES + numbers.below(6) } else { at };
            let gref = self.pool[at].gref;
            let here = model.staged.get(&gref).map(|&(at, _)| at);
            let twice = list.iter().any(|entry| entry.gref == gref);
            let sound = !twice && if adds { here.is_none() } else { here == Some(queue) };
            if !sound && !numbers.once_in(60) {
                continue;
            }
            let only_read = self.names.get(&gref) == Some(&Access::ReadOnly);
            let mut flags = match only_read && !numbers.once_in(60) || numbers.once_in(6) {
                true => GrefFlags::READONLY,
                false => GrefFlags::empty(),
            };
            if numbers.once_in(200) {
                flags = GrefFlags::from_bits_retain(2 << numbers.below(15));
            }
            list.push(GrefEntry { gref, flags, status: numbers.half() });
        }
        list
    }

    /// Asks something of the control ring.
    pub fn ask(&mut self, numbers: &mut Numbers, model: &Model) -> Option<String> {
        let link = self.link.as_ref()?;
        let free = link.free_list();
        let queue = match numbers.once_in(40) {
            true => numbers.one_of(&[model.queues, 1 << 16, u32::MAX]),
            false => numbers.below(model.queues as usize) as u32,
        };
        let kind = numbers.below(12);
        let (message, list, page) = match (kind, free) {
            (0, _) => (Some(Message::GetGrefMappingSize { queue }), vec![], None),
            (1, _) if numbers.once_in(2) => (Some(Message::GetHashMappingSize), vec![], None),
            (1, _) => (None, vec![], None),
            (_, None) => return None,
            (_, Some(page)) => {
                let adds = kind < 8;
                let list = self.list(numbers, adds, model, queue);
                let mut at = link.list_gref(page);
                let mut entries = list.len() as u32;
                match numbers.below(80) {
                    0 => at = numbers.one_of(&[3, 1 << 20, u32::MAX]),
                    1 => entries = numbers.one_of(&[0, 513, u32::MAX]),
                    _ => {}
                }
                let message = match adds {
                    true => Message::AddGrefMapping { queue, list: at, entries },
                    false => Message::DelGrefMapping { queue, list: at, entries },
                };
                (Some(message), list, Some(page))
            }
        };
        let link = self.link.as_mut()?;
        link.last_id = link.last_id.wrapping_add(1 + numbers.below(3) as u16);
        let id = link.last_id;
        let mut request = message.unwrap_or(Message::GetHashFlags).request(id);
        if message.is_none() {
            request.kind = numbers.one_of(&[0, 11, 12, u16::MAX]);
        }
        if let Some(page) = page {
            link.write_list(page, &list);
        }
        link.ctrl.push(request.to_words()).ok()?;
        let _ = link.ctrl.publish();
        let asked = Asked { id, kind: request.kind, message, list, page };
        for posted in link.queues.iter_mut().flat_map(|queue| &mut queue.posted) {
            let gref = self.pool[posted.page].gref;
            let plain = self.names.get(&gref) == Some(&Access::ReadWrite);
            changes(&asked, gref, plain, posted);
        }
        let said = format!("asks {id}: {message:?} of {:?}", asked.list);
        link.asked.push_back(asked);
        let event = link.event;
        self.events.notify(event).unwrap();
        Some(said)
    }

    /// Takes in every answer that is there, and compares it with what must come.
    pub fn take_answers(&mut self, model: &mut Model, kills: u64) -> Option<String> {
        let _ = self.events.poll(&mut |_| {});
        let said = self.take_control(model);
        self.take_sent(kills);
        self.take_received(kills);
        said
    }

    fn take_control(&mut self, model: &mut Model) -> Option<String> {
        let link = self.link.as_mut()?;
        let pages = (0..LIST_PAGES).map(|n| {
            let access = if n + 1 == LIST_PAGES { Access::ReadOnly } else { Access::ReadWrite };
            (link.list_gref(n), access)
        });
        let pages: Names = pages.collect();
        let mut said = String::new();
        while let Some(answer) = link.next_answer() {
            let at = link.asked.iter().position(|asked| asked.id == answer.id);
            let at = at.unwrap_or_else(|| panic!("an answer to nothing that is out: {answer:?}"));
            assert_eq!(at, 0, "this backend answers in order: {answer:?}");
            let asked = link.asked.remove(at).unwrap();
            let (expected, statuses) = model.carry_out(&asked, &self.names, &pages);
            let (status, data) = match expected {
                Ok(data) => (0, data),
                Err(status) => (status.to_u32(), 0),
            };
            let found = (answer.kind, answer.status, answer.data);
            assert_eq!(
                found,
                (asked.kind, status, data),
                "{:?} of {:?}",
                asked.message,
                asked.list
            );
            said += &format!("answered {}: {expected:?}; ", asked.id);
            if let (Some(page), Some(expected)) = (asked.page, statuses) {
                let list = link.read_list(page, asked.list.len());
                let found: Vec<u16> = list.iter().map(|entry| entry.status).collect();
                assert_eq!(found, expected, "statuses of {:?}", asked.list);
                let kept = list.iter().zip(&asked.list);
                let kept =
                    kept.filter(|(now, then)| (now.gref, now.flags) == (then.gref, then.flags));
                assert_eq!(kept.count(), list.len(), "no more than statuses is written");
                self.told.taken_back += u64::from(data);
            }
            match (asked.message, expected) {
                (Some(Message::AddGrefMapping { .. }), Ok(_)) => self.told.added += 1,
                (Some(Message::AddGrefMapping { .. }), Err(_)) => self.told.refused += 1,
                _ => {}
            }
        }
        (!said.is_empty()).then_some(said)
    }

    fn take_sent(&mut self, kills: u64) {
        for queue in self.link.iter_mut().flat_map(|link| &mut link.queues) {
            for answer in queue.rings.tx_answers() {
                // More answers than requests, or one twice, is seen by the ring.
                let sent = queue.out.pop_front().expect("a slot that is owed an answer");
                assert_eq!(answer.id, sent.id, "answers come in ring order");
                self.pool[sent.page].busy = false;
                let expected = if sent.good { status::OKAY } else { status::ERROR };
                if sent.kills == kills {
                    assert_eq!(answer.status, expected, "{:#x}", self.pool[sent.page].gref);
                } else if sent.good {
                    // It may be that it was on its way when the backend was killed.
                    self.sent -= 1;
                    self.doubtful += 1;
                }
            }
        }
    }

    fn take_received(&mut self, kills: u64) {
        for queue in self.link.iter_mut().flat_map(|link| &mut link.queues) {
            for answer in queue.rings.rx_answers() {
                let posted = queue.posted.pop_front().expect("a page that is posted");
                assert_eq!(answer.id, posted.id, "an answer sits where its request was");
                let name = &mut self.pool[posted.page];
                name.busy = false;
                let Ok(len) = usize::try_from(answer.status) else {
                    let may = posted.refused || posted.kills != kills;
                    assert!(may, "{:#x} was not written to: {}", name.gref, answer.status);
                    continue;
                };
                if len == 0 && posted.kills != kills {
                    continue;
                }
                assert!(posted.writable, "{:#x} was written to", name.gref);
                let mut frame = vec![0; len];
                let memory = name.memory.as_ref().expect("a page that can be written to");
                memory.read(answer.offset.into(), &mut frame).unwrap();
                self.seen.check(&frame);
            }
        }
    }

    /// Returns true if the guest granted this page and may name it in slots or lists.
    pub fn knows(&self, gref: u32) -> bool {
        self.names.contains_key(&gref)
    }

    /// Gives every page back, and nothing may stay in force.
    pub fn leaves(&mut self) {
        self.drop_link();
        for granted in std::mem::take(&mut self.granted) {
            assert_eq!(self.domain.release(granted).deferred, 0, "a page is still mapped");
        }
    }
}

/// Notes that a request under way may change what a posted page is good for.
fn changes(asked: &Asked, gref: u32, plain: bool, posted: &mut Posted) {
    let named = asked.list.iter().filter(|entry| entry.gref == gref);
    for entry in named {
        match asked.message {
            Some(Message::AddGrefMapping { .. }) if is_readonly(entry) => posted.refused = true,
            // Nothing is added to be written that is granted to be read.
            Some(Message::AddGrefMapping { .. }) => posted.writable |= plain,
            _ => {
                posted.writable |= plain;
                posted.refused |= !plain;
            }
        }
    }
}
