//! The demand of one direction for the further pages of its queue, from a crowd until a calm.
//!
//! A crowd is more work at once than the pages at rest can take. A calm is a number of slots
//! without a crowd. A queue has one set of further pages. They may be in use by the other
//! direction, or the backend may have to stage them first. Then this direction waits for them.

/// Slots since the last crowd after which it is calm: at first, and at most. The number doubles
/// each time, so that a queue that is often busy rarely has its pages mapped and unmapped.
const CALM: [u32; 2] = [65_536, 1 << 20];

/// The demand of one direction.
pub(crate) struct Demand {
    /// True if there was a crowd since the last step.
    crowd: bool,
    /// Slots since the last crowd, and the number after which it is calm.
    used: u32,
    calm: u32,
    stage: Stage,
    /// True if further pages were refused. They are not asked for again before a calm.
    refused: bool,
}

/// The pages that a direction uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The pages at rest.
    Resting,
    /// The pages at rest. Further pages are granted, and will be used as soon as possible.
    Awaiting,
    /// The pages at rest, and further ones.
    Busy,
}

/// Readiness of the further pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The further pages can be used.
    Yes,
    /// Some further pages are not staged yet, or the other direction still has them.
    NotYet,
    /// The other direction needs them.
    Elsewhere,
    /// The backend does not stage all of them.
    Refused,
}

/// A change of the pages that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// None.
    Nothing,
    /// Further pages are granted, and this direction waits for them.
    Await,
    /// The direction does not wait for further pages any longer.
    Withdraw,
    /// The direction uses further pages from now on.
    Grow,
    /// The direction stops using further pages. A page that is in use leaves when it comes back.
    Shrink,
}

impl Demand {
    /// Returns the demand of a direction that was never busy.
    pub fn new() -> Self {
        Self { crowd: false, used: 0, calm: CALM[0], stage: Stage::Resting, refused: false }
    }

    /// Notes a crowd.
    #[inline]
    pub fn crowd(&mut self) {
        self.crowd = true;
        self.used = 0;
    }

    /// Notes that `slots` slots were used, 256 at most between two steps.
    #[inline]
    pub fn count(&mut self, slots: u32) {
        self.used += slots;
    }

    /// Returns true if further pages are in use, or this direction waits for them.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.stage != Stage::Resting
    }

    /// Returns true if further pages are in use.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.stage == Stage::Busy
    }

    /// Returns true if further pages are missing: this direction waits for them, or there was a
    /// crowd and they were not refused since the last calm.
    #[inline]
    pub fn misses(&self) -> bool {
        self.crowd && !self.refused || self.stage == Stage::Awaiting
    }

    /// Returns true if [`Demand::step`] may change something even if the readiness of the pages did
    /// not change.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.crowd || self.used >= self.calm
    }

    /// Chooses the pages that are used from now on. `grant` grants the further pages if they are
    /// not granted yet, and returns false on failure.
    pub fn step(&mut self, ready: Ready, grant: impl FnOnce() -> bool) -> Change {
        let crowd = core::mem::take(&mut self.crowd);
        let calm = self.used >= self.calm;
        if crowd || calm {
            self.used = 0;
        }
        self.refused &= !calm;
        let given_up = matches!(ready, Ready::Elsewhere | Ready::Refused);
        let wanted = match self.stage {
            Stage::Resting => crowd && !self.refused && ready != Ready::Elsewhere,
            Stage::Awaiting => !calm && !given_up,
            // Pages that are in use already are of use even if they are not staged any more.
            Stage::Busy => !calm && ready != Ready::Elsewhere,
        };
        // Without further grants the queue goes on with the pages that it has.
        if self.stage != Stage::Busy && wanted && !grant() {
            self.refused = true;
            return self.leave();
        }
        match (self.stage, wanted) {
            (Stage::Resting, false) | (Stage::Busy, true) => Change::Nothing,
            (Stage::Resting | Stage::Awaiting, true) if ready == Ready::Yes => {
                self.stage = Stage::Busy;
                Change::Grow
            }
            (Stage::Awaiting, true) => Change::Nothing,
            (Stage::Resting, true) => {
                self.stage = Stage::Awaiting;
                Change::Await
            }
            (Stage::Awaiting, false) => {
                self.refused |= ready == Ready::Refused;
                self.leave()
            }
            (Stage::Busy, false) => {
                if calm {
                    self.calm = CALM[1].min(2 * self.calm);
                }
                self.leave()
            }
        }
    }

    fn leave(&mut self) -> Change {
        match core::mem::replace(&mut self.stage, Stage::Resting) {
            Stage::Resting => Change::Nothing,
            Stage::Awaiting => Change::Withdraw,
            Stage::Busy => Change::Shrink,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes slots without a crowd until it is calm for the `times`-th time, and no longer.
    fn calm(demand: &mut Demand, times: u32) {
        for _ in 0..(CALM[0] << times) / 64 - 1 {
            demand.count(64);
            assert!(!demand.is_due());
        }
        demand.count(64);
        assert!(demand.is_due());
    }

    #[test]
    fn crowd_grows_and_calm_shrinks_after_twice_as_long_each_time() {
        let mut demand = Demand::new();
        for times in [0, 1, 2, 3, 4, 4] {
            assert_eq!(demand.step(Ready::Yes, || unreachable!()), Change::Nothing);
            demand.crowd();
            assert!(demand.is_due() && demand.misses());
            assert_eq!(demand.step(Ready::Yes, || true), Change::Grow);
            assert!(demand.is_busy() && !demand.is_due() && !demand.misses());
            // A crowd in between has it go on.
            demand.count(64);
            demand.crowd();
            assert_eq!(demand.step(Ready::Yes, || unreachable!()), Change::Nothing);
            calm(&mut demand, times);
            assert_eq!(demand.step(Ready::Yes, || unreachable!()), Change::Shrink);
            assert!(!demand.is_active());
        }
    }

    #[test]
    fn further_pages_that_were_refused_are_asked_for_after_a_calm() {
        let mut demand = Demand::new();
        for staged in [false, true] {
            for round in 0..3 {
                demand.crowd();
                let change = demand.step(Ready::NotYet, || staged && round == 0);
                assert_eq!(change == Change::Await, staged && round == 0, "{staged} {round}");
                if change == Change::Await {
                    assert_eq!(demand.step(Ready::NotYet, || true), Change::Nothing);
                    assert_eq!(demand.step(Ready::Refused, || true), Change::Withdraw);
                }
            }
            assert!(!demand.is_active());
            calm(&mut demand, 0);
            assert_eq!(demand.step(Ready::NotYet, || unreachable!()), Change::Nothing);
        }
        demand.crowd();
        assert_eq!(demand.step(Ready::Yes, || true), Change::Grow, "a refusal does not last");
        // Pages in use are of use, staged or not.
        assert_eq!(demand.step(Ready::Refused, || unreachable!()), Change::Nothing);
    }

    #[test]
    fn pages_that_the_other_direction_needs_are_given_up_and_asked_for_at_the_next_crowd() {
        let mut demand = Demand::new();
        for ready in [Ready::Yes, Ready::NotYet] {
            demand.crowd();
            assert_eq!(demand.step(Ready::Elsewhere, || unreachable!()), Change::Nothing);
            demand.crowd();
            let change = demand.step(ready, || true);
            assert_eq!(change, if ready == Ready::Yes { Change::Grow } else { Change::Await });
            let change = demand.step(Ready::Elsewhere, || unreachable!());
            let expected = if ready == Ready::Yes { Change::Shrink } else { Change::Withdraw };
            assert_eq!((change, demand.is_active()), (expected, false));
        }
        // They were not given up for want of use, so a calm takes as long as before.
        demand.crowd();
        assert_eq!(demand.step(Ready::Yes, || true), Change::Grow);
        calm(&mut demand, 0);
    }

    #[test]
    fn pages_that_are_not_ready_in_time_are_not_awaited_for_ever() {
        let mut demand = Demand::new();
        demand.crowd();
        assert_eq!(demand.step(Ready::NotYet, || true), Change::Await);
        calm(&mut demand, 0);
        assert_eq!(demand.step(Ready::NotYet, || unreachable!()), Change::Withdraw);
    }
}
