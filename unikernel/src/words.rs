//! The words of the domain's command line.

use crate::iperf::Wanted;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::FromStr;
use grantway_frontend::Policy;
use grantway_ports::{GeneratorConfig, parse_address};
use grantway_stack::smoltcp::socket::tcp::CongestionControl;
use grantway_stack::smoltcp::wire::{IpAddress, IpEndpoint};
use grantway_stack::{Address, smoltcp};

/// Bytes that a client of iperf sends if no word says how many.
const BYTES: u64 = 64 << 20;
/// Bits per second that a client of iperf sends by UDP if no word says how many; iperf's own.
const RATE: u64 = 1 << 20;

/// The words of a guest, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Words {
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// True if it takes an address, and its gateway, by DHCP.
    pub dhcp: bool,
    /// Gateways to other networks.
    pub gateways: Vec<IpAddress>,
    /// The best buffer policy to use.
    pub policy: Policy,
    /// TCP's congestion control.
    pub congestion: CongestionControl,
    /// True if it keeps a log of the stack's flows.
    pub stack_log: bool,
    /// True if the guest polls for frames and does not sleep.
    pub polls: bool,
    /// Work of the guest with its vif.
    pub task: Task,
    /// Words that are not known.
    pub unknown: Vec<String>,
}

/// Work of a guest, as its words choose it.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// TCP and UDP.
    Serve(Option<Wanted>),
    /// Numbered test frames, without a stack.
    Frames(FramesConfig),
}

/// Test frames that a guest makes and knows.
#[derive(Debug, Clone, PartialEq)]
pub struct FramesConfig {
    /// The frames that it makes. The source is the vif's address if no word names another.
    pub generate: Option<GeneratorConfig>,
    /// The source that a word names.
    pub from: Option<[u8; 6]>,
    /// True if it judges the frames that come.
    pub check: bool,
}

impl Words {
    /// Reads a command line, which is words with spaces between them.
    ///
    /// # Errors
    ///
    /// A word has a value that it cannot have; the text says what was expected.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (mut addresses, mut gateways) = (Vec::new(), Vec::new());
        let (mut dhcp, mut congestion) = (false, CongestionControl::Reno);
        let mut stack_log = false;
        let (mut policy, mut polls, mut iperf) = (Policy::Staging, false, None);
        let (mut size, mut check, mut from, mut unknown) = (None, false, None, Vec::new());
        let mut frames = GeneratorConfig::default();
        for word in line.split_ascii_whitespace() {
            match word.split_once('=') {
                Some(("address", "dhcp")) => dhcp = true,
                Some(("address", text)) => {
                    let address: Address = read(word, text, "an address such as 10.0.0.2/24")?;
                    if !address.address().is_unicast() {
                        return Err(format!("{word}: expected the address of one station"));
                    }
                    addresses.push(address);
                }
                Some(("gateway", text)) => {
                    let gateway: IpAddress = read(word, text, "an address such as 10.0.0.1")?;
                    if !gateway.is_unicast() {
                        return Err(format!("{word}: expected the address of one station"));
                    }
                    gateways.push(gateway);
                }
                Some(("policy", text)) => policy = policy_of(word, text)?,
                Some(("congestion", "reno")) => congestion = CongestionControl::Reno,
                Some(("congestion", "none")) => congestion = CongestionControl::None,
                Some(("congestion", _)) => return Err(format!("{word}: expected reno or none")),
                Some(("wait", "poll")) => polls = true,
                Some(("wait", "sleep")) => polls = false,
                Some(("wait", _)) => return Err(format!("{word}: expected poll or sleep")),
                Some(("iperf", text)) => iperf = Some(wanted(word, text)?),
                Some(("generate", text)) => size = Some(read(word, text, "bytes, such as 64")?),
                Some(("burst", text)) => frames.burst = read(word, text, "a number of frames")?,
                Some(("count", text)) => {
                    frames.count = Some(read(word, text, "a number of frames")?);
                }
                Some(("to", text)) => frames.destination = station(word, text)?,
                Some(("from", text)) => from = Some(station(word, text)?),
                None if word == "check" => check = true,
                None if word == "stack-log" => stack_log = true,
                // The platform reads these itself.
                Some(("events" | "channels", _)) => {}
                _ => unknown.push(word.to_string()),
            }
        }
        if let Some(size) = size {
            frames.size = size;
            frames.check().map_err(|e| e.to_string())?;
        }
        let task = match (size.is_some() || check, iperf) {
            (true, Some(_)) => {
                return Err("iperf, with generate or check: expected one of them".to_string());
            }
            (true, None) => {
                Task::Frames(FramesConfig { generate: size.map(|_| frames), from, check })
            }
            (false, iperf) => Task::Serve(iperf),
        };
        Ok(Self { addresses, dhcp, gateways, policy, congestion, stack_log, polls, task, unknown })
    }
}

/// Reads a value.
fn read<T: FromStr>(word: &str, text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{word}: expected {expected}"))
}

fn station(word: &str, text: &str) -> Result<[u8; 6], String> {
    let expected = || format!("{word}: expected an address such as 00:16:3e:00:00:01");
    parse_address(text).ok_or_else(expected)
}

fn policy_of(word: &str, text: &str) -> Result<Policy, String> {
    if text == "auto" {
        return Ok(Policy::Staging);
    }
    let known = [Policy::Copy, Policy::Persistent, Policy::Staging];
    let found = known.into_iter().find(|policy| policy.as_str() == text);
    found.ok_or_else(|| format!("{word}: expected auto, copy, persistent or staging"))
}

/// Reads `server`, or `client:ADDRESS` and further parts.
fn wanted(word: &str, text: &str) -> Result<Wanted, String> {
    let expected = || {
        format!(
            "{word}: expected server, or client:10.0.0.1 and, as wanted, :port=5001, :bytes=64M, \
             :udp, :rate=1M (IPv6: client:[fd00::1])"
        )
    };
    if text == "server" {
        return Ok(Wanted::Server);
    }
    let rest = text.strip_prefix("client:").ok_or_else(expected)?;
    let (address, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(expected)?,
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    let address: IpAddress = address.parse().map_err(|_| expected())?;
    let (mut port, mut bytes, mut rate, mut udp) = (grantway_iperf2::PORT, BYTES, RATE, false);
    for part in rest.split(':').skip(1) {
        match part.split_once('=') {
            Some(("port", text)) => port = text.parse().map_err(|_| expected())?,
            Some(("bytes", text)) => bytes = amount(text).ok_or_else(expected)?,
            Some(("rate", text)) => rate = amount(text).ok_or_else(expected)?,
            None if part == "udp" => udp = true,
            _ => return Err(expected()),
        }
    }
    if port == 0 || !rest.is_empty() && !rest.starts_with(':') {
        return Err(expected());
    }
    let server = IpEndpoint::new(address, port);
    Ok(Wanted::Client { server, bytes, udp: udp.then_some(rate) })
}

/// Reads a number that may end in K, M or G, of 1024 each. Returns none if it is 0, or no number.
fn amount(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

/// Returns a time by smoltcp's clock.
#[must_use]
pub fn instant(now: core::time::Duration) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(now.as_micros() as i64)
}

#[cfg(test)]
mod tests;
