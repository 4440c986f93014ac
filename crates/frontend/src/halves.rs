//! Pages that longer frames are sent from, whole or by halves, granted once and recycled.
//!
//! A frame of the usual MTU needs half a page, so a ring full of such frames needs half as many
//! pages as it has slots. A queue that is busy with longer frames has as many further pages. A
//! buffer's number is its id on the ring: that of its first half.

use crate::lent::Lent;
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Access, DomId, Error, FrontendPlatform, GrantRef};
use grantway_netif::colour;
use grantway_ring::{PAGE_SIZE, SharedPage};

/// Bytes of half a page.
const HALF: usize = PAGE_SIZE / 2;
/// Halves of the pages at rest: one for each slot of the ring.
const RESTING: u16 = 256;
/// Halves of all pages, further ones included.
pub(crate) const HALVES: u16 = 2 * RESTING;
/// Pages at rest. There are as many further ones.
pub(crate) const PAGES: u16 = RESTING / 2;
const WORDS: usize = HALVES as usize / 64;
/// Words of the pages at rest, which are the first ones.
const RESTING_WORDS: usize = RESTING as usize / 64;
/// Bits of the first halves in a word. The second half has the bit above.
const FIRST: u64 = 0x5555_5555_5555_5555;

/// The pages, and the halves of them that are in use.
pub(crate) struct Halves {
    pages: Vec<(SharedPage, GrantRef)>,
    used: Used,
    // Declared after the handles above, so that those are gone when it goes back.
    lent: Lent,
}

/// A buffer that was taken: a page, or half of one.
pub(crate) struct Buffer<'a> {
    pub page: &'a SharedPage,
    pub gref: GrantRef,
    /// Start of the bytes in the page.
    pub offset: u16,
}

/// The halves in use.
struct Used {
    /// Bits of the halves that are free.
    free: [u64; WORDS],
    /// Bits of the first halves of pages that were taken whole.
    whole: [u64; WORDS],
    /// Number of words whose pages are taken: those at rest, or all.
    words: usize,
    /// Number of halves of these words that are free, and number of pages whose halves are both
    /// free.
    free_halves: u16,
    free_pages: u16,
    /// Word in which a half was found last.
    last: usize,
}

impl Halves {
    /// Grants the pages, zeroed.
    pub fn new(platform: &Arc<dyn FrontendPlatform>, peer: DomId) -> Result<Self, Error> {
        let lent = Lent::new(platform, peer, PAGES.into(), Access::ReadOnly)?;
        let pages = (0..PAGES.into()).map_while(|index| lent.page(index)).collect();
        Ok(Self { pages, used: Used::default(), lent })
    }

    /// Returns the grants of the pages, in the order of their numbers.
    pub fn grefs(&self) -> impl Iterator<Item = GrantRef> + '_ {
        self.pages.iter().map(|(_, gref)| *gref)
    }

    /// Returns true if there is room for a frame of `len` bytes.
    #[inline]
    pub fn has_room(&self, len: usize) -> bool {
        match len {
            ..=HALF => self.used.free_halves > 0,
            _ => usize::from(self.used.free_pages) >= len.div_ceil(PAGE_SIZE),
        }
    }

    /// Returns the number of halves that are free.
    #[inline]
    pub fn free(&self) -> u32 {
        self.used.free_halves.into()
    }

    /// Takes room for `len` bytes, a page at most: half a page if that is enough. Returns the
    /// number of the buffer.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<u16> {
        match len {
            ..=HALF => self.used.take_half(),
            _ => self.used.take_page(),
        }
    }

    /// Takes a buffer back. Returns false if no buffer of this number is in use.
    #[inline]
    pub fn give_back(&mut self, number: u16) -> bool {
        self.used.give_back(number)
    }

    /// Returns the place for `len` bytes in the buffer of this number.
    #[inline]
    pub fn buffer(&self, number: u16, len: usize) -> Option<Buffer<'_>> {
        let (page, gref) = self.pages.get(usize::from(number / 2))?;
        let offset = match len {
            // A half begins at the offset that leaves no more than its own room behind it.
            ..=HALF => number % 2 * HALF as u16 + colour(number.into(), HALF + len),
            _ => colour((number / 2).into(), len),
        };
        Some(Buffer { page, gref: *gref, offset })
    }

    /// Takes further pages into use. The caller granted them and keeps them.
    pub fn grow<'a>(&mut self, further: impl Iterator<Item = &'a (SharedPage, GrantRef)>) {
        let missing = usize::from(HALVES / 2).saturating_sub(self.pages.len());
        // They are the same pages each time.
        self.pages.extend(further.take(missing).cloned());
        self.used.set_words(WORDS);
    }

    /// Takes the further pages out of use. A page that is in use leaves when it comes back.
    pub fn shrink(&mut self) {
        self.used.set_words(RESTING_WORDS);
    }

    /// Returns true if a further page was taken whole and is still in use: no other page was free.
    #[inline]
    pub fn misses_further(&self) -> bool {
        self.used.whole.iter().skip(RESTING_WORDS).any(|&word| word != 0)
    }

    /// Returns true if all further pages are here.
    pub fn has_all_further(&self) -> bool {
        self.used.free.iter().skip(RESTING_WORDS).all(|&word| word == u64::MAX)
    }

    /// Notes that the grants are void.
    pub fn void(&self) {
        self.lent.void();
    }
}

impl Default for Used {
    /// Returns the state in which all halves are free, and no further page is in use.
    fn default() -> Self {
        let (free, whole) = ([u64::MAX; WORDS], [0; WORDS]);
        let words = RESTING_WORDS;
        Self { free, whole, words, free_halves: RESTING, free_pages: PAGES, last: 0 }
    }
}

impl Used {
    /// Returns the bits of pages in a word that are free as a whole.
    #[inline]
    fn whole_pages(word: u64) -> u64 {
        word & word >> 1 & FIRST
    }

    /// Takes pages from the first `words` words from now on.
    fn set_words(&mut self, words: usize) {
        (self.words, self.last) = (words, 0);
        let free = self.free.get(..words).unwrap_or(&self.free);
        // There are 512 halves.
        self.free_halves = free.iter().map(|word| word.count_ones() as u16).sum();
        let pages = |&word: &u64| Self::whole_pages(word).count_ones() as u16;
        self.free_pages = free.iter().map(pages).sum();
    }

    /// Takes a half of a page. A page nearby whose other half is in use is preferred.
    #[inline]
    fn take_half(&mut self) -> Option<u16> {
        if self.free.get(self.last)? == &0 {
            let free = self.free.get(..self.words)?;
            self.last = free.iter().position(|&word| word != 0)?;
        }
        let free = self.free.get_mut(self.last)?;
        let odd = (*free ^ *free >> 1) & FIRST;
        let bit = if odd == 0 {
            self.free_pages -= 1;
            free.trailing_zeros()
        } else {
            // The half of that page which is free.
            let first = odd.trailing_zeros();
            first + u32::from(*free >> first & 1 == 0)
        };
        *free &= !(1 << bit);
        self.free_halves -= 1;
        Some(number(self.last, bit))
    }

    /// Takes a page of which both halves are free. A further page is taken if there is no other.
    #[inline]
    fn take_page(&mut self) -> Option<u16> {
        let free = self.free.get(..self.words)?;
        let word = free.iter().position(|&word| Self::whole_pages(word) != 0)?;
        let (free, whole) = (self.free.get_mut(word)?, self.whole.get_mut(word)?);
        let bit = Self::whole_pages(*free).trailing_zeros();
        *free &= !(0b11 << bit);
        *whole |= 1 << bit;
        self.free_halves -= 2;
        self.free_pages -= 1;
        Some(number(word, bit))
    }

    #[inline]
    fn give_back(&mut self, number: u16) -> bool {
        let (word, bit) = (usize::from(number / 64), number % 64);
        let (Some(free), Some(whole)) = (self.free.get_mut(word), self.whole.get_mut(word)) else {
            return false;
        };
        let first = bit & !1;
        let is_whole = *whole >> first & 1 == 1;
        // The second half of a page that was taken whole is no buffer.
        if *free >> bit & 1 == 1 || (is_whole && bit != first) {
            return false;
        }
        let mut back = (1, 0);
        if is_whole {
            *free |= 0b11 << bit;
            *whole &= !(1 << bit);
            back = (2, 1);
        } else {
            *free |= 1 << bit;
            back.1 = u16::from(*free >> first & 0b11 == 0b11);
        }
        // Pages that are not in use are not counted.
        if word < self.words {
            self.free_halves += back.0;
            self.free_pages += back.1;
        }
        true
    }
}

/// Returns the number of a bit.
#[inline]
fn number(word: usize, bit: u32) -> u16 {
    // There are 512 bits.
    (word * 64) as u16 + bit as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// Returns the halves of a buffer.
    fn halves(number: u16, whole: bool) -> impl Iterator<Item = u16> {
        number..number + 1 + u16::from(whole)
    }

    #[test]
    fn no_half_has_two_owners_and_each_comes_back_once() {
        let mut numbers = 17u32;
        let mut used = Used::default();
        // The buffers in use: true for a whole page.
        let mut taken: BTreeMap<u16, bool> = BTreeMap::new();
        let mut most = 0;
        for step in 0..200_000u32 {
            numbers = numbers.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let random = numbers >> 8;
            // It fills, and empties again. Further pages come into use and go at any time.
            let fills = step / 1500 % 2 == 0;
            if numbers.is_multiple_of(997) {
                used.set_words(if used.words == WORDS { RESTING_WORDS } else { WORDS });
            }
            if random % 4 < if fills { 3 } else { 1 } {
                let whole = random.is_multiple_of(3);
                let room = if whole { used.free_pages } else { used.free_halves };
                let number = if whole { used.take_page() } else { used.take_half() };
                assert_eq!(number.is_some(), room > 0, "step {step}");
                let Some(number) = number else { continue };
                assert!(!whole || number.is_multiple_of(2));
                assert!(usize::from(number) < used.words * 64, "step {step}: not in use");
                let in_use: Vec<u16> =
                    taken.iter().flat_map(|(&number, &whole)| halves(number, whole)).collect();
                assert!(halves(number, whole).all(|half| !in_use.contains(&half)), "step {step}");
                taken.insert(number, whole);
            } else {
                // Any number, most of which are in use.
                let number = (random >> 4) as u16 % (HALVES + 8);
                assert_eq!(used.give_back(number), taken.remove(&number).is_some(), "step {step}");
            }
            let limit = used.words as u16 * 64;
            let of_these = taken.iter().filter(|&(&number, _)| number < limit);
            let out: u16 = of_these.map(|(_, &whole)| 1 + u16::from(whole)).sum();
            assert_eq!(used.free_halves, limit - out, "step {step}");
            let words = &used.free[..used.words];
            let pages = words.iter().map(|&word| Used::whole_pages(word).count_ones()).sum();
            assert_eq!(u32::from(used.free_pages), pages, "step {step}");
            most = most.max(taken.len());
        }
        assert!(most > RESTING.into(), "{most} buffers at once: further pages were of no use");
    }

    #[test]
    fn further_page_is_taken_if_no_other_is_free_and_rests_once_it_is_back() {
        let mut used = Used::default();
        let resting: Vec<_> = core::iter::from_fn(|| used.take_page()).collect();
        assert_eq!(resting.len(), PAGES.into());
        used.set_words(WORDS);
        let further = used.take_page().unwrap();
        assert!(further >= RESTING && used.give_back(0));
        assert_eq!((used.take_page(), used.free_pages), (Some(0), PAGES - 1));
        used.set_words(RESTING_WORDS);
        assert_eq!((used.take_page(), used.take_half(), used.free_halves), (None, None, 0));
        assert!(used.give_back(further) && !used.give_back(further));
        assert_eq!((used.take_page(), used.free_pages), (None, 0));
        assert!(used.free[RESTING_WORDS..].iter().all(|&word| word == u64::MAX));
    }

    #[test]
    fn halves_fill_pages_that_are_in_use_already() {
        let mut used = Used::default();
        let taken: Vec<_> = (0..100).map_while(|_| used.take_half()).collect();
        assert_eq!(taken, (0..100).collect::<Vec<u16>>());
        assert!(used.give_back(3) && used.give_back(70));
        assert_eq!((used.take_page(), used.free_pages), (Some(100), 77));
        assert_eq!((used.take_half(), used.take_half()), (Some(70), Some(102)));
        // A page that was taken whole comes back by its own number only.
        assert!(!used.give_back(101) && used.give_back(100) && !used.give_back(100));
        assert_eq!(used.take_half(), Some(103));
    }
}
