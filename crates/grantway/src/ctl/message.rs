//! What is said over a frontend's control socket: a question in one line of
//! JSON, and an answer in one.

use super::args::key;
use grantway_frontend::{HashState, HashWish, StagingState};
use grantway_netif::ctrl::HashTypes;
use serde::{Deserialize, Serialize};

/// What a frontend is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// How the hash stands.
    HashShow,
    /// Set the hash, or switch it off; answered once the backend has it.
    HashSet(Option<HashSetting>),
    /// What is staged.
    StagingShow,
    /// Stage more pages; answered once the backend has them, or refuses.
    StagingAdd(StagingSetting),
    /// Take pages back; answered likewise.
    StagingRemove(StagingSetting),
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// How the hash stands.
    Hash(HashReport),
    /// What is staged of each queue.
    Staging(Vec<StagingReport>),
    /// Why it cannot be, in one line.
    Refused(String),
}

/// The hash, as it is set or to be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashSetting {
    /// Bits of the protocol's hash types.
    pub types: u32,
    /// The key in hexadecimal.
    pub key: String,
    /// The table from hash to queue.
    pub mapping: Vec<u16>,
}

/// What is to change about staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingSetting {
    /// Pages more, or fewer, of each queue.
    pub pages: u32,
    /// Of this queue only.
    pub queue: Option<u16>,
}

/// What is staged of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingReport {
    /// Which queue.
    pub queue: u16,
    /// Pages that it could have staged.
    pub pages: usize,
    /// Pages that it is to have staged.
    pub wished: usize,
    /// Pages that are staged.
    pub staged: usize,
    /// Pages that the backend takes, once it was asked.
    pub capacity: Option<u32>,
    /// Why it is not as it is wished.
    pub refused: Option<String>,
}

impl StagingReport {
    /// What a vif says of a queue.
    pub fn of(state: StagingState) -> Self {
        let StagingState { queue, pages, wished, staged, capacity, refusal } = state;
        let refused = refusal.map(|why| why.to_string());
        Self { queue, pages, wished, staged, capacity, refused }
    }
}

/// How the hash stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashReport {
    /// In words.
    pub state: String,
    /// Queues of the vif.
    pub queues: u16,
    /// What was asked for last.
    pub setting: Option<HashSetting>,
}

impl HashSetting {
    /// What a vif is told.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in one line.
    pub fn wish(&self) -> Result<HashWish, String> {
        let types = HashTypes::from_bits(self.types);
        let types =
            types.ok_or_else(|| format!("hash types {:#x}, expected bits 0 to 3", self.types))?;
        Ok(HashWish { types, key: key(&self.key)?.0, mapping: self.mapping.clone() })
    }

    /// What a vif was told.
    pub fn of(wish: &HashWish) -> Self {
        Self {
            types: wish.types.bits(),
            key: super::args::Key(wish.key).to_string(),
            mapping: wish.mapping.clone(),
        }
    }
}

/// How a change stands, in words; none while it is under way.
pub fn words(state: HashState) -> Option<String> {
    Some(match state {
        HashState::Setting => return None,
        HashState::Unset => "not set".into(),
        HashState::Set => "set".into(),
        HashState::Waiting => "waiting until the vif is connected".into(),
        HashState::NoRing => "not set, the backend has no control ring".into(),
        HashState::Refused(why) => format!("refused: {why}"),
    })
}
