//! Filters, grouped by their masks: one look-up for each different mask.

use super::filter::Filter;
use super::key::{Key, WORDS};
use crate::secret::Secret;
use arrayvec::ArrayVec;

/// Most different masks.
pub const MASKS_MAX: usize = 64;
/// Most filters.
pub const FILTERS_MAX: usize = 65_536;

/// Reason why filters cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// There are too many filters.
    #[error("{found} filters, expected at most {FILTERS_MAX}; leave some out")]
    Filters {
        /// Number of filters found.
        found: usize,
    },
    /// There are too many different masks.
    #[error(
        "filter {filter:?} has one more set of fields, expected at most {MASKS_MAX} different sets; \
         let filters use the same fields, or use rules"
    )]
    Masks {
        /// Name of the filter.
        filter: String,
    },
    /// A filter can match no frame, since an earlier filter has the same fields.
    #[error("filter {filter:?} has the same fields as {first:?} before it; leave one of them out")]
    Twice {
        /// Name of the filter.
        filter: String,
        /// Name of the filter before it.
        first: String,
    },
}

/// Filters that have one mask.
#[derive(Debug)]
struct Group {
    mask: Key,
    /// Numbers of the key's words in which the mask has bits.
    words: ArrayVec<u8, WORDS>,
    /// Number of the group's first filter.
    best: u32,
    /// Slots for filters, by their keys. A slot has one more than the filter's number, or 0 for
    /// none.
    slots: Box<[u32]>,
}

/// Filters, compiled.
#[derive(Debug, Default)]
pub struct Table {
    /// Groups in the order of their first filters.
    groups: Vec<Group>,
    values: Vec<Key>,
    secret: Option<Secret>,
}

impl Table {
    /// Compiles filters.
    ///
    /// # Errors
    /// Returns [`FilterError`] if there are too many filters or masks, or if a filter can never
    /// match.
    pub fn new(filters: &[Filter], secret: Secret) -> Result<Self, FilterError> {
        if filters.len() > FILTERS_MAX {
            return Err(FilterError::Filters { found: filters.len() });
        }
        let mut members: Vec<(Key, Vec<u32>)> = Vec::new();
        for (number, filter) in filters.iter().enumerate() {
            let mask = filter.pattern.mask;
            let full = members.len() == MASKS_MAX;
            match members.iter_mut().find(|(known, _)| *known == mask) {
                Some((_, members)) => members.push(number as u32),
                None if full => {
                    return Err(FilterError::Masks { filter: filter.name.clone() });
                }
                None => members.push((mask, vec![number as u32])),
            }
        }
        let values = filters.iter().map(|filter| filter.pattern.value).collect();
        let mut table = Self { groups: Vec::new(), values, secret: Some(secret) };
        for (mask, members) in members {
            let group = table.group(mask, &members, filters, secret)?;
            table.groups.push(group);
        }
        Ok(table)
    }

    fn group(
        &self,
        mask: Key,
        members: &[u32],
        filters: &[Filter],
        secret: Secret,
    ) -> Result<Group, FilterError> {
        let words = (0..WORDS as u8).filter(|&word| mask.0[usize::from(word)] != 0).collect();
        let slots = vec![0; (2 * members.len()).next_power_of_two()].into_boxed_slice();
        let best = members.first().copied().unwrap_or(0);
        let mut group = Group { mask, words, best, slots };
        for &number in members {
            let Some(filter) = filters.get(number as usize) else { continue };
            let (at, found) = self.probe(&group, &filter.pattern.value, secret);
            if let Some(first) = found.and_then(|first| filters.get(first as usize)) {
                let (filter, first) = (filter.name.clone(), first.name.clone());
                return Err(FilterError::Twice { filter, first });
            }
            if let Some(slot) = group.slots.get_mut(at) {
                *slot = number + 1;
            }
        }
        Ok(group)
    }

    /// Returns the slot in which a key is, or would be, and the filter that wants the key. At least
    /// half of the slots are empty, so that the search ends.
    #[inline]
    fn probe(&self, group: &Group, key: &Key, secret: Secret) -> (usize, Option<u32>) {
        let mut words = [0; WORDS];
        for (to, &word) in words.iter_mut().zip(&group.words) {
            *to = key.0[usize::from(word) % WORDS];
        }
        let wrap = group.slots.len().wrapping_sub(1);
        let number = secret.number(words.get(..group.words.len()).unwrap_or(&words));
        let mut at = number as usize & wrap;
        while let Some(filter) = group.slots.get(at).and_then(|slot| slot.checked_sub(1)) {
            if self.values.get(filter as usize) == Some(key) {
                return (at, Some(filter));
            }
            at = (at + 1) & wrap;
        }
        (at, None)
    }

    /// Returns the number of the first matching filter.
    #[inline]
    #[must_use]
    pub fn first(&self, key: &Key) -> Option<usize> {
        let secret = self.secret?;
        let mut found = None;
        for group in &self.groups {
            // No later group has an earlier filter.
            if found.is_some_and(|found| found < group.best) {
                break;
            }
            let (_, other) = self.probe(group, &key.masked(&group.mask), secret);
            found = match (found, other) {
                (Some(one), Some(other)) => Some(u32::min(one, other)),
                (one, other) => one.or(other),
            };
        }
        found.map(|number| number as usize)
    }
}
