//! Messages over a frontend's control socket. A question and its answer are one line of JSON each.

use super::args::key;
use grantway_frontend::{HashState, HashWish, StagingState};
use grantway_netif::ctrl::HashTypes;
use serde::{Deserialize, Serialize};

/// A question to a frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Asks for the state of the hash.
    HashShow,
    /// Sets the hash, or switches it off. The answer comes when the backend has done this or
    /// refused it.
    HashSet(Option<HashSetting>),
    /// Asks for the pages that are staged.
    StagingShow,
    /// Stages more pages. The answer comes when the backend has them, or refuses.
    StagingAdd(StagingSetting),
    /// Takes pages back. The answer comes when the backend has released them, or refuses.
    StagingRemove(StagingSetting),
}

/// An answer of a frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// State of the hash.
    Hash(HashReport),
    /// Staged pages of each queue.
    Staging(Vec<StagingReport>),
    /// Reason why the question is refused, in one line.
    Refused(String),
}

/// Settings of the hash, present or wished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashSetting {
    /// Bits of the protocol's hash types.
    pub types: u32,
    /// The key in hexadecimal.
    pub key: String,
    /// The table from hash to queue.
    pub mapping: Vec<u16>,
}

/// Change of the number of staged pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingSetting {
    /// Number of pages to add to each queue, or to remove from it.
    pub pages: u32,
    /// The only queue to change, or `None` for all queues.
    pub queue: Option<u16>,
}

/// Staged pages of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingReport {
    /// Number of the queue.
    pub queue: u16,
    /// Pages that the queue could have staged.
    pub pages: usize,
    /// Pages that are to be staged.
    pub wished: usize,
    /// Pages that are staged.
    pub staged: usize,
    /// Number of pages that the backend accepts, or `None` before it was asked.
    pub capacity: Option<u32>,
    /// Reason why fewer pages than wished are staged.
    pub refused: Option<String>,
}

impl StagingReport {
    /// Returns the report for a queue's state in its vif.
    pub fn of(state: StagingState) -> Self {
        let StagingState { queue, pages, wished, staged, capacity, refusal } = state;
        let refused = refusal.map(|why| why.to_string());
        Self { queue, pages, wished, staged, capacity, refused }
    }
}

/// State of the hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashReport {
    /// State in words.
    pub state: String,
    /// Queues of the vif.
    pub queues: u16,
    /// Setting that was asked for last.
    pub setting: Option<HashSetting>,
}

impl HashSetting {
    /// Returns the wish for a vif.
    ///
    /// # Errors
    ///
    /// The types or the key are invalid. The text gives the reason in one line.
    pub fn wish(&self) -> Result<HashWish, String> {
        let types = HashTypes::from_bits(self.types);
        let types =
            types.ok_or_else(|| format!("hash types {:#x}, expected bits 0 to 3", self.types))?;
        Ok(HashWish { types, key: key(&self.key)?.0, mapping: self.mapping.clone() })
    }

    /// Returns the setting of a vif's wish.
    pub fn of(wish: &HashWish) -> Self {
        Self {
            types: wish.types.bits(),
            key: super::args::Key(wish.key).to_string(),
            mapping: wish.mapping.clone(),
        }
    }
}

/// Returns the state of a change in words, or `None` while the change is under way.
pub fn words(state: HashState) -> Option<String> {
    Some(match state {
        HashState::Setting => return None,
        HashState::Unset => "not set".into(),
        HashState::Set => "set".into(),
        HashState::Waiting => "waiting until the vif is connected".into(),
        HashState::NoRing => "not set: the backend has no control ring".into(),
        HashState::Refused(why) => format!("refused: {why}"),
    })
}
