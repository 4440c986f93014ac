//! smoltcp's device over a link.

use crate::incoming::{Admitted, admit};
use crate::link::Link;
use crate::log::{FlowLog, FlowState};
use crate::options::{OPTIONS_MAX, add};
use crate::outgoing::Outgoing;
use crate::recovery::{Recovery, Repeats, Sent, Verdict};
use crate::segment::Segment;
use crate::sizes::{Sizes, whole_frame};
use crate::stats::DeviceStats;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroUsize;
use grantway_frontend::VifError;
use grantway_netif::Offload;
use grantway_netif::headers::{self, Family};
use grantway_ports::finish::begin_checksum_at;
use grantway_ports::{ETHERNET_HEADER, PageAligned, RECV_BUFFER};
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

/// Longest frame of a vif, in bytes.
const LONGEST: usize = 65_535;
/// Bytes of received frames that are kept here at a time, without the room for the last frame.
const FILL: usize = 256 * 1024;
/// Offsets of fields in TCP's header.
const NUMBER: usize = 4;
const WINDOW: usize = 14;

/// A received frame, in the arena.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    at: usize,
    len: usize,
    offload: Offload,
}

/// smoltcp's device over a [`Link`]. Without a link, nothing is sent or received.
///
/// A fault of the link ends the link. [`Device::take_fault`] returns the fault, since smoltcp's
/// calls cannot return it.
pub struct Device<L> {
    link: Option<L>,
    /// The vif's MTU: the length of the longest IP packet, in bytes.
    mtu: usize,
    sizes: Sizes,
    outgoing: Outgoing,
    /// Room in which a frame is made.
    room: PageAligned,
    arena: PageAligned,
    arrived: Vec<Arrived>,
    /// Index of the first frame that smoltcp has not read.
    next: usize,
    /// True if one more burst may be fetched in this turn.
    may_fetch: bool,
    /// True if smoltcp got a frame in this turn, or a frame was dropped before it.
    took: bool,
    fault: Option<VifError>,
    stats: DeviceStats,
    recovery: Recovery,
    repeats: Repeats,
    /// The states of flows, if the caller asked for them.
    log: Option<Box<FlowLog>>,
}

impl<L: Link> Device<L> {
    /// Makes a device without a link, for a vif whose IP packets have up to `mtu` bytes.
    #[must_use]
    pub fn new(mtu: usize) -> Self {
        Self {
            link: None,
            mtu,
            sizes: Sizes::default(),
            outgoing: Outgoing::default(),
            room: PageAligned::new(OPTIONS_MAX + LONGEST),
            arena: PageAligned::new(FILL + RECV_BUFFER),
            arrived: Vec::new(),
            next: 0,
            may_fetch: false,
            took: false,
            fault: None,
            stats: DeviceStats::default(),
            recovery: Recovery::default(),
            repeats: Repeats::default(),
            log: None,
        }
    }

    /// Starts or ends the log of TCP flows. A started log has the flows that begin from now on.
    pub fn log_flows(&mut self, wanted: bool) {
        self.log = wanted.then(Box::default);
    }

    /// Calls `each` with the state of each flow that had a segment since the last call. `queued`
    /// returns the number of bytes that the flow's socket has to send or has sent without an
    /// acknowledgement.
    pub fn flow_states(
        &mut self,
        queued: impl Fn(&FlowState) -> Option<usize>,
        each: &mut dyn FnMut(&FlowState),
    ) {
        if let Some(log) = &mut self.log {
            log.states(queued, self.outgoing.is_empty(), each);
        }
    }

    /// Returns the length of the longest IP packet, in bytes.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Sets the length of the longest IP packet, in bytes. An interface reads it only when it is
    /// made.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Gives the device a link.
    pub fn connect(&mut self, link: L) {
        self.disconnect();
        self.link = Some(link);
    }

    /// Takes the link away and returns it. Frames that wait for the link are lost, as with an
    /// unplugged cable.
    pub fn disconnect(&mut self) -> Option<L> {
        self.outgoing.clear();
        self.arrived.clear();
        self.next = 0;
        self.repeats.clear();
        self.fault = None;
        self.link.take()
    }

    /// Returns the link.
    #[must_use]
    pub fn link(&self) -> Option<&L> {
        self.link.as_ref()
    }

    /// Returns the link.
    pub fn link_mut(&mut self) -> Option<&mut L> {
        self.link.as_mut()
    }

    /// Begins a turn, in which smoltcp gets the frames that are here and one more burst.
    pub fn begin(&mut self) {
        self.may_fetch = true;
        self.took = false;
    }

    /// Returns true if frames were taken in this turn, even if none was useful. No frame is taken
    /// while too many frames wait for room.
    #[must_use]
    pub fn has_taken(&self) -> bool {
        self.took
    }

    /// Sends frames that waited, and publishes all frames that were sent. Returns true if a waiting
    /// frame was sent.
    ///
    /// # Errors
    ///
    /// The link cannot be used any longer.
    pub fn flush(&mut self) -> Result<bool, VifError> {
        let Some(link) = &mut self.link else { return Ok(false) };
        let moved = self.outgoing.drain(link, &mut self.stats)?;
        link.flush()?;
        Ok(moved)
    }

    /// Returns true if there are frames here that smoltcp has not read.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.next < self.arrived.len()
    }

    /// Returns true if frames wait for room. smoltcp may send nothing before they are sent.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns true if so many frames wait for room that no frame is received.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.outgoing.is_full()
    }

    /// Returns the fault of the link. Each fault is returned once.
    pub fn take_fault(&mut self) -> Option<VifError> {
        self.fault.take()
    }

    /// Returns the device's counters.
    #[must_use]
    pub fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// Returns true if smoltcp may make a frame now.
    fn may_send(&mut self) -> bool {
        let Some(link) = self.link.as_mut().filter(|_| self.fault.is_none()) else {
            return false;
        };
        match self.outgoing.drain(link, &mut self.stats) {
            Ok(_) => self.outgoing.is_empty(),
            Err(fault) => {
                self.fault = Some(fault);
                false
            }
        }
    }

    /// Returns the next frame for smoltcp, of the frames that are here or come now.
    fn next_frame(&mut self, now: Instant) -> Option<Arrived> {
        loop {
            let Some(&frame) = self.arrived.get(self.next) else {
                if !core::mem::take(&mut self.may_fetch) || !self.fetch() {
                    return None;
                }
                continue;
            };
            self.next += 1;
            self.took = true;
            let bytes = self.arena.get_mut(frame.at..frame.at + frame.len)?;
            let (sizes, mtu, stats) = (&mut self.sizes, self.mtu, &mut self.stats);
            let Some(Admitted(found)) = admit(bytes, frame.offload, sizes, mtu, stats) else {
                continue;
            };
            self.stats.rx_frames += 1;
            // smoltcp reads no tags.
            if let Some(found) = found
                && found.ip == ETHERNET_HEADER
                && let Some(segment) = Segment::read(bytes, &found)
            {
                let at = found.start + WINDOW;
                let verdict = self.recovery.received(&segment, &bytes[..found.end], at, now);
                if let Some(log) = &mut self.log {
                    log.received(&segment, matches!(verdict, Verdict::Taken(_)), now);
                }
                match verdict {
                    Verdict::Passed => {}
                    Verdict::Taken(window) => put(bytes, at, &window.to_be_bytes()),
                    Verdict::Old(number) => {
                        self.stats.rx_old += 1;
                        put(bytes, found.start + NUMBER, &number.to_be_bytes());
                    }
                }
            }
            return Some(frame);
        }
    }

    /// Repeats the last acknowledgement of a flow to smoltcp, if the flow must send a segment
    /// again. Returns true if a repetition is ready.
    fn misses(&mut self, now: Instant) -> bool {
        if self.link.is_none() {
            return false;
        }
        let Some((ends, wanting)) = self.recovery.find(now, &mut self.repeats) else {
            return false;
        };
        if let Some(log) = &mut self.log {
            log.repeated(&ends, wanting);
        }
        self.repeats.next(&self.recovery)
    }

    /// Returns the time at which a segment may have to be sent again, if that is before smoltcp's
    /// timer. It is sent when the device is next asked for frames.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.recovery.due()
    }

    /// Copies a burst out of the other end's reach. Returns true if there was a frame.
    fn fetch(&mut self) -> bool {
        self.arrived.clear();
        self.next = 0;
        let Some(link) = &mut self.link else { return false };
        let arrived = &mut self.arrived;
        let came = link.recv_burst(&mut self.arena, &mut |at, frame| {
            arrived.push(Arrived { at, len: frame.len, offload: frame.offload });
        });
        match came {
            Ok(came) => came > 0,
            Err(fault) => {
                self.fault = Some(fault);
                self.arrived.clear();
                false
            }
        }
    }
}

/// Writes a field of a frame.
fn put(frame: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

impl<L: Link> phy::Device for Device<L> {
    type RxToken<'a>
        = RxToken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = TxToken<'a, L>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(RxToken<'_>, TxToken<'_, L>)> {
        if self.outgoing.is_full() || self.fault.is_some() {
            return None;
        }
        let repeated = self.repeats.next(&self.recovery) || self.misses(now);
        let frame = if repeated { None } else { Some(self.next_frame(now)?) };
        let Self { arena, repeats, link, outgoing, room, sizes, mtu, .. } = self;
        let Self { recovery, fault, stats, log, .. } = self;
        let bytes = match frame {
            Some(frame) => arena.get(frame.at..frame.at + frame.len)?,
            None => repeats.frame(),
        };
        let way = (&*sizes, *mtu);
        let log = log.as_deref_mut();
        let answers = frame.is_some();
        let answer =
            TxToken { link, outgoing, room, way, fault, stats, recovery, log, answers, now };
        Some((RxToken { bytes }, answer))
    }

    fn transmit(&mut self, now: Instant) -> Option<TxToken<'_, L>> {
        if !self.may_send() {
            return None;
        }
        let Self { link, outgoing, room, sizes, mtu, fault, stats, recovery, log, .. } = self;
        let (way, log) = ((&*sizes, *mtu), log.as_deref_mut());
        let answers = false;
        Some(TxToken { link, outgoing, room, way, fault, stats, recovery, log, answers, now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        // This is the length of whole frames. A frame above the vif's MTU is cut behind smoltcp,
        // which sends no segments of IPv6 above its own MTU (0.14, `dispatch_ip`).
        capabilities.max_transmission_unit = LONGEST;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(whole_frame(Family::V4, self.mtu));
        capabilities.segmentation.tcpv6 = NonZeroUsize::new(whole_frame(Family::V6, self.mtu));
        let mut checksum = ChecksumCapabilities::default();
        checksum.tcp = Checksum::None;
        checksum.udp = Checksum::None;
        capabilities.checksum = checksum;
        capabilities
    }
}

/// A received frame, for smoltcp to read.
pub struct RxToken<'a> {
    bytes: &'a [u8],
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.bytes)
    }
}

/// Room for a frame that smoltcp makes.
pub struct TxToken<'a, L> {
    link: &'a mut Option<L>,
    outgoing: &'a mut Outgoing,
    room: &'a mut PageAligned,
    /// The segment sizes of flows, and the vif's MTU.
    way: (&'a Sizes, usize),
    fault: &'a mut Option<VifError>,
    stats: &'a mut DeviceStats,
    recovery: &'a mut Recovery,
    log: Option<&'a mut FlowLog>,
    /// True if the frame answers the last frame that smoltcp got.
    answers: bool,
    now: Instant,
}

impl<L: Link> phy::TxToken for TxToken<'_, L> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        if self.room.len() < OPTIONS_MAX + len {
            *self.room = PageAligned::new(OPTIONS_MAX + len);
        }
        let frame = &mut self.room[OPTIONS_MAX..OPTIONS_MAX + len];
        let made = f(frame);
        // The headers are read once, for everything.
        let mut found = headers::read(frame, len).ok();
        let (sizes, mtu) = self.way;
        let mut sent = Sent::default();
        if let Some(found) = found
            && let Some(segment) = Segment::read(frame, &found)
        {
            let said = || sizes.said(frame, &found);
            sent = self.recovery.sent(&segment, said, self.answers, self.now);
            if segment.payload > 0 {
                sent.accepts.get_or_insert_with(|| said().size);
            }
            if let Some(log) = self.log {
                log.sent(&segment, self.now);
            }
        }
        let mut begins = OPTIONS_MAX;
        if let Some(found) = &mut found
            && !sent.additions.is_empty()
        {
            begins = add(self.room, found, &sent.additions);
        }
        let frame = &mut self.room[begins..OPTIONS_MAX + len];
        if let Some(found) = &found {
            begin_checksum_at(frame, found);
        }
        let accepts = sent.accepts.unwrap_or(0);
        if let Some(link) = self.link
            && let (now, way) = (self.now, (accepts, mtu))
            && let Err(fault) = self.outgoing.send(frame, found, link, way, now, self.stats)
        {
            *self.fault = Some(fault);
        }
        made
    }
}
