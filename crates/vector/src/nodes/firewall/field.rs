//! One field of all rules. It finds the rules that a value fits.
//!
//! The values of a field fall into classes. All values of a class fit the same rules. A class has a
//! bit for each rule. Only words of bits that are not zero are kept, with a summary that has a bit
//! for each word. Rules that say nothing of the field are kept once. So the rules that fit a whole
//! packet are found by an AND of the summaries, and of the few words that all fields have.

use std::collections::HashMap;

/// Most rules of a firewall.
pub const RULES_MAX: usize = SUMMARY * 64 * 64;
/// Number of words of a summary.
pub(super) const SUMMARY: usize = 4;

/// Rules that say something of a field, and that the values of the class fit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    pub summary: [u64; SUMMARY],
    /// Start of the class's words, for each word of the summary.
    firsts: [u32; SUMMARY],
}

/// Bits of all rules, while a field is compiled.
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
    /// Bits of the rules that say nothing of this field.
    open: Vec<u64>,
    open_summary: [u64; SUMMARY],
    /// Classes that are made already, by their words.
    known: HashMap<Vec<u64>, u32>,
}

impl Field {
    /// Makes a field of `rules` rules. The `open` rules say nothing of the field.
    pub fn new(rules: usize, open: impl Iterator<Item = usize>) -> Self {
        let mut bits = Bits::new(rules);
        open.for_each(|rule| bits.set(rule, true));
        let open_summary = summary(&bits.0);
        Self { open: bits.0, open_summary, ..Self::default() }
    }

    /// Returns the class of the values that fit these rules, and makes it if it is new.
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

    /// Returns the number of bytes that the field takes.
    pub fn bytes(&self) -> usize {
        8 * self.words.len() + size_of::<Class>() * self.classes.len()
    }

    /// Frees memory that is needed only to compile.
    pub fn finish(&mut self) {
        self.known = HashMap::new();
        self.words.shrink_to_fit();
        self.classes.shrink_to_fit();
    }

    #[inline]
    pub fn of(&self, class: u32) -> Class {
        self.classes.get(class as usize).copied().unwrap_or_default()
    }

    /// Returns a word of a class's summary, with the open rules.
    #[inline]
    pub fn summary(&self, class: &Class, at: usize) -> u64 {
        match (class.summary.get(at), self.open_summary.get(at)) {
            (Some(own), Some(open)) => own | open,
            _ => 0,
        }
    }

    /// Returns a word of a class, with the open rules.
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

/// A field for which rules name ranges.
#[derive(Debug, Default)]
pub(super) struct Ranges<T> {
    pub field: Field,
    starts: Vec<T>,
    classes: Vec<u32>,
    /// Place of the first start in each part of the values. A search through all starts takes too
    /// many steps.
    parts: Vec<u32>,
    /// Bits by which a value is shifted to find its part.
    shift: u32,
}

/// A number of which there are ranges.
pub(super) trait Number: Copy + Ord + Default {
    /// Number of its bits.
    const BITS: u32;
    fn next(self) -> Option<Self>;
    /// Returns the upper bits, as a place in a table.
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

/// Bits of a value that choose its part. There are 4096 parts of four bytes each.
const PART_BITS: u32 = 12;

impl<T: Number> Ranges<T> {
    /// Compiles the ranges of rules; `open` rules say nothing of the field. Returns none if more
    /// than `bytes_max` bytes would be taken.
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
        // A rule's ranges are apart, so that the end of one is never the start of another.
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
        // A table is worth its memory only if there is much to search.
        let wide = starts.len() > 64;
        let shift = if wide { T::BITS - PART_BITS.min(T::BITS) } else { T::BITS };
        let count = if wide { 1 << PART_BITS.min(T::BITS) } else { 1 };
        let place = |part| starts.partition_point(|start| start.part(shift) < part) as u32;
        let parts = (0..=count).map(place).collect();
        Some(Self { field, starts, classes, parts, shift })
    }

    /// Returns the class of a value.
    #[inline]
    pub fn class(&self, value: T) -> Class {
        let part = value.part(self.shift);
        let first = self.parts.get(part).map_or(0, |&at| at as usize);
        let last = self.parts.get(part + 1).map_or(0, |&at| at as usize);
        let within = self.starts.get(first..last).unwrap_or(&[]);
        // The last start up to the value may be in a part before.
        let at = (first + within.partition_point(|start| *start <= value)).wrapping_sub(1);
        self.field.of(self.classes.get(at).copied().unwrap_or(0))
    }
}

/// Sorts ranges. Ranges that touch or overlap become one.
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

/// A field that has few values.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub field: Field,
    classes: Vec<u32>,
}

impl Choices {
    /// Compiles the values below `values` that rules name.
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

    /// Returns the class of a value.
    #[inline]
    pub fn class(&self, value: usize) -> Class {
        self.classes.get(value).map_or(Class::default(), |&class| self.field.of(class))
    }
}
