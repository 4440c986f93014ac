//! Hash settings of a frontend, and the queues that they send frames to.
//!
//! The backend's side of control messages 1 to 7, without their pages: whoever
//! serves the ring copies a page once and hands over the copy. A refused message
//! changes nothing.

use crate::ctrl::{HashTypes, Status, algorithm, mapping_range};
use crate::extra::Hash;
use crate::toeplitz::{KEY_BYTES, Toeplitz};
use arrayvec::ArrayVec;
use core::ops::Range;

/// Entries of the largest table from hash to queue, as in stock netback.
pub const MAPPING_MAX: usize = 128;

/// Hash settings of a vif whose queues are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashing {
    queues: u16,
    toeplitz: bool,
    types: HashTypes,
    key: [u8; KEY_BYTES],
    mapping: ArrayVec<u16, MAPPING_MAX>,
}

impl Hashing {
    /// Nothing is set: no algorithm, an empty key, no table. A vif has at least
    /// one queue.
    #[must_use]
    pub fn new(queues: u16) -> Self {
        Self {
            queues: queues.max(1),
            toeplitz: false,
            types: HashTypes::empty(),
            key: [0; KEY_BYTES],
            mapping: ArrayVec::new(),
        }
    }

    /// Chooses one of [`algorithm`].
    ///
    /// # Errors
    ///
    /// [`Status::InvalidParameter`] for any other number.
    pub fn set_algorithm(&mut self, number: u32) -> Result<(), Status> {
        self.toeplitz = match u8::try_from(number) {
            Ok(algorithm::NONE) => false,
            Ok(algorithm::TOEPLITZ) => true,
            _ => return Err(Status::InvalidParameter),
        };
        Ok(())
    }

    /// The types that can be calculated.
    ///
    /// # Errors
    ///
    /// [`Status::NotSupported`] while no algorithm is chosen.
    pub fn offered(&self) -> Result<HashTypes, Status> {
        if self.toeplitz { Ok(HashTypes::all()) } else { Err(Status::NotSupported) }
    }

    /// Calculates these types from now on; with none of them nothing is hashed.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidParameter`] for a type without a name, or while no
    /// algorithm is chosen.
    pub fn set_types(&mut self, types: HashTypes) -> Result<(), Status> {
        if !self.toeplitz || !HashTypes::all().contains(types) {
            return Err(Status::InvalidParameter);
        }
        self.types = types;
        Ok(())
    }

    /// Checks the length of a key before the key is copied. Returns the length in bytes.
    ///
    /// # Errors
    ///
    /// [`Status::BufferOverflow`] beyond [`KEY_BYTES`].
    pub fn key_length(bytes: u32) -> Result<usize, Status> {
        match bytes as usize {
            len @ 0..=KEY_BYTES => Ok(len),
            _ => Err(Status::BufferOverflow),
        }
    }

    /// Replaces the key; missing bytes are zero.
    ///
    /// # Errors
    ///
    /// As [`Hashing::key_length`].
    pub fn set_key(&mut self, key: &[u8]) -> Result<(), Status> {
        let mut whole = [0; KEY_BYTES];
        let part = whole.get_mut(..key.len()).ok_or(Status::BufferOverflow)?;
        part.copy_from_slice(key);
        self.key = whole;
        Ok(())
    }

    /// Makes a table of so many entries, all of them queue 0. With none the queue
    /// is the remainder of the hash.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidParameter`] beyond [`MAPPING_MAX`].
    pub fn set_mapping_size(&mut self, entries: u32) -> Result<(), Status> {
        if entries as usize > MAPPING_MAX {
            return Err(Status::InvalidParameter);
        }
        self.mapping = (0..entries).map(|_| 0).collect();
        Ok(())
    }

    /// The entries that a part of the table replaces: to be asked before it is
    /// copied.
    ///
    /// # Errors
    ///
    /// As [`mapping_range`].
    pub fn mapping_part(&self, entries: u32, offset: u32) -> Result<Range<usize>, Status> {
        // At most MAPPING_MAX.
        mapping_range(entries, offset, self.mapping.len() as u32)
    }

    /// Replaces the entries from `offset` on, all or none.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidParameter`] for a queue that there is not, or beyond the
    /// table.
    pub fn set_mapping(&mut self, offset: usize, queues: &[u32]) -> Result<(), Status> {
        let end = offset.checked_add(queues.len()).ok_or(Status::InvalidParameter)?;
        let part = self.mapping.get_mut(offset..end).ok_or(Status::InvalidParameter)?;
        // All of them are judged before any is committed (XSA-270).
        if queues.iter().any(|&queue| queue >= u32::from(self.queues)) {
            return Err(Status::InvalidParameter);
        }
        for (entry, &queue) in part.iter_mut().zip(queues) {
            *entry = queue as u16;
        }
        Ok(())
    }

    /// The algorithm, one of [`algorithm`].
    #[must_use]
    pub fn algorithm(&self) -> u8 {
        if self.toeplitz { algorithm::TOEPLITZ } else { algorithm::NONE }
    }

    /// The types that are calculated while there is an algorithm.
    #[must_use]
    pub fn types(&self) -> HashTypes {
        self.types
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }

    /// The table from hash to queue.
    #[must_use]
    pub fn mapping(&self) -> &[u16] {
        &self.mapping
    }

    /// Returns the steering of frames by these settings. Returns none if the frontend leaves it to
    /// the backend.
    #[must_use]
    pub fn steering(&self) -> Option<Steering> {
        if !self.toeplitz || self.types.is_empty() {
            return None;
        }
        Some(Steering {
            toeplitz: Toeplitz::new(&self.key),
            types: self.types,
            queues: self.queues,
            mapping: self.mapping.clone(),
        })
    }
}

/// Settings that choose a frame's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    toeplitz: Toeplitz,
    types: HashTypes,
    queues: u16,
    mapping: ArrayVec<u16, MAPPING_MAX>,
}

impl Steering {
    /// The frame's hash, by the most specific type that is set and fits it.
    #[inline]
    #[must_use]
    pub fn hash(&self, frame: &[u8]) -> Option<Hash> {
        self.toeplitz.hash_frame(frame, self.types)
    }

    /// The queue of a frame with this hash. A frame without one counts as hash 0,
    /// as in stock netback.
    #[inline]
    #[must_use]
    pub fn queue(&self, hash: Option<Hash>) -> u16 {
        let value = hash.map_or(0, |hash| hash.value);
        if self.mapping.is_empty() {
            // Below `queues`, which is 16 bits and at least 1.
            return (value % u32::from(self.queues)) as u16;
        }
        let at = value as usize % self.mapping.len();
        self.mapping.get(at).copied().unwrap_or(0)
    }
}
