//! The lender of a queue's table. Its worker has the table while the queue has its turns, and the
//! control thread changes it between two of them. So the packet path holds no lock, and a page
//! that a turn uses cannot go.
//!
//! To lend the table and to take it back are four locked operations, which take longer than the
//! copy of a short packet. So the worker keeps it from turn to turn of a queue that is alone, and
//! looks with one load whether a change waits. It gives the table back before it does anything
//! else: a change waits for no turn of another queue.

use crate::policy::table::{GrefTable, LARGEST, secret};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The lender of one table.
#[derive(Debug)]
pub(crate) struct Lender {
    desk: Mutex<Desk>,
    /// True if a change waits. It is written under the lock of the desk, and is only a hint: a
    /// worker that reads it too early reads it again after the next turn.
    wanted: AtomicBool,
    returned: Condvar,
    /// Time for which a change waits for a turn.
    patience: Duration,
}

#[derive(Debug)]
struct Desk {
    table: Option<Box<GrefTable>>,
    /// Number of changes that wait for the table. Waking them is a system call, which no turn is to
    /// make in vain.
    waiting: u32,
}

/// Error of a change: the table is with the worker, and did not come back. Pages of it may be in
/// use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InUse;

impl Lender {
    pub fn new(limit: usize, patience: Duration) -> Self {
        let table = Some(Box::new(GrefTable::new(limit.min(LARGEST), secret())));
        let desk = Mutex::new(Desk { table, waiting: 0 });
        Self { desk, wanted: AtomicBool::new(false), returned: Condvar::new(), patience }
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a change waits for the table.
    #[inline(always)]
    pub fn is_waited_for(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Lends the table, and returns it. A second borrower would get an empty table, but
    /// there is no second borrower.
    pub fn lend(&self) -> Box<GrefTable> {
        self.lock().table.take().unwrap_or_else(|| Box::new(GrefTable::new(0, 0)))
    }

    /// Takes the table back between two turns, and wakes a change that waits for it.
    pub fn give_back(&self, table: Box<GrefTable>) {
        let mut desk = self.lock();
        desk.table = Some(table);
        let waited_for = desk.waiting > 0;
        drop(desk);
        if waited_for {
            self.returned.notify_all();
        }
    }

    /// Changes the table between two turns, and returns the result of `change`. The caller drops
    /// the mappings that were taken out afterwards: unmapping takes its time.
    pub fn change<T>(&self, change: impl FnOnce(&mut GrefTable) -> T) -> Result<T, InUse> {
        let mut desk = self.lock();
        desk.waiting += 1;
        self.wanted.store(true, Relaxed);
        let is_lent = |desk: &mut Desk| desk.table.is_none();
        let there = self.returned.wait_timeout_while(desk, self.patience, is_lent);
        let (mut desk, _) = there.unwrap_or_else(PoisonError::into_inner);
        desk.waiting -= 1;
        self.wanted.store(desk.waiting > 0, Relaxed);
        match desk.table.as_deref_mut() {
            Some(table) => Ok(change(table)),
            None => Err(InUse),
        }
    }
}
