//! Pauses between connections that fail.

use std::time::{Duration, Instant};

/// The first pause.
const FIRST: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);

/// Each pause is twice as long as the one before, until a connection lasts longer than the pause
/// before it.
pub struct Rest {
    next: Duration,
    /// Time of the failure after which the present pause began.
    failed: Option<Instant>,
    /// Time at which the vif was connected.
    connected: Option<Instant>,
}

impl Default for Rest {
    fn default() -> Self {
        Self { next: FIRST, failed: None, connected: None }
    }
}

impl Rest {
    /// Notes that the vif is connected.
    pub fn connected(&mut self, now: Instant) {
        self.connected.get_or_insert(now);
    }

    /// Notes that the vif is held because of a failure. Returns the length of the pause that begins
    /// now, or `None` if it began before.
    pub fn begin(&mut self, now: Instant) -> Option<Duration> {
        if self.failed.is_some() {
            return None;
        }
        self.failed = Some(now);
        if let Some(since) = self.connected.take()
            && now.duration_since(since) >= self.next
        {
            self.next = FIRST;
        }
        Some(self.next)
    }

    /// Ends the pause if its time is over. Returns true if it is.
    pub fn end(&mut self, now: Instant) -> bool {
        let over = self.left(now) == Some(Duration::ZERO);
        if over {
            self.next = LONGEST.min(2 * self.next);
            self.failed = None;
        }
        over
    }

    /// Ends a pause early, because the vif is no longer held.
    pub fn cancel(&mut self) {
        self.failed = None;
    }

    /// Returns the remaining time of the pause, if there is one.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.failed.map(|failed| self.next.saturating_sub(now.duration_since(failed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest that the vif gets after a failure at `now`, in milliseconds.
    fn rest(rest: &mut Rest, now: &mut Instant) -> u128 {
        let length = rest.begin(*now).unwrap();
        *now += length - Duration::from_nanos(1);
        assert_eq!(rest.begin(*now), None);
        assert!(!rest.end(*now));
        *now += rest.left(*now).unwrap();
        assert!(rest.end(*now));
        assert_eq!(rest.left(*now), None);
        length.as_millis()
    }

    #[test]
    fn a_connection_that_fails_is_tried_ever_more_slowly() {
        let (mut now, mut rests) = (Instant::now(), Rest::default());
        let found: Vec<u128> = (0..10).map(|_| rest(&mut rests, &mut now)).collect();
        assert_eq!(found, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    }

    #[test]
    fn a_vif_that_is_made_anew_ends_its_rest() {
        let (now, mut rests) = (Instant::now(), Rest::default());
        assert_eq!(rests.begin(now), Some(FIRST));
        rests.cancel();
        assert_eq!(rests.left(now + LONGEST), None);
        assert_eq!(rests.begin(now), Some(FIRST));
    }

    #[test]
    fn only_a_lasting_connection_makes_the_next_pause_short_again() {
        let (mut now, mut rests) = (Instant::now(), Rest::default());
        assert_eq!(rest(&mut rests, &mut now), 200);
        assert_eq!(rest(&mut rests, &mut now), 400);
        // 799 ms are too short.
        rests.connected(now);
        rests.connected(now + Duration::from_millis(700));
        now += Duration::from_millis(799);
        assert_eq!(rest(&mut rests, &mut now), 800);
        rests.connected(now);
        now += Duration::from_millis(1600);
        assert_eq!(rest(&mut rests, &mut now), 200);
    }
}
