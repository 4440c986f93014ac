//! What a turn on the bridge does to other queues of its worker.

use super::serve::Slot;
use crate::VifError;
use crate::bridge::{Key, Others};
use crate::queue::Queue;
use std::collections::BTreeMap;

/// The queues beside one that has its turn on the bridge, and what is to be done
/// with them afterwards.
pub(super) struct Neighbours<'a> {
    queues: &'a mut BTreeMap<Key, Box<Slot>>,
    pub woken: Vec<Key>,
    pub broken: Vec<(Key, VifError)>,
}

impl<'a> Neighbours<'a> {
    pub fn new(queues: &'a mut BTreeMap<Key, Box<Slot>>) -> Self {
        Self { queues, woken: Vec::new(), broken: Vec::new() }
    }
}

impl Others for &mut Neighbours<'_> {
    fn queue(&mut self, key: Key) -> Option<&mut Queue> {
        if self.broken.iter().any(|(broken, _)| *broken == key) {
            return None;
        }
        self.queues.get_mut(&key).map(|slot| &mut slot.queue)
    }

    fn wake(&mut self, key: Key) {
        self.woken.push(key);
    }

    fn broken(&mut self, key: Key, error: VifError) {
        self.broken.push((key, error));
    }
}
