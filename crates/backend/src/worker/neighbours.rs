//! The effects that a turn on the bridge has on other queues of its worker.

use super::slot::Queues;
use crate::VifError;
use crate::bridge::Others;
use crate::ids::Key;
use crate::turn::queue::Queue;

/// The queues beside the one that has its turn on the bridge. After the turn some of them are to be
/// woken, or to fail.
pub(super) struct Neighbours<'a> {
    queues: &'a mut Queues,
    pub woken: Vec<Key>,
    pub broken: Vec<(Key, VifError)>,
}

impl<'a> Neighbours<'a> {
    pub fn new(queues: &'a mut Queues) -> Self {
        Self { queues, woken: Vec::new(), broken: Vec::new() }
    }
}

impl Others for &mut Neighbours<'_> {
    fn queue(&mut self, key: Key) -> Option<&mut Queue> {
        if self.broken.iter().any(|(broken, _)| *broken == key) {
            return None;
        }
        self.queues.find(key).map(|slot| &mut slot.queue)
    }

    fn wake(&mut self, key: Key) {
        self.woken.push(key);
    }

    fn broken(&mut self, key: Key, error: VifError) {
        self.broken.push((key, error));
    }
}
