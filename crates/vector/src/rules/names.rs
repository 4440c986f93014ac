//! Names of ports, as rules write them, and their numbers.

use crate::batch::PortId;

/// Most names.
pub const NAMES_MAX: usize = 4096;

#[derive(Debug, Default, Clone)]
struct Entry {
    name: String,
    /// True if rules name the port.
    is_ruled: bool,
    /// True if the port is there.
    is_there: bool,
}

impl Entry {
    fn is_free(&self) -> bool {
        !self.is_ruled && !self.is_there
    }
}

/// Names of vifs (`1.0`: domain and number) and of ports beside them (`uplink`), each with the
/// number that frames have. A name keeps its number for as long as the port is there or rules name
/// it. So rules may name vifs that come later.
#[derive(Debug, Default, Clone)]
pub struct Names(Vec<Entry>);

impl Names {
    /// Returns the number of a name in rules, or a new number if it has none. Returns `None` if
    /// there are [`NAMES_MAX`] names already.
    pub fn number(&mut self, name: &str) -> Option<PortId> {
        self.find(name, |entry| entry.is_ruled = true)
    }

    /// Returns the number of a port that is there from now on; `None` as in [`Self::number`].
    pub fn join(&mut self, name: &str) -> Option<PortId> {
        self.find(name, |entry| entry.is_there = true)
    }

    /// Notes that a port is gone. Its number may be given to another port, unless rules name it.
    pub fn leave(&mut self, name: &str) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.is_there && entry.name == name) {
            entry.is_there = false;
        }
    }

    /// Returns these names for other rules: only ports that are there have numbers.
    #[must_use]
    pub fn for_other_rules(&self) -> Self {
        let entry = |entry: &Entry| Entry { is_ruled: false, ..entry.clone() };
        Self(self.0.iter().map(entry).collect())
    }

    fn find(&mut self, name: &str, mark: impl FnOnce(&mut Entry)) -> Option<PortId> {
        let known = |entry: &Entry| !entry.is_free() && entry.name == name;
        let at = match self.0.iter().position(known) {
            Some(at) => at,
            None => {
                let at = self.0.iter().position(Entry::is_free).unwrap_or(self.0.len());
                if at >= NAMES_MAX {
                    return None;
                }
                if at == self.0.len() {
                    self.0.push(Entry::default());
                }
                name.clone_into(&mut self.0.get_mut(at)?.name);
                at
            }
        };
        mark(self.0.get_mut(at)?);
        u16::try_from(at).ok().map(PortId)
    }

    /// Returns the name of a number.
    #[must_use]
    pub fn name(&self, port: PortId) -> Option<&str> {
        let entry = self.0.get(usize::from(port.0)).filter(|entry| !entry.is_free());
        entry.map(|entry| entry.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_again_once_nobody_has_it() {
        let mut names = Names::default();
        let number = |n| Some(PortId(n));
        assert_eq!((names.join("uplink"), names.number("1.0")), (number(0), number(1)));
        assert_eq!((names.join("1.0"), names.join("2.0")), (number(1), number(2)));
        names.leave("1.0");
        assert_eq!(names.join("3.0"), number(3), "rules still speak of 1.0");
        names.leave("2.0");
        assert_eq!((names.join("4.0"), names.name(PortId(2))), (number(2), Some("4.0")));
        let mut other = names.for_other_rules();
        assert_eq!(other.name(PortId(1)), None);
        assert_eq!(other.number("5.0"), number(1));
        for n in 0..2 * NAMES_MAX {
            names.join(&format!("{n}.1")).unwrap();
            names.leave(&format!("{n}.1"));
        }
        let many = (0..2 * NAMES_MAX).filter(|n| names.join(&format!("{n}.2")).is_some()).count();
        assert_eq!(many, NAMES_MAX - 4);
    }
}
