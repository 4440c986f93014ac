//! Command line of `grantway ctl`.

use clap::{Args, Subcommand, ValueEnum};
use grantway_command::args::{GuestArgs, QUEUES_MAX, within};
use grantway_netif::ctrl::HashTypes;
use grantway_netif::toeplitz::KEY_BYTES;
use std::fmt;

/// `grantway ctl`.
#[derive(Debug, Args)]
#[command(after_help = "\
Sends a command to a running `grantway frontend`, which passes it to its backend
over the control ring. The settings last as long as that frontend runs, also
when its backend is restarted.

Example:
  grantway ctl staging show
  grantway ctl --host /tmp/gw --domain 1 --devid 0 hash show
  grantway ctl --host /tmp/gw --domain 1 --devid 0 hash set --mapping 0,1,1,0")]
pub struct CtlArgs {
    /// Guest that has the vif.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Number of the vif in its domain.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = within::<u32>(0..=65_535))]
    pub devid: u32,
    /// Command to the frontend.
    #[command(subcommand)]
    pub what: CtlWhat,
}

/// Commands to a frontend.
#[derive(Debug, Subcommand)]
pub enum CtlWhat {
    /// Hash that spreads received frames over the queues.
    Hash(HashArgs),
    /// Pages that the backend keeps mapped.
    Staging(StagingArgs),
}

/// `grantway ctl staging`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "\
A frontend with --policy auto or staging stages all pages of its queues when it
connects, or as many as the backend accepts: first small buffers, then receive
pages, then whole pages to send from. Packets in staged pages need no grant
operation. Packets in other pages are grant-copied. Packets continue to flow
while pages are added or removed.

Example:
  grantway ctl --host /tmp/gw --domain 1 staging show
  grantway ctl --host /tmp/gw --domain 1 staging remove 256 --queue 0
  grantway ctl --host /tmp/gw --domain 1 staging add 256 --queue 0")]
pub struct StagingArgs {
    /// Command about staging.
    #[command(subcommand)]
    pub what: StagingWhat,
}

/// Commands about staging.
#[derive(Debug, Subcommand)]
pub enum StagingWhat {
    /// Show the staged pages of each queue, and what the backend refused.
    Show(StagingShowArgs),
    /// Stage more pages.
    Add(StagingSetArgs),
    /// Take staged pages back, starting with the last.
    Remove(StagingSetArgs),
}

/// `grantway ctl staging show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  grantway ctl --host /tmp/gw --domain 1 staging show --json")]
pub struct StagingShowArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway ctl staging add` and `remove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  grantway ctl --host /tmp/gw --domain 1 staging remove 272
  grantway ctl --host /tmp/gw --domain 1 staging add 16 --queue 1")]
pub struct StagingSetArgs {
    /// Pages per queue. A queue with fewer pages uses all of them.
    #[arg(value_name = "PAGES", allow_negative_numbers = true, value_parser = within::<u32>(1..=65_536))]
    pub pages: u32,
    /// Change only this queue, counted from 0.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u16>(0..=QUEUES_MAX - 1))]
    pub queue: Option<u16>,
}

/// `grantway ctl hash`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "\
Example:
  grantway ctl --host /tmp/gw --domain 1 hash show --json
  grantway ctl --host /tmp/gw --domain 1 hash set --types ipv4-tcp,ipv6-tcp")]
pub struct HashArgs {
    /// Command about the hash.
    #[command(subcommand)]
    pub what: HashWhat,
}

/// Commands about the hash.
#[derive(Debug, Subcommand)]
pub enum HashWhat {
    /// Show the settings, and whether the backend accepted them.
    Show(HashShowArgs),
    /// Replace all settings.
    Set(HashSetArgs),
}

/// `grantway ctl hash show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  grantway ctl --host /tmp/gw --domain 1 hash show")]
pub struct HashShowArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `grantway ctl hash set`.
#[derive(Debug, Args)]
#[command(after_help = "\
The hash of a frame, modulo the length of --mapping, selects an entry of
--mapping, and the entry is the queue of the frame. The most specific type of
--types that matches the frame is used. A frame that no type matches has hash 0.
A sender that knows the key can direct all its frames to one queue; without
--key the key is therefore random.

Example:
  grantway ctl --host /tmp/gw --domain 1 hash set --mapping 0,1,2,3
  grantway ctl --host /tmp/gw --domain 1 hash set --types ipv4 \\
      --key 6d5a56da255b0ec2
  grantway ctl --host /tmp/gw --domain 1 hash set --algorithm none")]
pub struct HashSetArgs {
    /// Hash algorithm. With `none` the backend chooses the queues.
    #[arg(long, value_enum, default_value_t = AlgorithmArg::Toeplitz)]
    pub algorithm: AlgorithmArg,
    /// Hashed fields, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_values_t = TypeArg::ALL)]
    pub types: Vec<TypeArg>,
    /// Up to 40 bytes in hexadecimal; missing bytes are zero. Not with --algorithm none.
    #[arg(long, value_name = "HEX", value_parser = key)]
    pub key: Option<Key>,
    /// Queues, separated by commas. Default: the queue is the hash modulo the number of queues. Not
    /// with --algorithm none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<u16>(0..=QUEUES_MAX - 1))]
    pub mapping: Vec<u16>,
}

/// Algorithms of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmArg {
    /// Toeplitz, as for RSS.
    Toeplitz,
    /// No hash.
    None,
}

/// Fields of a frame that can be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TypeArg {
    /// IPv4 addresses.
    Ipv4,
    /// IPv4 addresses and TCP ports.
    Ipv4Tcp,
    /// IPv6 addresses.
    Ipv6,
    /// IPv6 addresses and TCP ports.
    Ipv6Tcp,
}

impl TypeArg {
    /// All types.
    pub const ALL: [Self; 4] = [Self::Ipv4, Self::Ipv4Tcp, Self::Ipv6, Self::Ipv6Tcp];

    /// Returns the protocol's bit of the type.
    pub fn bit(self) -> u32 {
        match self {
            Self::Ipv4 => HashTypes::IPV4,
            Self::Ipv4Tcp => HashTypes::IPV4_TCP,
            Self::Ipv6 => HashTypes::IPV6,
            Self::Ipv6Tcp => HashTypes::IPV6_TCP,
        }
        .bits()
    }

    /// Returns the name of the type on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv4Tcp => "ipv4-tcp",
            Self::Ipv6 => "ipv6",
            Self::Ipv6Tcp => "ipv6-tcp",
        }
    }
}

impl fmt::Display for TypeArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A key of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; KEY_BYTES]);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads a key of pairs of hexadecimal digits. Missing bytes at the end are zero.
pub fn key(text: &str) -> Result<Key, String> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let mut key = [0; KEY_BYTES];
    match digits {
        Some(digits)
            if !digits.is_empty()
                && digits.len().is_multiple_of(2)
                && digits.len() <= 2 * KEY_BYTES =>
        {
            for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = pair[0] << 4 | pair[1];
            }
            Ok(Key(key))
        }
        _ => Err(format!("expected 1 to {KEY_BYTES} bytes of two hexadecimal digits each")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_shown() {
        let mut bytes = [0; KEY_BYTES];
        bytes[..2].copy_from_slice(&[0x6d, 0x5a]);
        assert_eq!(key("6D5a"), Ok(Key(bytes)));
        let shown = Key(bytes).to_string();
        assert_eq!((shown.len(), key(&shown)), (80, Ok(Key(bytes))));
        for text in ["", "6", "6d5", "0x6d", "6d 5a", &"00".repeat(41), "6dé0"] {
            assert!(key(text).is_err(), "{text}");
        }
    }
}
