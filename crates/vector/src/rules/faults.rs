//! Faults of a file of rules, collected while the file is read.

use super::TextFault;
use std::cell::RefCell;

/// Faults that were found so far, up to a limit.
pub(super) struct Faults {
    found: RefCell<Vec<TextFault>>,
    most: usize,
}

impl Faults {
    /// Collects at most `most` faults. The rest of a file that has more is not read.
    pub fn new(most: usize) -> Self {
        Self { found: RefCell::default(), most }
    }

    /// Returns true if there are as many faults as are collected.
    pub fn is_full(&self) -> bool {
        self.found.borrow().len() >= self.most
    }

    /// Returns true if there is no fault.
    pub fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// Adds a fault, unless it is there already or there is no room.
    pub fn add(&self, fault: TextFault) {
        let mut found = self.found.borrow_mut();
        if found.len() < self.most && !found.contains(&fault) {
            found.push(fault);
        }
    }

    /// Returns the value of a result, or adds its error.
    pub fn keep<T>(&self, result: Result<T, TextFault>) -> Option<T> {
        result.map_err(|fault| self.add(fault)).ok()
    }

    /// Returns the faults in the order of the file.
    pub fn into_sorted(self) -> Vec<TextFault> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|fault| (fault.line, fault.column));
        found
    }
}
