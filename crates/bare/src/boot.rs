//! The guest's arguments and memory, from the toolstack.

use alloc::string::String;

/// The guest's arguments and memory, from the toolstack.
#[derive(Debug, Clone)]
pub struct Boot {
    arguments: String,
    memory: usize,
}

impl Boot {
    pub(crate) fn new(arguments: String, memory: usize) -> Self {
        Self { arguments, memory }
    }

    /// Returns the guest's arguments: the text of `extra` or `cmdline` in its configuration.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    /// Returns the values of all `name=value` among the arguments, which are words with spaces
    /// between them.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let words = self.arguments.split_ascii_whitespace();
        words.filter_map(move |word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the value of the first `name=value` among the arguments.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&str> {
        let mut words = self.arguments.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the size of the heap in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::Boot;
    use alloc::vec::Vec;

    #[test]
    fn arguments_are_words_with_a_name_and_a_value() {
        let boot = Boot::new("ip=10.0.0.2/24  route=a\tip6=x route=b=c flag route=".into(), 7);
        assert_eq!(boot.argument("ip"), Some("10.0.0.2/24"));
        assert_eq!(boot.argument("ip6"), Some("x"));
        assert_eq!(boot.argument("route"), Some("a"), "the first of several");
        assert_eq!(boot.all("route").collect::<Vec<_>>(), ["a", "b=c", ""]);
        for none in ["flag", "i", "out", "x"] {
            assert_eq!(boot.argument(none), None, "{none}");
        }
        assert_eq!(boot.memory(), 7);
    }

    #[test]
    fn a_guest_without_arguments_has_none() {
        let boot = Boot::new(" \n".into(), 0);
        assert_eq!((boot.argument("ip"), boot.all("ip").count()), (None, 0));
        assert_eq!(boot.argument(""), None);
    }
}
