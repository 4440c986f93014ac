//! The frontend's end of its control socket. No call waits. A silent client delays no other: only a
//! few may connect, and a further client replaces the oldest.

use super::message::{
    Answer, HashReport, HashSetting, Question, StagingReport, StagingSetting, words,
};
use grantway_command::control::take_place;
use grantway_frontend::{HashState, Runner, StagingState, Vif, VifError, VifStatus};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Most clients that may be connected.
const CLIENTS: usize = 8;
/// Most bytes of a question: enough for a table of a thousand queues and a key.
const QUESTION: usize = 8192;

/// A client and the bytes that it sent.
struct Client {
    stream: UnixStream,
    said: Vec<u8>,
    /// Change under way for which the client waits.
    waits: Option<Change>,
}

/// Change that a client asked for.
#[derive(Clone, Copy)]
enum Change {
    Hash,
    Staging,
}

/// The listening socket and its clients. Dropping it removes the socket's file.
pub struct CtlSocket {
    listener: UnixListener,
    path: PathBuf,
    clients: VecDeque<Client>,
}

impl CtlSocket {
    /// Listens at `path`, in place of a dead process's socket.
    ///
    /// # Errors
    ///
    /// A running process listens there, or the folder cannot be written.
    pub fn bind(path: &Path) -> std::io::Result<Self> {
        let listener = take_place(path)?;
        Ok(Self { listener, path: path.to_owned(), clients: VecDeque::new() })
    }

    /// Returns descriptors, of which one is readable when a client connects or asks.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().filter(|client| client.waits.is_none());
        std::iter::once(self.listener.as_fd()).chain(clients.map(|client| client.stream.as_fd()))
    }

    /// Accepts clients and reads their questions. Answers each client that can be answered now.
    ///
    /// # Errors
    ///
    /// The platform behind the vif is gone.
    pub fn serve<R: Runner>(&mut self, vif: &mut Vif<R>) -> Result<(), VifError> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() == CLIENTS {
                self.clients.pop_front();
            }
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push_back(Client { stream, said: Vec::new(), waits: None });
            }
        }
        for mut client in std::mem::take(&mut self.clients) {
            let answer = match client.waits {
                Some(Change::Hash) => answer_of(vif),
                Some(Change::Staging) => staging_answer(vif),
                None => match client.hear() {
                    Heard::Nothing => None,
                    Heard::End => continue,
                    Heard::Refused(why) => Some(Answer::Refused(why)),
                    Heard::Question(question) => {
                        client.waits = Some(question.change());
                        obey(vif, question)?
                    }
                },
            };
            match answer {
                Some(answer) => client.tell(&answer),
                None => self.clients.push_back(client),
            }
        }
        Ok(())
    }
}

impl Drop for CtlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Result of reading from a client.
enum Heard {
    /// A part of the question is missing.
    Nothing,
    /// The client is gone.
    End,
    Question(Question),
    Refused(String),
}

impl Client {
    fn hear(&mut self) -> Heard {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Heard::End,
                Ok(read) => self.said.extend_from_slice(&buffer[..read]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Heard::End,
            }
            if let Some(end) = self.said.iter().position(|&byte| byte == b'\n') {
                return match serde_json::from_slice(&self.said[..end]) {
                    Ok(question) => Heard::Question(question),
                    Err(e) => Heard::Refused(format!("invalid request: {e}")),
                };
            }
            if self.said.len() > QUESTION {
                return Heard::Refused(format!("request longer than {QUESTION} bytes"));
            }
        }
    }

    fn tell(&mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_string(answer) {
            line.push('\n');
            // An answer is far below a socket's buffer. A client that cannot be written to at once
            // gets none.
            let _ = self.stream.write_all(line.as_bytes());
        }
    }
}

/// Carries out a question. Returns the answer, if there is one already.
fn obey<R: Runner>(vif: &mut Vif<R>, question: Question) -> Result<Option<Answer>, VifError> {
    match question {
        Question::HashShow => Ok(Some(Answer::Hash(report(vif)))),
        Question::HashSet(setting) => {
            match setting.as_ref().map(HashSetting::wish).transpose() {
                Ok(wish) => vif.set_hash(wish)?,
                Err(why) => return Ok(Some(Answer::Refused(why))),
            }
            Ok(answer_of(vif))
        }
        Question::StagingShow => Ok(Some(shown(vif).unwrap_or_else(Answer::Refused))),
        Question::StagingAdd(setting) => stage(vif, setting, usize::saturating_add),
        Question::StagingRemove(setting) => stage(vif, setting, usize::saturating_sub),
    }
}

impl Question {
    /// Returns the change that the question waits for.
    fn change(&self) -> Change {
        match self {
            Self::HashShow | Self::HashSet(_) => Change::Hash,
            Self::StagingShow | Self::StagingAdd(_) | Self::StagingRemove(_) => Change::Staging,
        }
    }
}

/// Changes the number of pages that are to be staged. Returns the answer, if there is one already.
fn stage<R: Runner>(
    vif: &mut Vif<R>,
    setting: StagingSetting,
    change: fn(usize, usize) -> usize,
) -> Result<Option<Answer>, VifError> {
    let states = match staging(vif) {
        Ok(states) => states,
        Err(why) => return Ok(Some(Answer::Refused(why))),
    };
    let queues = states.len();
    if let Some(queue) = setting.queue.filter(|&queue| usize::from(queue) >= queues) {
        let why = format!("queue {queue} does not exist: the vif has {queues}, counted from 0");
        return Ok(Some(Answer::Refused(why)));
    }
    let chosen = |state: &&StagingState| setting.queue.is_none_or(|queue| queue == state.queue);
    for state in states.iter().filter(chosen) {
        vif.stage(state.queue, change(state.staged, setting.pages as usize))?;
    }
    Ok(staging_answer(vif))
}

/// Returns the staged pages of each queue. Returns the reason as an error if nothing can be staged.
fn staging<R: Runner>(vif: &Vif<R>) -> Result<Vec<StagingState>, String> {
    let states = vif.staging();
    if !states.is_empty() {
        return Ok(states);
    }
    Err(match vif.status() {
        VifStatus::Connected => format!(
            "the policy in use is {}, so no page is staged; use a frontend with --policy auto or \
             staging, and a backend that offers staging",
            vif.features().policy
        ),
        _ => "the vif is not connected".into(),
    })
}

fn shown<R: Runner>(vif: &Vif<R>) -> Result<Answer, String> {
    staging(vif).map(|all| Answer::Staging(all.into_iter().map(StagingReport::of).collect()))
}

/// Returns the answer to a change of staged pages, once it is known.
fn staging_answer<R: Runner>(vif: &Vif<R>) -> Option<Answer> {
    let states = match staging(vif) {
        Ok(states) => states,
        Err(why) => return Some(Answer::Refused(why)),
    };
    if let Some(why) = states.iter().find_map(|state| state.refusal) {
        return Some(Answer::Refused(why.to_string()));
    }
    let settled = states.iter().all(StagingState::is_settled);
    settled.then(|| shown(vif).unwrap_or_else(Answer::Refused))
}

/// Returns the answer to a change of the hash, once it is known.
fn answer_of<R: Runner>(vif: &Vif<R>) -> Option<Answer> {
    match vif.hash().1 {
        HashState::Setting => None,
        HashState::Refused(why) => Some(Answer::Refused(why.to_string())),
        HashState::NoRing => Some(Answer::Refused("the backend has no control ring".into())),
        HashState::Unset | HashState::Set | HashState::Waiting => Some(Answer::Hash(report(vif))),
    }
}

fn report<R: Runner>(vif: &Vif<R>) -> HashReport {
    let (wish, state) = vif.hash();
    HashReport {
        state: words(state).unwrap_or_else(|| "in progress".into()),
        queues: vif.features().queues,
        setting: wish.map(HashSetting::of),
    }
}
