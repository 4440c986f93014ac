//! Hash settings of a frontend, and the queues that result from them.
//!
//! This is the backend's part of control messages 1 to 7. The caller serves the ring, copies a page
//! once, and passes the copy. A refused message changes nothing.

use crate::ctrl::{HashTypes, Status, algorithm, mapping_range};
use crate::extra::Hash;
use crate::toeplitz::{KEY_BYTES, Toeplitz};
use arrayvec::ArrayVec;
use core::ops::Range;

/// Entries of the largest table from hash to queue. Stock netback has the same limit.
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
    /// Makes settings without an algorithm, a key and a table, for a vif with this number of
    /// queues. 0 queues count as 1.
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

    /// Sets the algorithm, one of [`algorithm`].
    ///
    /// # Errors
    ///
    /// Returns [`Status::InvalidParameter`] for any other number.
    pub fn set_algorithm(&mut self, number: u32) -> Result<(), Status> {
        self.toeplitz = match u8::try_from(number) {
            Ok(algorithm::NONE) => false,
            Ok(algorithm::TOEPLITZ) => true,
            _ => return Err(Status::InvalidParameter),
        };
        Ok(())
    }

    /// Returns the supported types.
    ///
    /// # Errors
    ///
    /// Returns [`Status::NotSupported`] if no algorithm is set.
    pub fn offered(&self) -> Result<HashTypes, Status> {
        if self.toeplitz { Ok(HashTypes::all()) } else { Err(Status::NotSupported) }
    }

    /// Sets the types to calculate. The empty set disables hashing.
    ///
    /// # Errors
    ///
    /// Returns [`Status::InvalidParameter`] for an unknown type, or if no algorithm is set.
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
    /// Returns [`Status::BufferOverflow`] for a length above [`KEY_BYTES`].
    pub fn key_length(bytes: u32) -> Result<usize, Status> {
        match bytes as usize {
            len @ 0..=KEY_BYTES => Ok(len),
            _ => Err(Status::BufferOverflow),
        }
    }

    /// Replaces the key. Missing bytes are zero.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Hashing::key_length`].
    pub fn set_key(&mut self, key: &[u8]) -> Result<(), Status> {
        let mut whole = [0; KEY_BYTES];
        let part = whole.get_mut(..key.len()).ok_or(Status::BufferOverflow)?;
        part.copy_from_slice(key);
        self.key = whole;
        Ok(())
    }

    /// Makes a table with this number of entries, all for queue 0. With 0 entries, the queue is the
    /// remainder of the hash.
    ///
    /// # Errors
    ///
    /// Returns [`Status::InvalidParameter`] for a number above [`MAPPING_MAX`].
    pub fn set_mapping_size(&mut self, entries: u32) -> Result<(), Status> {
        if entries as usize > MAPPING_MAX {
            return Err(Status::InvalidParameter);
        }
        self.mapping = (0..entries).map(|_| 0).collect();
        Ok(())
    }

    /// Returns the entries that a part of the table replaces. Call it before the part is copied.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`mapping_range`].
    pub fn mapping_part(&self, entries: u32, offset: u32) -> Result<Range<usize>, Status> {
        // At most MAPPING_MAX.
        mapping_range(entries, offset, self.mapping.len() as u32)
    }

    /// Replaces the entries from `offset` on: all of them or none.
    ///
    /// # Errors
    ///
    /// Returns [`Status::InvalidParameter`] if a queue does not exist, or if the entries are not
    /// inside the table.
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

    /// Returns the algorithm, one of [`algorithm`].
    #[must_use]
    pub fn algorithm(&self) -> u8 {
        if self.toeplitz { algorithm::TOEPLITZ } else { algorithm::NONE }
    }

    /// Returns the types that are calculated if an algorithm is set.
    #[must_use]
    pub fn types(&self) -> HashTypes {
        self.types
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }

    /// Returns the table from hash to queue.
    #[must_use]
    pub fn mapping(&self) -> &[u16] {
        &self.mapping
    }

    /// Returns the steering of frames by these settings. Returns `None` if the frontend leaves the
    /// choice of queues to the backend.
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
    /// Returns the frame's hash, by the most specific enabled type that fits the frame. Returns
    /// `None` if no type fits.
    #[inline]
    #[must_use]
    pub fn hash(&self, frame: &[u8]) -> Option<Hash> {
        self.toeplitz.hash_frame(frame, self.types)
    }

    /// Returns the queue of a frame with this hash. A frame without a hash counts as hash 0, as in
    /// stock netback.
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
