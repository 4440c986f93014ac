//! A ring of few slots in plain memory, for tests in one thread.

use std::cell::Cell;
use std::rc::Rc;

use grantway_ring::{Index, RingMemory};

/// Words in a slot.
pub const W: usize = 2;

/// Content of a ring page, with as many slots as a test likes.
#[derive(Debug, Clone)]
pub struct Small {
    pub indices: Rc<[Cell<u32>; 4]>,
    pub slots: Rc<[Cell<[u32; W]>]>,
}

impl Small {
    /// All indices at `start`, `slots` slots of zeroes.
    pub fn new(slots: u32, start: u32) -> Self {
        assert!(slots.is_power_of_two());
        Self {
            indices: Rc::new(std::array::from_fn(|_| Cell::new(start))),
            slots: (0..slots).map(|_| Cell::new([0; W])).collect(),
        }
    }

    fn slot(&self, index: u32) -> &Cell<[u32; W]> {
        &self.slots[(index & (self.slots() - 1)) as usize]
    }
}

impl RingMemory<W> for Small {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn load(&self, index: Index) -> u32 {
        self.indices[index as usize].get()
    }

    fn store(&self, index: Index, value: u32) {
        self.indices[index as usize].set(value);
    }

    fn read_slot(&self, index: u32) -> [u32; W] {
        self.slot(index).get()
    }

    fn write_slot(&self, index: u32, words: [u32; W]) {
        self.slot(index).set(words);
    }

    fn clear(&self) {
        self.indices.iter().for_each(|index| index.set(0));
        self.slots.iter().for_each(|slot| slot.set([0; W]));
    }
}
