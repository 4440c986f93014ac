//! One field of all rules: which of them a value fits.
//!
//! The values of a field fall into classes that the same rules fit. A class has a
//! bit for each rule, of which only the words that are not zero are kept, and a
//! summary with a bit for each word; rules that say nothing of the field are kept
//! once. So the rules that fit a whole packet are found by an AND of summaries and
//! of the few words that all of them have.

use std::collections::HashMap;

/// Most rules.
pub const RULES_MAX: usize = SUMMARY * 64 * 64;
/// Words of a summary.
pub(super) const SUMMARY: usize = 4;

/// The rules that a value fits and that say something of its field.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    pub summary: [u64; SUMMARY],
    /// Where its words begin, for each word of the summary.
    firsts: [u32; SUMMARY],
}

/// Bits of all rules while a field is compiled.
#[derive(Debug, Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(rules: usize) -> Self {
        Self(vec![0; rules.div_ceil(64)])
    }

    fn set(&mut self, rule: usize, value: bool) {
        if let Some(word) = self.0.get_mut(rule / 64) {
            let bit = 1 << (rule % 64);
            *word = if value { *word | bit } else { *word & !bit };
        }
    }
}

/// One field of all rules.
#[derive(Debug, Default)]
pub(super) struct Field {
    classes: Vec<Class>,
    words: Vec<u64>,
    /// Rules that say nothing of this field.
    open: Vec<u64>,
    open_summary: [u64; SUMMARY],
    /// Classes that were made, by their words.
    known: HashMap<Vec<u64>, u32>,
}

impl Field {
    /// Of so many rules, of which these say nothing of the field.
    pub fn new(rules: usize, open: impl Iterator<Item = usize>) -> Self {
        let mut bits = Bits::new(rules);
        open.for_each(|rule| bits.set(rule, true));
        let open_summary = summary(&bits.0);
        Self { open: bits.0, open_summary, ..Self::default() }
    }

    /// The class of values that these rules fit.
    fn class(&mut self, bits: &[u64]) -> u32 {
        if let Some(&known) = self.known.get(bits) {
            return known;
        }
        let mut class = Class { summary: summary(bits), ..Class::default() };
        for (at, first) in class.firsts.iter_mut().enumerate() {
            *first = self.words.len() as u32;
            let words = bits.get(64 * at..).unwrap_or(&[]).iter().take(64);
            self.words.extend(words.filter(|&&word| word != 0));
        }
        let number = self.classes.len() as u32;
        self.classes.push(class);
        self.known.insert(bits.to_vec(), number);
        number
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        8 * self.words.len() + size_of::<Class>() * self.classes.len()
    }

    /// Gives back what was needed to compile only.
    pub fn finish(&mut self) {
        self.known = HashMap::new();
        self.words.shrink_to_fit();
        self.classes.shrink_to_fit();
    }

    #[inline]
    pub fn of(&self, class: u32) -> Class {
        self.classes.get(class as usize).copied().unwrap_or_default()
    }

    /// A word of a class's summary, with the rules that are open.
    #[inline]
    pub fn summary(&self, class: &Class, at: usize) -> u64 {
        match (class.summary.get(at), self.open_summary.get(at)) {
            (Some(own), Some(open)) => own | open,
            _ => 0,
        }
    }

    /// A word of a class, with the rules that are open.
    #[inline]
    pub fn word(&self, class: &Class, at: usize, bit: u32) -> u64 {
        let open = self.open.get(64 * at + bit as usize).copied().unwrap_or(0);
        let (Some(&summary), Some(&first)) = (class.summary.get(at), class.firsts.get(at)) else {
            return open;
        };
        if summary >> bit & 1 == 0 {
            return open;
        }
        let before = (summary & ((1 << bit) - 1)).count_ones();
        open | self.words.get((first + before) as usize).copied().unwrap_or(0)
    }
}

fn summary(bits: &[u64]) -> [u64; SUMMARY] {
    std::array::from_fn(|at| {
        let words = bits.get(64 * at..).unwrap_or(&[]).iter().take(64);
        words.enumerate().fold(0, |sum, (bit, &word)| sum | u64::from(word != 0) << bit)
    })
}

/// A field of which rules name ranges.
#[derive(Debug, Default)]
pub(super) struct Ranges<T> {
    pub field: Field,
    starts: Vec<T>,
    classes: Vec<u32>,
    /// Where the starts of each part of the values begin: a search of all of them
    /// takes too many steps.
    parts: Vec<u32>,
    /// Values are told apart into parts by what this leaves of them.
    shift: u32,
}

/// A number that ranges are of.
pub(super) trait Number: Copy + Ord + Default {
    /// Bits that it has.
    const BITS: u32;
    fn next(self) -> Option<Self>;
    /// Its upper bits, as a place in a table.
    fn part(self, shift: u32) -> usize;
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            const BITS: u32 = <$kind>::BITS;

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline]
            fn part(self, shift: u32) -> usize {
                self.checked_shr(shift).unwrap_or(0) as usize
            }
        }
    )*};
}
number!(u16, u32, u128);

/// Bits of a value that choose the part; 4096 parts of four bytes each.
const PART_BITS: u32 = 12;

impl<T: Number> Ranges<T> {
    /// Compiles the ranges of rules; `open` rules say nothing of the field. Stops
    /// where more than so many bytes would be taken.
    pub fn new(
        rules: usize,
        open: impl Iterator<Item = usize>,
        ranges: &[(usize, Vec<(T, T)>)],
        bytes_max: usize,
    ) -> Option<Self> {
        let mut field = Field::new(rules, open);
        let mut changes: Vec<(T, usize, bool)> = Vec::new();
        for (rule, ranges) in ranges {
            for (first, last) in merged(ranges) {
                changes.push((first, *rule, true));
                changes.extend(last.next().map(|end| (end, *rule, false)));
            }
        }
        // A rule's ranges are apart, so that one of its ends is never another's start.
        changes.sort_unstable();
        let mut bits = Bits::new(rules);
        let mut starts = vec![T::default()];
        let mut classes = vec![field.class(&bits.0)];
        let mut at = 0;
        while let Some(&(start, ..)) = changes.get(at) {
            while let Some(&(_, rule, begins)) = changes.get(at).filter(|change| change.0 == start)
            {
                bits.set(rule, begins);
                at += 1;
            }
            let class = field.class(&bits.0);
            match starts.last() {
                Some(&last) if last == start => {
                    classes.pop();
                }
                _ => starts.push(start),
            }
            classes.push(class);
            if field.bytes() > bytes_max {
                return None;
            }
        }
        field.finish();
        // A table is worth it only where there is much to search.
        let wide = starts.len() > 64;
        let shift = if wide { T::BITS - PART_BITS.min(T::BITS) } else { T::BITS };
        let count = if wide { 1 << PART_BITS.min(T::BITS) } else { 1 };
        let place = |part| starts.partition_point(|start| start.part(shift) < part) as u32;
        let parts = (0..=count).map(place).collect();
        Some(Self { field, starts, classes, parts, shift })
    }

    /// The class of a value.
    #[inline]
    pub fn class(&self, value: T) -> Class {
        let part = value.part(self.shift);
        let first = self.parts.get(part).map_or(0, |&at| at as usize);
        let last = self.parts.get(part + 1).map_or(0, |&at| at as usize);
        let within = self.starts.get(first..last).unwrap_or(&[]);
        // The class of the last start up to the value, which may be in a part before.
        let at = (first + within.partition_point(|start| *start <= value)).wrapping_sub(1);
        self.field.of(self.classes.get(at).copied().unwrap_or(0))
    }
}

/// Ranges in order, those that touch or overlap as one.
fn merged<T: Number>(ranges: &[(T, T)]) -> Vec<(T, T)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::new();
    for (first, last) in sorted {
        match merged.last_mut() {
            Some(before) if before.1.next().is_none_or(|next| first <= next) => {
                before.1 = before.1.max(last);
            }
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// A field of few values.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub field: Field,
    classes: Vec<u32>,
}

impl Choices {
    /// Compiles the values that rules name, below `values`.
    pub fn new(
        rules: usize,
        open: impl Iterator<Item = usize>,
        named: &[(usize, Vec<usize>)],
        values: usize,
    ) -> Self {
        let mut field = Field::new(rules, open);
        let mut of_value: Vec<Option<Bits>> = vec![None; values];
        for (rule, named) in named {
            for &value in named {
                if let Some(bits) = of_value.get_mut(value) {
                    bits.get_or_insert_with(|| Bits::new(rules)).set(*rule, true);
                }
            }
        }
        let none = Bits::new(rules);
        let unnamed = field.class(&none.0);
        let class = |bits: &Option<Bits>| match bits {
            Some(bits) => field.class(&bits.0),
            None => unnamed,
        };
        let classes = of_value.iter().map(class).collect();
        field.finish();
        Self { field, classes }
    }

    /// The class of a value.
    #[inline]
    pub fn class(&self, value: usize) -> Class {
        self.classes.get(value).map_or(Class::default(), |&class| self.field.of(class))
    }
}
