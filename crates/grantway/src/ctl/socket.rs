//! The frontend's end of its control socket. Nothing here blocks, and silent
//! clients hold nothing up: there are a few at most, and the oldest goes first.

use super::message::{Answer, HashReport, HashSetting, Question, words};
use crate::control::take_place;
use grantway_frontend::{HashState, Runner, Vif, VifError};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Clients that may be connected.
const CLIENTS: usize = 8;
/// Bytes of the longest question: a table of a thousand queues and a key.
const QUESTION: usize = 8192;

/// A client and what it has said.
struct Client {
    stream: UnixStream,
    said: Vec<u8>,
    /// It waits for a change that is under way.
    waits: bool,
}

/// The listening end and its clients; its file goes with it.
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
    /// A living process listens there, or the folder cannot be written.
    pub fn bind(path: &Path) -> std::io::Result<Self> {
        let listener = take_place(path)?;
        Ok(Self { listener, path: path.to_owned(), clients: VecDeque::new() })
    }

    /// Readable when somebody asks.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().filter(|client| !client.waits);
        std::iter::once(self.listener.as_fd()).chain(clients.map(|client| client.stream.as_fd()))
    }

    /// Hears who asks, and answers who can be answered.
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
                self.clients.push_back(Client { stream, said: Vec::new(), waits: false });
            }
        }
        for mut client in std::mem::take(&mut self.clients) {
            let answer = match client.waits {
                true => answer_of(vif),
                false => match client.hear() {
                    Heard::Nothing => None,
                    Heard::End => continue,
                    Heard::Refused(why) => Some(Answer::Refused(why)),
                    Heard::Question(question) => {
                        client.waits = true;
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

/// What came from a client.
enum Heard {
    /// Not all yet.
    Nothing,
    /// It is gone.
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
                    Err(e) => Heard::Refused(format!("not a question: {e}")),
                };
            }
            if self.said.len() > QUESTION {
                return Heard::Refused(format!("a question of more than {QUESTION} bytes"));
            }
        }
    }

    fn tell(&mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_string(answer) {
            line.push('\n');
            // Far below a socket's buffer; a client that cannot be written to at
            // once gets none.
            let _ = self.stream.write_all(line.as_bytes());
        }
    }
}

/// Does what is asked; the answer, where there is one already.
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
    }
}

/// The answer to a change, once there is one.
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
        state: words(state).unwrap_or_else(|| "under way".into()),
        queues: vif.features().queues,
        setting: wish.map(HashSetting::of),
    }
}
