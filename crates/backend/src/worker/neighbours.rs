//! The effects that a turn on the bridge has on other queues of its worker.

use super::slot::Queues;
use crate::VifError;
use crate::bridge::Others;
use crate::ids::Key;
use crate::turn::queue::Queue;
use std::time::Instant;

/// The queues beside the one that has its turn on the bridge.
pub(super) struct Neighbours<'a> {
    queues: &'a mut Queues,
    effects: Effects,
}

/// The queues that are to be woken after the turn, or to fail.
#[derive(Default)]
pub(super) struct Effects {
    pub woken: Vec<Key>,
    /// Queues that are to be woken at a time, all of them armed.
    pub called: Vec<(Key, Instant)>,
    pub broken: Vec<(Key, VifError)>,
}

impl<'a> Neighbours<'a> {
    pub fn new(queues: &'a mut Queues) -> Self {
        Self { queues, effects: Effects::default() }
    }

    /// Returns the effects of the turn, which is over.
    pub fn effects(self) -> Effects {
        self.effects
    }
}

impl Others for &mut Neighbours<'_> {
    fn queue(&mut self, key: Key) -> Option<&mut Queue> {
        if self.effects.broken.iter().any(|(broken, _)| *broken == key) {
            return None;
        }
        self.queues.find(key).map(|slot| &mut slot.queue)
    }

    fn wake(&mut self, key: Key) {
        self.effects.woken.push(key);
    }

    fn call(&mut self, key: Key, at: Instant) {
        // An active queue has a turn before it is armed, and asks for its time itself then. An
        // armed one is mostly called in time already.
        let slot = self.queues.find(key).filter(|slot| !slot.active);
        if slot.is_some_and(|slot| slot.call_at.is_none_or(|before| at < before)) {
            self.effects.called.push((key, at));
        }
    }

    fn broken(&mut self, key: Key, error: VifError) {
        self.effects.broken.push((key, error));
    }
}
