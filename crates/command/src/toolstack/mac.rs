//! Ethernet addresses as xl writes them.

use grantway_ports::parse_address;
use std::fmt;
use std::str::FromStr;

/// Xen's own prefix, out of which a vif without an address gets one.
pub const XEN_OUI: [u8; 3] = [0x00, 0x16, 0x3e];

/// The address of one network device: neither zero nor a group's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac([u8; 6]);

/// The reason why a text is not the address of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// Not six pairs of hexadecimal digits.
    #[error(
        "mac={found:?}: expected six pairs of hexadecimal digits separated by colons, such as \
         00:16:3e:00:00:01"
    )]
    Form {
        /// The text.
        found: String,
    },
    /// A group address: the lowest bit of its first byte is set.
    #[error(
        "mac={found}: a multicast address, expected a unicast address; make the first byte \
             even"
    )]
    Multicast {
        /// The text.
        found: String,
    },
    /// All zero.
    #[error(
        "mac={found}: not the address of a device; use one such as 00:16:3e:00:00:01, or remove \
         mac for a random one"
    )]
    Zero {
        /// The text.
        found: String,
    },
}

impl Mac {
    /// Makes an address with Xen's prefix and these last bytes.
    #[must_use]
    pub fn of_xen(last: [u8; 3]) -> Self {
        let [a, b, c] = XEN_OUI;
        let [d, e, f] = last;
        Self([a, b, c, d, e, f])
    }
}

impl From<Mac> for [u8; 6] {
    fn from(mac: Mac) -> Self {
        mac.0
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let found = || text.to_owned();
        let bytes = parse_address(text).ok_or_else(|| MacError::Form { found: found() })?;
        if bytes == [0; 6] {
            return Err(MacError::Zero { found: found() });
        }
        if bytes[0] & 1 != 0 {
            return Err(MacError::Multicast { found: found() });
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        let mac: Mac = "00:16:3E:74:3d:76".parse().unwrap();
        assert_eq!(mac.to_string(), "00:16:3e:74:3d:76");
        for text in [
            "",
            "0:16:3e:0:0:1",
            "00:16:3e:00:00",
            "00:16:3e:00:00:01:02",
            "00-16-3e-00-00-01",
            "00:16:3e:00:00:+1",
            "00:16:3e:00:00:é",
        ] {
            assert!(matches!(text.parse::<Mac>(), Err(MacError::Form { .. })), "{text}");
        }
    }

    #[test]
    fn groups_and_zero_are_refused() {
        for text in ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"] {
            assert!(matches!(text.parse::<Mac>(), Err(MacError::Multicast { .. })), "{text}");
        }
        assert!(matches!("00:00:00:00:00:00".parse::<Mac>(), Err(MacError::Zero { .. })));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(last: [u8; 3]) {
            let mac = Mac::of_xen(last);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
        }

        #[test]
        fn no_text_panics(text in "[0-9a-fA-F:é-]{0,24}") {
            let _ = text.parse::<Mac>();
        }
    }
}
