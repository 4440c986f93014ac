//! A vif of the plain program: its handshake in the store, its rings, and the guest's pages, which
//! stay mapped.

use grantway_command::error::CommandError;
use grantway_command::toolstack::device::VifId;
use grantway_hypervisor::{Access, DomId, EventChannels, GrantRef, Platform, Port, Store};
use grantway_netif::keys::{self, QueueKey, queue_path};
use grantway_netif::rx::{RxFlags, RxRequest, RxResponse};
use grantway_netif::slots::tx::parse_one;
use grantway_netif::tx::{TxRequest, TxResponse, status};
use grantway_netif::{XenbusState, colour};
use grantway_ring::{Back, RingPage, SharedPage};
use std::collections::VecDeque;

/// Most frames that wait for one queue's guest to post pages.
const WAITING_MAX: usize = 512;
/// References of a full grant table of Xen's default: 64 frames of 512 entries.
const GRANTS_MAX: usize = 64 * 512;

/// Progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The toolstack may not have attached the vif yet.
    New,
    /// Our features are in the store.
    Waiting,
    /// Frames may flow.
    Connected,
}

/// A guest's vif.
pub struct Vif {
    domain: DomId,
    most: u16,
    stage: Stage,
    /// Queues in service; none before both ends are connected.
    pub queues: Vec<Queue>,
}

impl Vif {
    /// Makes the vif of a domain, with at most `most` queues.
    pub fn new(domain: DomId, most: u16) -> Self {
        Self { domain, most, stage: Stage::New, queues: Vec::new() }
    }

    /// Takes the next step of the handshake, if it is due.
    ///
    /// # Errors
    ///
    /// The store refuses, a node has no number, or the guest's rings cannot be used.
    pub fn step(
        &mut self,
        store: &mut dyn Store,
        platform: &dyn Platform,
        events: &mut dyn EventChannels,
    ) -> Result<(), CommandError> {
        let id = VifId { domain: self.domain, devid: 0 };
        let (own, peer) = (id.backend_path(DomId::ZERO), id.frontend_path());
        match self.stage {
            Stage::New if store.read_text(&format!("{own}/{}", keys::STATE))?.is_some() => {
                let features = [
                    (keys::FEATURE_RX_COPY, 1),
                    (keys::FEATURE_NO_CSUM_OFFLOAD, 1),
                    (keys::FEATURE_PERSISTENT, 1),
                    (keys::MULTI_QUEUE_MAX_QUEUES, self.most),
                    (keys::STATE, XenbusState::InitWait as u16),
                ];
                for (key, value) in features {
                    store.write(&format!("{own}/{key}"), value.to_string().as_bytes())?;
                }
                self.stage = Stage::Waiting;
            }
            Stage::Waiting
                if number(store, &peer, keys::STATE)? == XenbusState::Connected as u32 =>
            {
                let count = store.read_text(&format!("{peer}/{}", keys::MULTI_QUEUE_NUM_QUEUES))?;
                let count = match count {
                    Some(_) => number(store, &peer, keys::MULTI_QUEUE_NUM_QUEUES)?,
                    None => 1,
                };
                for at in 0..count.min(self.most.into()) {
                    let mut key = |key| number(store, &peer, &queue_path(at, count, key));
                    let refs = [
                        key(QueueKey::TxRingRef)?,
                        key(QueueKey::RxRingRef)?,
                        key(QueueKey::EventChannel)?,
                    ];
                    self.queues.push(Queue::new(self.domain, refs, platform, events)?);
                }
                let state = (XenbusState::Connected as u16).to_string();
                store.write(&format!("{own}/{}", keys::STATE), state.as_bytes())?;
                self.stage = Stage::Connected;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads the number in a node.
fn number(store: &mut dyn Store, folder: &str, key: &str) -> Result<u32, CommandError> {
    let path = format!("{folder}/{key}");
    let found = store.read_text(&path)?;
    let value = found.as_deref().and_then(|text| text.trim().parse().ok());
    value.ok_or_else(|| CommandError::Failed(format!("{path}: found {found:?}, expected a number")))
}

/// Pages of a guest, each mapped when it is first used, and then kept.
struct Pages {
    peer: DomId,
    access: Access,
    /// Pages by their references.
    mapped: Vec<Option<SharedPage>>,
}

impl Pages {
    fn new(peer: DomId, access: Access) -> Self {
        Self { peer, access, mapped: Vec::new() }
    }

    #[inline]
    fn page(&mut self, gref: u32, platform: &dyn Platform) -> Result<&SharedPage, CommandError> {
        let at = gref as usize;
        if !matches!(self.mapped.get(at), Some(Some(_))) {
            self.map(gref, platform)?;
        }
        self.mapped.get(at).and_then(Option::as_ref).ok_or_else(|| no_page(gref))
    }

    #[cold]
    fn map(&mut self, gref: u32, platform: &dyn Platform) -> Result<(), CommandError> {
        let at = gref as usize;
        if at >= GRANTS_MAX {
            return Err(CommandError::Failed(format!(
                "domain {}: found grant {gref}, expected one below {GRANTS_MAX}",
                self.peer
            )));
        }
        if at >= self.mapped.len() {
            self.mapped.resize(at + 1, None);
        }
        let run = platform.map(self.peer, &[GrantRef(gref)], self.access)?;
        self.mapped[at] = run.page(0);
        Ok(())
    }
}

fn no_page(gref: u32) -> CommandError {
    CommandError::Failed(format!("grant {gref} was mapped as a run without a page"))
}

/// A packet that was taken from a ring: its id and its bytes, or `None` if it is not one that the
/// program accepts.
pub type Taken = (u16, Option<usize>);

/// A queue of a vif: both rings, and their pages.
pub struct Queue {
    tx: Back<RingPage<3>, 3>,
    rx: Back<RingPage<2>, 2>,
    port: Port,
    sent: Pages,
    posted: Pages,
    /// Frames that found no posted page, in order.
    waiting: VecDeque<Box<[u8]>>,
}

impl Queue {
    fn new(
        peer: DomId,
        [tx, rx, event]: [u32; 3],
        platform: &dyn Platform,
        events: &mut dyn EventChannels,
    ) -> Result<Self, CommandError> {
        let ring = |gref| {
            let run = platform.map(peer, &[GrantRef(gref)], Access::ReadWrite)?;
            run.page(0).ok_or_else(|| no_page(gref))
        };
        Ok(Self {
            tx: Back::new(RingPage::new(ring(tx)?)),
            rx: Back::new(RingPage::new(ring(rx)?)),
            port: events.bind_interdomain(peer, Port(event))?,
            sent: Pages::new(peer, Access::ReadOnly),
            posted: Pages::new(peer, Access::ReadWrite),
            waiting: VecDeque::new(),
        })
    }

    /// Takes one request from the transmit ring, and copies its packet to `buffer`.
    ///
    /// # Errors
    ///
    /// The guest broke the protocol, or a page cannot be mapped.
    #[inline]
    pub fn take(
        &mut self,
        buffer: &mut [u8],
        platform: &dyn Platform,
    ) -> Result<Option<Taken>, CommandError> {
        match self.tx.pop().map_err(CommandError::failed)? {
            Some((_, words)) => self.fetch(words, buffer, platform).map(Some),
            None => Ok(None),
        }
    }

    /// Copies waiting requests from the transmit ring. Returns their number.
    ///
    /// # Errors
    ///
    /// The guest broke the protocol.
    #[inline]
    pub fn take_requests(&mut self, requests: &mut [[u32; 3]]) -> Result<usize, CommandError> {
        let count = self.tx.peek_batch(requests).map_err(CommandError::failed)?;
        // At most a ring of them.
        self.tx.consume(count as u32).map_err(CommandError::failed)?;
        Ok(count)
    }

    /// Copies the packet of a request to `buffer`. Only packets of one slot are accepted, since the
    /// program offers no others.
    ///
    /// # Errors
    ///
    /// A page cannot be mapped.
    #[inline]
    pub fn fetch(
        &mut self,
        words: [u32; 3],
        buffer: &mut [u8],
        platform: &dyn Platform,
    ) -> Result<Taken, CommandError> {
        let id = TxRequest::from_words(words).id;
        let Some((fragment, _)) = parse_one(words) else { return Ok((id, None)) };
        let len = usize::from(fragment.size);
        let Some(room) = buffer.get_mut(..len) else { return Ok((id, None)) };
        let page = self.sent.page(fragment.gref, platform)?;
        page.read(fragment.offset.into(), room).map_err(CommandError::failed)?;
        Ok((id, Some(len)))
    }

    /// Answers a request.
    ///
    /// # Errors
    ///
    /// Every request is answered already.
    #[inline]
    pub fn answer(&mut self, (id, packet): Taken) -> Result<(), CommandError> {
        let pushed = self.tx.push_response(response(id, packet));
        pushed.map(drop).map_err(CommandError::failed)
    }

    /// Answers several requests, in order.
    ///
    /// # Errors
    ///
    /// There are fewer requests without an answer.
    #[inline]
    pub fn answer_all(&mut self, responses: &[[u32; 3]]) -> Result<(), CommandError> {
        self.tx.push_responses(responses).map_err(CommandError::failed)
    }

    /// Puts a frame into the guest's next posted page. It waits if there is none, and is dropped if
    /// too many frames wait.
    ///
    /// # Errors
    ///
    /// The guest broke the protocol, or a page cannot be mapped.
    #[inline]
    pub fn give(&mut self, frame: &[u8], platform: &dyn Platform) -> Result<(), CommandError> {
        let placed = self.waiting.is_empty() && self.place(frame, platform)?;
        if !placed && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(frame.into());
        }
        Ok(())
    }

    /// Puts waiting frames into posted pages. Returns their number.
    ///
    /// # Errors
    ///
    /// The errors of [`Queue::give`].
    pub fn give_waiting(&mut self, platform: &dyn Platform) -> Result<usize, CommandError> {
        let mut given = 0;
        while let Some(frame) = self.waiting.pop_front() {
            if !self.place(&frame, platform)? {
                self.waiting.push_front(frame);
                break;
            }
            given += 1;
        }
        Ok(given)
    }

    /// Writes a frame to the next posted page, and its response. Returns false if no page is posted.
    #[inline]
    fn place(&mut self, frame: &[u8], platform: &dyn Platform) -> Result<bool, CommandError> {
        let Some((index, words)) = self.rx.pop().map_err(CommandError::failed)? else {
            return Ok(false);
        };
        let RxRequest { id, gref } = RxRequest::from_words(words);
        let offset = colour(index, frame.len());
        let page = self.posted.page(gref, platform)?;
        page.write(offset.into(), frame).map_err(CommandError::failed)?;
        // A frame is at most a page.
        let status = frame.len() as i16;
        let response = RxResponse { id, offset, flags: RxFlags::empty(), status };
        self.rx.push_response(response.to_words()).map_err(CommandError::failed)?;
        Ok(true)
    }

    /// Publishes what was answered on both rings, and signals the guest if it asked for that.
    ///
    /// # Errors
    ///
    /// The platform is gone.
    #[inline]
    pub fn publish(&mut self, events: &mut dyn EventChannels) -> Result<(), CommandError> {
        if self.tx.publish() | self.rx.publish() {
            events.notify(self.port)?;
        }
        Ok(())
    }
}

/// Returns the words of the response to a request.
#[inline]
pub fn response(id: u16, packet: Option<usize>) -> [u32; 3] {
    let status = if packet.is_some() { status::OKAY } else { status::ERROR };
    TxResponse { id, status }.to_words()
}
