//! Shared memory that only the host writes: the state of each port of a process, and the domains
//! that are alive.

use crate::sys::{Words, WordsView, seal_for_readers, shared_memory};
use grantway_hypervisor::DomId;
use rustix::fd::OwnedFd;
use rustix::io::Result;
use std::sync::atomic::Ordering::Release;

/// An array of words that the host writes and processes read.
#[derive(Debug)]
pub struct Board {
    fd: OwnedFd,
    words: Words,
}

impl Board {
    /// Makes a board of `words` words, all 0.
    pub fn new(name: &str, words: usize) -> Result<Self> {
        let fd = shared_memory(name, words * 4)?;
        let words = Words::of(&fd, words * 4)?;
        seal_for_readers(&fd)?;
        Ok(Self { fd, words })
    }

    /// Returns the descriptor for readers.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Sets a word.
    pub fn set(&self, index: usize, value: u32) {
        if let Some(word) = self.words.word32(index) {
            word.store(value, Release);
        }
    }
}

/// Words in the board of lives: one for each domain number.
pub const LIVES: usize = DomId::FIRST_RESERVED as usize;

/// Boots of the domains that are alive, by domain; 0 if it is not.
#[derive(Debug)]
pub struct Lives(WordsView);

impl Lives {
    /// Maps the board behind `fd`.
    pub fn of(fd: &OwnedFd) -> Result<Self> {
        WordsView::of(fd, LIVES * 4).map(Self)
    }

    /// Returns the boot of `domain` that is alive, 0 for none.
    #[inline]
    pub fn boot(&self, domain: DomId) -> u32 {
        self.0.load32(usize::from(domain.0))
    }
}

/// The state of a port, as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// The port is not ours.
    Free,
    /// The port has no peer.
    Unbound,
    /// The port has a peer; the number changes with each new peer.
    Bound(u32),
}

impl PortState {
    /// Number of bindings, modulo which they are counted.
    pub const BINDINGS: u32 = 1 << 30;

    /// Returns the state as a word of the board.
    pub fn word(self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Unbound => 1,
            Self::Bound(binding) => 2 | binding << 2,
        }
    }

    /// Returns the state in a word of the board.
    #[inline]
    pub fn from_word(word: u32) -> Self {
        match word & 3 {
            1 => Self::Unbound,
            2 => Self::Bound(word >> 2),
            _ => Self::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_cross_the_board() {
        for state in [
            PortState::Free,
            PortState::Unbound,
            PortState::Bound(0),
            PortState::Bound(PortState::BINDINGS - 1),
        ] {
            assert_eq!(PortState::from_word(state.word()), state);
        }
    }

    #[test]
    fn readers_cannot_map_a_board_for_writing() {
        let board = Board::new("test", 16).unwrap();
        board.set(3, 7);
        assert!(Words::of(board.fd(), 64).is_err());
        let view = WordsView::of(board.fd(), 64).unwrap();
        assert_eq!(view.load32(3), 7);
        board.set(3, 8);
        assert_eq!(view.load32(3), 8);
        assert_eq!(view.load32(16), 0);
    }
}
