//! `grantway ctl`: asks a running frontend to use its control ring.
//!
//! - [`args`]: its command line; [`message`]: what is said over the socket;
//!   [`socket`]: the frontend's end of it.

pub mod args;
pub mod message;
pub mod socket;

use crate::error::CommandError;
use crate::output;
use args::{AlgorithmArg, CtlArgs, CtlWhat, HashSetArgs, HashWhat, Key};
use grantway_netif::toeplitz::KEY_BYTES;
use message::{Answer, HashReport, HashSetting, Question};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a frontend may take to answer, and its backend behind it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a frontend is asked, in the run folder.
pub fn socket_path(dir: &Path, domain: u16, devid: u32) -> PathBuf {
    dir.join(format!("frontend-{domain}.{devid}.ctl"))
}

/// Asks, and shows the answer.
///
/// # Errors
///
/// No frontend runs the vif, or its backend refuses.
pub fn run(args: &CtlArgs) -> Result<(), CommandError> {
    let CtlWhat::Hash(hash) = &args.what;
    let (question, json) = match &hash.what {
        HashWhat::Show(show) => (Question::HashShow, show.json),
        HashWhat::Set(set) => (Question::HashSet(setting(set)?), false),
    };
    let answer = ask(args, &question)?;
    let report = match answer {
        Answer::Hash(report) => report,
        Answer::Refused(why) => return Err(CommandError::Failed(why)),
    };
    match json {
        true => output::line(serde_json::to_string(&report).map_err(CommandError::failed)?),
        false => output::line(told(&report)),
    }
}

fn setting(set: &HashSetArgs) -> Result<Option<HashSetting>, CommandError> {
    if set.algorithm == AlgorithmArg::None {
        return Ok(None);
    }
    let key = match set.key {
        Some(key) => key,
        None => random_key()?,
    };
    Ok(Some(HashSetting {
        types: set.types.iter().fold(0, |sum, kind| sum | kind.bit()),
        key: key.to_string(),
        mapping: set.mapping.clone(),
    }))
}

/// A key that nobody else knows.
fn random_key() -> Result<Key, CommandError> {
    let mut key = [0; KEY_BYTES];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key));
    read.map_err(|e| CommandError::Failed(format!("/dev/urandom: {e}; give a key with --key")))?;
    Ok(Key(key))
}

fn ask(args: &CtlArgs, question: &Question) -> Result<Answer, CommandError> {
    let (domain, devid) = (args.domain, args.devid);
    let path = socket_path(&args.host, domain, devid);
    let mut client = UnixStream::connect(&path).map_err(|e| {
        CommandError::Failed(format!(
            "{}: {e}; no frontend runs vif {devid} of domain {domain} there: start one with \
             `grantway frontend`",
            path.display()
        ))
    })?;
    let mut line = serde_json::to_string(question).map_err(CommandError::failed)?;
    line.push('\n');
    let mut answer = String::new();
    let talk = client
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| client.write_all(line.as_bytes()))
        .and_then(|()| BufReader::new(client).read_line(&mut answer));
    match talk {
        Ok(1..) => serde_json::from_str(&answer).map_err(CommandError::failed),
        Ok(_) => Err(CommandError::Failed("the frontend ended before it answered".into())),
        Err(e) => Err(CommandError::Failed(format!(
            "the frontend did not answer within {} s ({e}); does its backend run?",
            PATIENCE.as_secs()
        ))),
    }
}

/// The report as lines for a person.
fn told(report: &HashReport) -> String {
    let HashReport { state, queues, setting } = report;
    let Some(HashSetting { types, key, mapping }) = setting else {
        return format!("hash: {state}; the backend chooses the queue ({queues} of them)");
    };
    let types: Vec<_> = args::TypeArg::ALL
        .into_iter()
        .filter(|kind| types & kind.bit() != 0)
        .map(args::TypeArg::name)
        .collect();
    let table: Vec<_> = mapping.iter().map(u16::to_string).collect();
    let table = match table.is_empty() {
        true => "none, the queue is the hash modulo the queues".to_owned(),
        false => table.join(","),
    };
    format!(
        "hash: {state}\nqueues: {queues}\ntypes: {}\nkey: {key}\nmapping: {table}",
        types.join(",")
    )
}
