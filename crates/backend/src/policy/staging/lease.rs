//! A queue's table, which its worker has for a turn, and whoever changes it in
//! between: so the packet path holds no lock, and a page that a turn uses
//! cannot go.

use crate::policy::table::{GrefTable, LARGEST, secret};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lends one table.
#[derive(Debug)]
pub(crate) struct Lender {
    desk: Mutex<Desk>,
    returned: Condvar,
    /// How long a change waits for a turn.
    patience: Duration,
}

#[derive(Debug)]
struct Desk {
    table: Option<Box<GrefTable>>,
    /// Who waits for it. To tell them is a system call, which no turn is to make in
    /// vain.
    waiting: u32,
}

/// The table is with the worker, and did not come back: pages of it may be in
/// use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InUse;

impl Lender {
    pub fn new(limit: usize, patience: Duration) -> Self {
        let table = Some(Box::new(GrefTable::new(limit.min(LARGEST), secret())));
        let desk = Mutex::new(Desk { table, waiting: 0 });
        Self { desk, returned: Condvar::new(), patience }
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends the table for a turn. A second borrower would find an empty table; there is none.
    pub fn lend(&self) -> Box<GrefTable> {
        self.lock().table.take().unwrap_or_else(|| Box::new(GrefTable::new(0, 0)))
    }

    /// The turn is over.
    pub fn give_back(&self, table: Box<GrefTable>) {
        let mut desk = self.lock();
        desk.table = Some(table);
        let waited_for = desk.waiting > 0;
        drop(desk);
        if waited_for {
            self.returned.notify_all();
        }
    }

    /// Changes the table between two turns. What is taken out is to be dropped
    /// by the caller, afterwards: unmapping takes its time.
    pub fn change<T>(&self, change: impl FnOnce(&mut GrefTable) -> T) -> Result<T, InUse> {
        let mut desk = self.lock();
        desk.waiting += 1;
        let is_lent = |desk: &mut Desk| desk.table.is_none();
        let there = self.returned.wait_timeout_while(desk, self.patience, is_lent);
        let (mut desk, _) = there.unwrap_or_else(PoisonError::into_inner);
        desk.waiting -= 1;
        match desk.table.as_deref_mut() {
            Some(table) => Ok(change(table)),
            None => Err(InUse),
        }
    }
}
