//! Names of ports on a command line.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::{
    address::{parse_address, written},
    checker::{CheckPort, Checker},
    clock::{monotonic, wall},
    echo::Echo,
    frames::{GeneratorConfig, GeneratorError},
    generator::Generator,
    member::Member,
    null::Null,
    packet::Packet,
    pcap::{CaptureFormat, PcapPort},
    port::{Port, PortError},
    quantity::{number, packets_per_second},
    tap::{Tap, TapConfig, TapError, check_name},
    vhost::VhostTap,
};

const SYNTAX: &str = "tap[:NAME], vhost[:NAME], packet:NAME, bridge, null, echo, check[:from=MAC], \
     generator[:size=N,rate=N,burst=N,flows=N,count=N,window=N,timed=N,to=MAC,from=MAC], \
     pcap:in=FILE and/or out=FILE";

/// A port as written on a command line.
///
/// ```
/// use grantway_ports::PortSpec;
///
/// let spec: PortSpec = "generator:size=64,rate=1M,flows=4".parse()?;
/// let PortSpec::Generator(config) = spec else { unreachable!() };
/// assert_eq!((config.size, config.rate, config.flows), (64, 1_000_000, 4));
/// # Ok::<(), grantway_ports::SpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortSpec {
    /// `tap` or `tap:NAME`.
    Tap {
        /// Name of the interface; `None` lets the kernel choose.
        name: Option<String>,
    },
    /// `vhost` or `vhost:NAME`: a TAP whose frames a thread of the kernel moves.
    Vhost {
        /// Name of the interface; `None` lets the kernel choose.
        name: Option<String>,
    },
    /// `packet:NAME`: the wire behind an interface that exists.
    Packet {
        /// Name of the interface.
        name: String,
    },
    /// `bridge`: the backend's own bridge.
    Bridge,
    /// `null`.
    Null,
    /// `echo`.
    Echo,
    /// `generator` or `generator:KEY=VALUE,...`. Numbers may end in k, M or G: powers of 1000.
    Generator(GeneratorConfig),
    /// `check` or `check:from=MAC`.
    Check {
        /// Address for which the port announces itself to bridges.
        from: Option<[u8; 6]>,
    },
    /// `pcap:in=FILE,out=FILE`, with one of the two or both. A file name cannot contain a comma.
    Pcap {
        /// The capture to play.
        input: Option<PathBuf>,
        /// The capture to write.
        output: Option<PathBuf>,
    },
}

/// Error of a port spec.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The kind of port is unknown.
    #[error("port {found:?}: no such kind; expected one of {SYNTAX}")]
    Kind {
        /// Text before the colon.
        found: String,
    },
    /// The kind takes nothing after a colon.
    #[error("port {kind:?}: {found:?} after the colon, expected nothing; write just `{kind}`")]
    Surplus {
        /// The kind.
        kind: &'static str,
        /// Text after the colon.
        found: String,
    },
    /// A part is not of the form `KEY=VALUE`.
    #[error("port {kind:?}: {found:?}, expected KEY=VALUE with a KEY of {expected}")]
    Pair {
        /// The kind.
        kind: &'static str,
        /// The part.
        found: String,
        /// Keys of this kind.
        expected: &'static str,
    },
    /// The kind does not have this key.
    #[error("port {kind:?}: no key {found:?}; expected one of {expected}")]
    Key {
        /// The kind.
        kind: &'static str,
        /// The key.
        found: String,
        /// Keys of this kind.
        expected: &'static str,
    },
    /// A key is given twice.
    #[error("port {kind:?}: key {found:?} is given twice; keep one")]
    Twice {
        /// The kind.
        kind: &'static str,
        /// The key.
        found: String,
    },
    /// A value is not a number, or is too large.
    #[error(
        "port {kind:?}: {key}={found:?}, expected a whole number such as 64, 10k or 1M; a rate may end in pps"
    )]
    Number {
        /// The kind.
        kind: &'static str,
        /// The key.
        key: String,
        /// The value.
        found: String,
    },
    /// A value is not an address, or not an address of the expected kind.
    #[error("port {kind:?}: {key}={found:?}, expected {expected}, such as 00:16:3e:00:00:01")]
    Address {
        /// The kind.
        kind: &'static str,
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// Kind of address that was expected.
        expected: &'static str,
    },
    /// A packet port has no interface.
    #[error(
        "port \"packet\": no interface, expected its name; write packet:NAME, such as packet:eth0"
    )]
    NoInterface,
    /// A pcap port has no file.
    #[error(
        "port \"pcap\": no file; write pcap:in=FILE to play one, pcap:out=FILE to write one, or both"
    )]
    NoFile,
    /// The extension of an output file is not that of a capture format.
    #[error("port \"pcap\": out={}: the extension says no format; name the file .pcap or .pcapng", .0.display())]
    Extension(PathBuf),
    /// A value of a generator is out of bounds.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    /// The name of an interface is not allowed.
    #[error(transparent)]
    Tap(#[from] TapError),
}

impl PortSpec {
    /// Opens the port. The link of a TAP is up, and no offloads are set. Captures use the wall
    /// clock, generators and checkers the monotonic clock.
    ///
    /// # Errors
    /// The TAP or the file cannot be opened; each error names its remedy.
    pub fn open(&self) -> Result<Box<dyn Port>, PortError> {
        Ok(match self {
            PortSpec::Tap { name } => Box::new(tap(name)?),
            PortSpec::Vhost { name } => Box::new(VhostTap::start(tap(name)?)?),
            // A caller that wants to find the interface again opens the port itself.
            PortSpec::Packet { name } => Box::new(Packet::open(name)?.0),
            PortSpec::Bridge => Box::new(Member::new()),
            PortSpec::Null => Box::new(Null::new()),
            PortSpec::Echo => Box::new(Echo::new()),
            PortSpec::Check { from } => {
                let checker = Checker::default().timed_by(monotonic());
                Box::new(match from {
                    None => CheckPort::new(checker),
                    Some(address) => CheckPort::at(checker, *address, monotonic()),
                })
            }
            PortSpec::Generator(config) => {
                let generator = Generator::new(config.clone(), monotonic());
                Box::new(generator.map_err(|e| PortError::Io {
                    port: "generator".to_owned(),
                    operation: "setting it up",
                    source: std::io::Error::other(e),
                })?)
            }
            PortSpec::Pcap { input, output } => {
                Box::new(PcapPort::open(input.as_deref(), output.as_deref(), wall())?)
            }
        })
    }
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let name = || Ok(rest.map(check_name).transpose()?.map(str::to_owned));
        match kind {
            "tap" => name().map(|name| PortSpec::Tap { name }),
            "vhost" => name().map(|name| PortSpec::Vhost { name }),
            "packet" => {
                let name = check_name(rest.ok_or(SpecError::NoInterface)?)?.to_owned();
                Ok(PortSpec::Packet { name })
            }
            "bridge" => bare("bridge", rest).map(|()| PortSpec::Bridge),
            "null" => bare("null", rest).map(|()| PortSpec::Null),
            "echo" => bare("echo", rest).map(|()| PortSpec::Echo),
            "check" => check(rest),
            "generator" => generator(rest.unwrap_or("")),
            "pcap" => pcap(rest.unwrap_or("")),
            _ => Err(SpecError::Kind { found: kind.to_owned() }),
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortSpec::Tap { name: None } => f.write_str("tap"),
            PortSpec::Tap { name: Some(name) } => write!(f, "tap:{name}"),
            PortSpec::Vhost { name: None } => f.write_str("vhost"),
            PortSpec::Vhost { name: Some(name) } => write!(f, "vhost:{name}"),
            PortSpec::Packet { name } => write!(f, "packet:{name}"),
            PortSpec::Bridge => f.write_str("bridge"),
            PortSpec::Null => f.write_str("null"),
            PortSpec::Echo => f.write_str("echo"),
            PortSpec::Check { from: None } => f.write_str("check"),
            PortSpec::Check { from: Some(from) } => write!(f, "check:from={}", written(*from)),
            PortSpec::Generator(c) => {
                let (size, rate, burst, flows) = (c.size, c.rate, c.burst, c.flows);
                // Size, rate, burst and flows are always written; all else only if it is not the
                // default.
                write!(f, "generator:size={size},rate={rate},burst={burst},flows={flows}")?;
                c.count.map_or(Ok(()), |count| write!(f, ",count={count}"))?;
                for (key, n) in [("window", c.window), ("timed", c.timed)] {
                    if n > 0 {
                        write!(f, ",{key}={n}")?;
                    }
                }
                let usual = GeneratorConfig::default();
                for (key, address, usual) in
                    [("to", c.destination, usual.destination), ("from", c.source, usual.source)]
                {
                    if address != usual {
                        write!(f, ",{key}={}", written(address))?;
                    }
                }
                Ok(())
            }
            PortSpec::Pcap { input, output } => {
                let side = |key: &str, path: &PathBuf| format!("{key}={}", path.display());
                let input = input.as_ref().map(|p| side("in", p));
                let output = output.as_ref().map(|p| side("out", p));
                let sides: Vec<_> = input.into_iter().chain(output).collect();
                write!(f, "pcap:{}", sides.join(","))
            }
        }
    }
}

fn tap(name: &Option<String>) -> Result<Tap, TapError> {
    Tap::open(&TapConfig { name: name.clone(), up: true, ..TapConfig::default() })
}

fn bare(kind: &'static str, rest: Option<&str>) -> Result<(), SpecError> {
    match rest {
        None => Ok(()),
        Some(found) => Err(SpecError::Surplus { kind, found: found.to_owned() }),
    }
}

/// Splits `KEY=VALUE,...`. Each key may be given once.
fn pairs<'a>(
    kind: &'static str,
    expected: &'static str,
    text: &'a str,
) -> Result<Vec<(&'a str, &'a str)>, SpecError> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let pair = part.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
        let Some((key, value)) = pair else {
            return Err(SpecError::Pair { kind, found: part.to_owned(), expected });
        };
        if !expected.split(", ").any(|e| e == key) {
            return Err(SpecError::Key { kind, found: key.to_owned(), expected });
        }
        if found.iter().any(|(k, _)| *k == key) {
            return Err(SpecError::Twice { kind, found: key.to_owned() });
        }
        found.push((key, value));
    }
    Ok(found)
}

fn generator(text: &str) -> Result<PortSpec, SpecError> {
    let mut config = GeneratorConfig::default();
    for (key, value) in
        pairs("generator", "size, rate, burst, flows, count, window, timed, to, from", text)?
    {
        let refuse = || SpecError::Number {
            kind: "generator",
            key: key.to_owned(),
            found: value.to_owned(),
        };
        let whole = || number(value).ok_or_else(refuse);
        let narrow = || u32::try_from(whole()?).map_err(|_| refuse());
        match key {
            "size" => config.size = narrow()? as usize,
            "rate" => config.rate = packets_per_second(value).ok_or_else(refuse)?,
            "burst" => config.burst = narrow()?,
            "flows" => config.flows = narrow()?,
            "window" => config.window = narrow()?,
            "timed" => config.timed = narrow()?,
            "to" => config.destination = address("generator", key, value, "an address")?,
            "from" => config.source = own_address("generator", key, value)?,
            _ => config.count = Some(whole()?),
        }
    }
    config.check()?;
    Ok(PortSpec::Generator(config))
}

fn check(rest: Option<&str>) -> Result<PortSpec, SpecError> {
    let Some(text) = rest else { return Ok(PortSpec::Check { from: None }) };
    let none = || SpecError::Pair { kind: "check", found: text.to_owned(), expected: "from" };
    let found = pairs("check", "from", text)?;
    let &(key, value) = found.first().ok_or_else(none)?;
    Ok(PortSpec::Check { from: Some(own_address("check", key, value)?) })
}

fn address(
    kind: &'static str,
    key: &str,
    value: &str,
    expected: &'static str,
) -> Result<[u8; 6], SpecError> {
    parse_address(value).ok_or_else(|| SpecError::Address {
        kind,
        key: key.to_owned(),
        found: value.to_owned(),
        expected,
    })
}

/// Reads an address that frames may come from: neither multicast nor zero.
fn own_address(kind: &'static str, key: &str, value: &str) -> Result<[u8; 6], SpecError> {
    let expected = "one device's own address";
    let found = address(kind, key, value, expected)?;
    if found == [0; 6] || found[0] & 1 == 1 {
        let (key, found) = (key.to_owned(), value.to_owned());
        return Err(SpecError::Address { kind, key, found, expected });
    }
    Ok(found)
}

fn pcap(text: &str) -> Result<PortSpec, SpecError> {
    let (mut input, mut output) = (None, None);
    for (key, value) in pairs("pcap", "in, out", text)? {
        let path = PathBuf::from(value);
        if key == "in" {
            input = Some(path);
        } else if CaptureFormat::from_extension(&path).is_some() {
            output = Some(path);
        } else {
            return Err(SpecError::Extension(path));
        }
    }
    if input.is_none() && output.is_none() {
        return Err(SpecError::NoFile);
    }
    Ok(PortSpec::Pcap { input, output })
}

#[cfg(test)]
mod tests;
