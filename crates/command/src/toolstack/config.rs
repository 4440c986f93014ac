//! xl's vif string: `mac=00:16:3e:00:00:01,bridge=xenbr0`.
//!
//! The rules are those of xl-network-configuration(5). Pairs of a key and a value have commas
//! between them, blanks before a key are ignored, every key is optional, and the empty string is
//! legal. This reader is stricter than xl in two points: it refuses a key that is given twice, and
//! a zero or multicast address. It knows one key more, `checksum`.

use super::mac::{Mac, MacError};
use super::rate::{Rate, RateError};
use grantway_backend::Checksums;
use grantway_hypervisor::DomId;
use grantway_ports::TapError;
use grantway_ports::tap::check_name;
use std::str::FromStr;

/// The keys that are understood.
const KEYS: &str = "mac, vifname, bridge, script, rate, mtu, devid, backend, type, \
     checksum, trusted, untrusted";

/// Smallest MTU: every link has to support it for IPv4 (RFC 791).
const MTU_MIN: u16 = 68;

/// Folder of a script that is named without a folder.
const SCRIPTS: &str = "/etc/xen/scripts";

/// A vif, as its operator wants it. A field that is `None` is left to others.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct VifConfig {
    /// The guest's address.
    pub mac: Option<Mac>,
    /// The name of the backend's network device.
    pub vifname: Option<String>,
    /// The bridge that the device joins.
    pub bridge: Option<String>,
    /// The hotplug script, an absolute path.
    pub script: Option<String>,
    /// The limit on what the guest transmits.
    pub rate: Option<Rate>,
    /// The largest IP packet in bytes, 68 to 65,535.
    pub mtu: Option<u16>,
    /// The vif's number in its domain.
    pub devid: Option<u16>,
    /// The domain of the backend.
    pub backend: Option<DomId>,
    /// The checksums of the vif's frames.
    pub checksum: Option<Checksums>,
    /// True if the guest is to trust its backend.
    pub trusted: Option<bool>,
}

/// The reason why a text is not a vif string.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A part that is no `KEY=VALUE`, and no word that stands alone.
    #[error("vif {found:?}: expected KEY=VALUE or a word of {KEYS}")]
    Pair {
        /// The part.
        found: String,
    },
    /// An unknown key.
    #[error("unknown vif key {found:?}; expected one of {KEYS}")]
    Key {
        /// The key.
        found: String,
    },
    /// A key that xl knows and that has no meaning here.
    #[error("vif key {found:?} {why}; remove it")]
    Unsupported {
        /// The key or the pair.
        found: String,
        /// The reason.
        why: &'static str,
    },
    /// A key given twice.
    #[error("vif key {found:?} is given twice; remove one")]
    Twice {
        /// The key.
        found: &'static str,
    },
    /// A value that is no number, or a number out of bounds.
    #[error("{key}={found:?}: expected a whole number from {least} to {most}")]
    Number {
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// Smallest number.
        least: u16,
        /// Largest number.
        most: u16,
    },
    /// A name that no network device can have.
    #[error("{key}: {source}")]
    Name {
        /// The key.
        key: &'static str,
        /// The fault of the name.
        source: TapError,
    },
    /// A script's path that cannot be valid.
    #[error("script={found:?}: expected the path of a script, without control characters")]
    Script {
        /// The path.
        found: String,
    },
    /// A value that is no word for checksums.
    #[error("checksum={found:?}: expected full or offload")]
    Checksum {
        /// The value.
        found: String,
    },
    /// A value that is no address.
    #[error(transparent)]
    Mac(#[from] MacError),
    /// A value that is no rate.
    #[error(transparent)]
    Rate(#[from] RateError),
}

impl FromStr for VifConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut vif = Self::default();
        let mut kind = None;
        for part in text.split(',').map(|p| p.trim_start_matches([' ', '\t'])) {
            if part.is_empty() {
                continue;
            }
            let Some((key, value)) = part.split_once('=') else {
                let trusted = match part {
                    "trusted" => true,
                    "untrusted" => false,
                    _ => return Err(ConfigError::Pair { found: part.to_owned() }),
                };
                once("trusted", &mut vif.trusted, trusted)?;
                continue;
            };
            match key {
                "mac" => once("mac", &mut vif.mac, value.parse()?)?,
                "vifname" => once("vifname", &mut vif.vifname, device("vifname", value)?)?,
                "bridge" => once("bridge", &mut vif.bridge, device("bridge", value)?)?,
                "script" => once("script", &mut vif.script, script(value)?)?,
                "rate" => once("rate", &mut vif.rate, value.parse()?)?,
                "mtu" => once("mtu", &mut vif.mtu, number("mtu", value, MTU_MIN, u16::MAX)?)?,
                "devid" => once("devid", &mut vif.devid, number("devid", value, 0, u16::MAX)?)?,
                "backend" => {
                    let most = DomId::FIRST_RESERVED - 1;
                    let domain = DomId(number("backend", value, 0, most)?);
                    once("backend", &mut vif.backend, domain)?;
                }
                "checksum" => once("checksum", &mut vif.checksum, checksum(value)?)?,
                "type" if value == "vif" => once("type", &mut kind, ())?,
                _ => return Err(unsupported(part, key)),
            }
        }
        Ok(vif)
    }
}

fn once<T>(key: &'static str, field: &mut Option<T>, value: T) -> Result<(), ConfigError> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(ConfigError::Twice { found: key }),
    }
}

fn number(key: &'static str, text: &str, least: u16, most: u16) -> Result<u16, ConfigError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = text.parse().ok().filter(|n| digits && (least..=most).contains(n));
    value.ok_or_else(|| ConfigError::Number { key, found: text.to_owned(), least, most })
}

fn device(key: &'static str, name: &str) -> Result<String, ConfigError> {
    let name = check_name(name).map_err(|source| ConfigError::Name { key, source })?;
    Ok(name.to_owned())
}

fn checksum(word: &str) -> Result<Checksums, ConfigError> {
    word.parse().map_err(|()| ConfigError::Checksum { found: word.to_owned() })
}

fn script(path: &str) -> Result<String, ConfigError> {
    if path.is_empty() || path.chars().any(char::is_control) {
        return Err(ConfigError::Script { found: path.to_owned() });
    }
    Ok(if path.starts_with('/') { path.to_owned() } else { format!("{SCRIPTS}/{path}") })
}

fn unsupported(part: &str, key: &str) -> ConfigError {
    let why = match key {
        "type" => "selects an emulated device; only type=vif (paravirtual) is supported",
        "model" => "selects an emulated device; only paravirtual devices are supported",
        "ip" | "gatewaydev" | "netdev" => {
            "is for routing scripts, which the embedded host does \
                                           not run"
        }
        "backendtype" => "selects a backend; the embedded host has only Grantway's",
        _ => return ConfigError::Key { found: key.to_owned() },
    };
    ConfigError::Unsupported { found: part.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<VifConfig, ConfigError> {
        text.parse()
    }

    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key() {
        let vif = parse(
            "mac=00:16:3e:00:00:01,vifname=gwb1, bridge=br0,script=vif-bridge,\
             rate=1MB/s@20ms,mtu=9000,devid=3,backend=0,type=vif,checksum=full, untrusted",
        )
        .unwrap();
        assert_eq!(vif.mac.unwrap().to_string(), "00:16:3e:00:00:01");
        assert_eq!(vif.vifname.as_deref(), Some("gwb1"));
        assert_eq!(vif.bridge.as_deref(), Some("br0"));
        assert_eq!(vif.script.as_deref(), Some("/etc/xen/scripts/vif-bridge"));
        assert_eq!(vif.rate, Some(Rate { bytes: 20_000, interval: 20_000 }));
        assert_eq!((vif.mtu, vif.devid), (Some(9000), Some(3)));
        assert_eq!(vif.checksum, Some(Checksums::Full));
        assert_eq!(vif.backend, Some(DomId(0)));
        assert_eq!((vif.trusted, parse("trusted").unwrap().trusted), (Some(false), Some(true)));
    }

    #[test]
    fn nothing_is_a_vif_too() {
        assert_eq!(parse("").unwrap(), VifConfig::default());
        assert_eq!(parse(" ,,").unwrap(), VifConfig::default());
        assert_eq!(parse("script=/opt/up").unwrap().script.as_deref(), Some("/opt/up"));
    }

    #[test]
    fn unknown_keys_are_told_the_known_ones() {
        let told = refusal("max=00:16:3e:00:00:01");
        assert!(told.contains("\"max\"") && told.contains("mac, vifname, bridge"), "{told}");
        assert!(refusal("mac").contains("expected KEY=VALUE"));
        assert!(refusal("MAC=00:16:3e:00:00:01").contains("\"MAC\""));
    }

    #[test]
    fn emulated_devices_are_refused_with_words() {
        for text in ["model=e1000", "type=ioemu", "ip=10.0.0.1", "gatewaydev=eth0"] {
            let told = refusal(text);
            assert!(told.contains(text) && told.ends_with("remove it"), "{told}");
        }
    }

    #[test]
    fn twice_is_refused() {
        for text in [
            "devid=1,devid=1",
            "type=vif,type=vif",
            "bridge=a,mtu=99,bridge=a",
            "checksum=full,checksum=offload",
            "trusted,untrusted",
        ] {
            assert!(matches!(parse(text), Err(ConfigError::Twice { .. })), "{text}");
        }
    }

    #[test]
    fn bounds() {
        for text in ["mtu=68", "mtu=65535", "devid=0", "devid=65535", "backend=32751"] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for text in
            ["mtu=67", "mtu=65536", "mtu=", "mtu=+99", "devid=-1", "devid=65536", "backend=32752"]
        {
            assert!(matches!(parse(text), Err(ConfigError::Number { .. })), "{text}");
        }
    }

    #[test]
    fn names_are_those_of_network_devices() {
        assert!(parse("vifname=fifteen-bytes-x").is_ok());
        for text in ["vifname=sixteen-bytes-xy", "vifname=", "vifname=a/b", "bridge=a b"] {
            assert!(matches!(parse(text), Err(ConfigError::Name { .. })), "{text}");
        }
    }

    #[test]
    fn values_keep_their_own_words() {
        assert!(refusal("mac=01:00:00:00:00:00").contains("multicast"));
        assert!(refusal("rate=fast").contains("10Mb/s"));
        assert!(refusal("script=").contains("path of a script"));
        assert!(refusal("checksum=Full").contains("full or offload"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = parse(&text);
        }

        #[test]
        fn nothing_that_looks_like_a_vif_panics(
            parts in proptest::collection::vec(
                ("(mac|vifname|bridge|script|rate|mtu|devid|backend|checksum|type|model|é)?", ".{0,20}"),
                0..6,
            ),
        ) {
            let parts: Vec<_> = parts.iter().map(|(key, value)| format!("{key}={value}")).collect();
            if let Err(error) = parse(&parts.join(",")) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
