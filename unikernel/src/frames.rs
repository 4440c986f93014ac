//! Numbered test frames, without a stack: made in the pages that the backend reads, and judged in
//! the pages that it wrote. They are those of `grantway bench packets` and of the ports
//! `generator` and `check`.

use crate::words::FramesConfig;
use crate::work::Work;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use grantway_frontend::{Queue, Runner, SendError, TxMeta, VifError};
use grantway_netif::Offload;
use grantway_ports::{BURST, Checker, Run, TestFrames, presence_frame};

/// Numbers of the frames of a burst.
const NUMBERS: [u8; BURST] = {
    let mut numbers = [0; BURST];
    let mut n = 0;
    while n < BURST {
        numbers[n] = n as u8;
        n += 1;
    }
    numbers
};
/// Time after which the counts are shown again, if they changed.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// Makes test frames, judges those that come, or both.
pub struct Frames {
    config: FramesConfig,
    queue: Option<Queue>,
    /// Queues beyond the first, which are not used.
    spare: Vec<Queue>,
    station: [u8; 6],
    made: Option<TestFrames>,
    /// Most frames that the backend is shown at a time.
    burst: usize,
    /// Frames that were left out, as the backend does not accept them.
    refused: u64,
    checker: Option<Checker>,
    /// Frames that came, and their bytes.
    came: (u64, u64),
    /// The last counts that were shown, and the time.
    shown: ([u64; 3], Duration),
}

impl Frames {
    /// Makes nothing before the vif has an address.
    #[must_use]
    pub fn new(config: FramesConfig) -> Self {
        let checker = config.check.then(Checker::default);
        let burst = config.generate.as_ref().map_or(1, |made| made.burst as usize);
        Self {
            config,
            queue: None,
            spare: Vec::new(),
            station: [0; 6],
            made: None,
            burst: burst.clamp(1, BURST),
            refused: 0,
            checker,
            came: (0, 0),
            shown: ([0; 3], Duration::ZERO),
        }
    }

    fn counts(&self) -> [u64; 3] {
        let made = self.made.as_ref().map_or(0, TestFrames::made);
        [made, self.came.0, self.refused]
    }

    fn text(&self) -> String {
        let mut text = String::from("frames:");
        if let Some(made) = &self.made {
            text += &format!(" made {}, refused {},", made.made(), self.refused);
        }
        text += &format!(" came {}, {} bytes", self.came.0, self.came.1);
        if let Some(checker) = &self.checker {
            let total = checker.total();
            text += &format!(
                ", received {}, lost {}, duplicated {}, reordered {}, stale {}, corrupt {}, \
                 foreign {}",
                total.received,
                total.lost,
                total.duplicated,
                total.reordered,
                total.stale,
                checker.corrupt(),
                checker.foreign()
            );
        }
        text
    }
}

/// Makes frames where the backend reads them, [`BURST`] at most, and shows it `burst` at a time.
/// Returns the number of those that went, and of those that the backend does not accept.
fn make(
    queue: &mut Queue,
    frames: &mut TestFrames,
    burst: usize,
) -> Result<(usize, usize), VifError> {
    let run = frames.run(BURST);
    let numbers = NUMBERS.get(..run.frames()).unwrap_or(&NUMBERS);
    let meta = TxMeta { len: run.size(), offload: Offload::default() };
    let (mut made, mut refused) = (0, 0);
    while made < numbers.len() {
        let shown = numbers.len().min(made - made % burst + burst);
        let (sent, why_not) = queue.lend_burst(
            &numbers[made..shown],
            |_| meta,
            |&number, at, mut room| {
                write(&run, number.into(), (at, room.len()), |to, bytes| {
                    // The part was cut to the room.
                    let _ = room.write(to, bytes);
                });
            },
        );
        made += sent;
        match why_not {
            // The last ones are shown below.
            None if made < numbers.len() => queue.flush()?,
            None => {}
            // The rest is made in a later turn if no slot came back.
            Some(SendError::Full) => {
                queue.flush()?;
                if queue.reap()? == 0 {
                    break;
                }
            }
            Some(_) => {
                made += 1;
                refused += 1;
            }
        }
    }
    frames.made_in_place(made);
    if made > 0 {
        queue.count_turn();
        queue.flush()?;
    }
    Ok((made, refused))
}

/// Writes the part of a frame that lies at these bytes of it: its offset and length. Calls `put`
/// with an offset in the part.
#[inline]
fn write(
    run: &Run<'_>,
    number: usize,
    (from, len): (usize, usize),
    mut put: impl FnMut(usize, &[u8]),
) {
    run.write(number, |at, bytes| {
        let start = from.max(at);
        let end = (from + len).min(at + bytes.len());
        if let Some(part) = bytes.get(start - at..end.max(start) - at).filter(|p| !p.is_empty()) {
            put(start - from, part);
        }
    });
}

impl Runner for Frames {
    fn start(&mut self, queues: Vec<Queue>) {
        let mut queues = queues.into_iter();
        self.queue = queues.next();
        self.spare = queues.collect();
    }

    fn stop(&mut self) -> Vec<Queue> {
        self.queue.take().into_iter().chain(self.spare.drain(..)).collect()
    }
}

impl Work for Frames {
    fn set_station(&mut self, mac: [u8; 6], _: usize) -> bool {
        if mac[0] & 1 != 0 {
            return false;
        }
        self.station = self.config.from.unwrap_or(mac);
        if let (None, Some(config)) = (&self.made, &self.config.generate) {
            let config = grantway_ports::GeneratorConfig { source: self.station, ..config.clone() };
            // The bounds were checked where the words were read.
            self.made = TestFrames::new(&config).ok();
        }
        true
    }

    fn connected(&mut self, _: Duration) -> Result<(), VifError> {
        let Some(queue) = self.queue.as_mut() else { return Ok(()) };
        if self.config.check {
            // So that bridges know the way to this address. A ring that was just made has room.
            let _ = queue.send(&presence_frame(self.station), Offload::default());
        }
        queue.flush()
    }

    fn staged(&mut self, _: usize) {}

    fn turn(&mut self, _: Duration) -> Result<bool, VifError> {
        let Some(queue) = &mut self.queue else { return Ok(false) };
        let mut moved = false;
        if let Some(frames) = &mut self.made {
            let (made, refused) = make(queue, frames, self.burst)?;
            self.refused += refused as u64;
            moved |= made > 0;
        }
        let (checker, mut bytes) = (&mut self.checker, 0);
        let came = queue.recv_lent_burst(|frame| {
            bytes += frame.len() as u64;
            if let Some(checker) = checker {
                checker.check_in_place(frame.len(), |buf| frame.copy_to(buf));
            }
        })?;
        if came > 0 {
            self.came.0 += came as u64;
            self.came.1 += bytes;
            queue.count_turn();
            queue.repost()?;
        }
        Ok(moved || came > 0)
    }

    fn arm(&mut self) -> Result<bool, VifError> {
        match &mut self.queue {
            Some(queue) => {
                queue.take_events()?;
                queue.arm()
            }
            None => Ok(false),
        }
    }

    fn delay(&self, now: Duration) -> Option<Duration> {
        // The counts that changed are shown, even if nothing comes any more.
        let (shown, at) = &self.shown;
        (self.counts() != *shown).then(|| (*at + SHOWN_EVERY).saturating_sub(now))
    }

    fn lines(&mut self, now: Duration, last: bool) -> Vec<String> {
        let counts = self.counts();
        if counts == self.shown.0 || !last && now < self.shown.1 + SHOWN_EVERY {
            return Vec::new();
        }
        self.shown = (counts, now);
        [self.text()].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use grantway_ports::{GeneratorConfig, Verdict};

    /// Returns frames that were written in parts of at most `part` bytes.
    fn in_parts(size: usize, part: usize, count: usize) -> Vec<Vec<u8>> {
        let config = GeneratorConfig { size, ..GeneratorConfig::default() };
        let mut frames = TestFrames::new(&config).unwrap();
        let run = frames.run(count);
        assert_eq!((run.frames(), run.size()), (count, size));
        let made = (0..count).map(|number| {
            let mut frame = vec![0xcc; size];
            for from in (0..size).step_by(part) {
                let len = part.min(size - from);
                write(&run, number, (from, len), |to, bytes| {
                    frame[from..from + len][to..to + bytes.len()].copy_from_slice(bytes);
                });
            }
            frame
        });
        made.collect()
    }

    #[test]
    fn frames_that_are_written_in_parts_pass_the_checker() {
        for size in [30, 60, 64, 65, 300, 1496, 4096, 4097, 8192, 65_535] {
            let whole = in_parts(size, size, 3);
            for part in [4096, 2048, 63] {
                assert_eq!(in_parts(size, part, 3), whole, "{size} bytes in parts of {part}");
            }
            let mut checker = Checker::new(grantway_ports::CheckerConfig {
                payload_every: 1,
                ..grantway_ports::CheckerConfig::default()
            });
            for frame in &whole {
                let copy = |buf: &mut [u8]| {
                    let len = buf.len().min(frame.len());
                    buf[..len].copy_from_slice(&frame[..len]);
                    len
                };
                checker.check_in_place(frame.len(), copy);
                assert_eq!(checker.check(frame), Verdict::Duplicated);
            }
            let total = checker.total();
            assert_eq!((total.received, total.duplicated, checker.corrupt()), (6, 3, 0), "{size}");
        }
    }
}
