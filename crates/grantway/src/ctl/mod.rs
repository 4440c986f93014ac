//! `grantway ctl` sends commands for the control ring to a running frontend.
//!
//! - [`args`]: the command line; [`message`]: the messages over the socket; [`socket`]: the
//!   frontend's end of it.

pub mod args;
pub mod message;
pub mod socket;

use crate::running::sockets;
use args::{
    AlgorithmArg, CtlArgs, CtlWhat, HashSetArgs, HashWhat, Key, StagingSetArgs, StagingWhat,
};
use grantway_command::args::GuestArgs;
use grantway_command::control::ctl_socket;
use grantway_command::error::CommandError;
use grantway_command::input;
use grantway_command::output;
use grantway_command::patience;
use grantway_command::table::Table;
use message::{Answer, HashReport, HashSetting, Question, StagingReport, StagingSetting};
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time for a frontend and its backend to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the frontend, and shows its answer.
///
/// # Errors
///
/// No frontend runs the vif, or its backend refuses.
pub fn run(args: &CtlArgs) -> Result<(), CommandError> {
    let (question, json) = match &args.what {
        CtlWhat::Hash(hash) => match &hash.what {
            HashWhat::Show(show) => (Question::HashShow, show.json),
            HashWhat::Set(set) => (Question::HashSet(setting(set)?), false),
        },
        CtlWhat::Staging(staging) => match &staging.what {
            StagingWhat::Show(show) => (Question::StagingShow, show.json),
            StagingWhat::Add(set) => (Question::StagingAdd(staging_setting(set)), false),
            StagingWhat::Remove(set) => (Question::StagingRemove(staging_setting(set)), false),
        },
    };
    let answer = ask(args, &question)?;
    output::line(if json { as_json(answer)?.to_string() } else { as_text(answer)? })
}

/// Subject of a question to all frontends of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Settings of the hash.
    Hash,
    /// Staged pages.
    Staging,
}

/// Asks all frontends of a folder, and prints their answers.
///
/// # Errors
///
/// No frontend runs in the folder, or one does not answer.
pub fn show(dir: &Path, subject: Subject, json: bool) -> Result<(), CommandError> {
    const REMEDY: &str =
        "start `grantway frontend`, or give its directory with --host or --run-dir";
    let question = match subject {
        Subject::Hash => Question::HashShow,
        Subject::Staging => Question::StagingShow,
    };
    let mut answers = Vec::new();
    for (name, path) in sockets(dir, "ctl", REMEDY)? {
        // A socket may be left of a frontend that was killed.
        if let Ok(client) = UnixStream::connect(&path) {
            answers.push((name, talk(client, &question)?));
        }
    }
    if answers.is_empty() {
        let dir = dir.display();
        return Err(CommandError::Failed(format!("{dir}: no frontend is running; {REMEDY}")));
    }
    if json {
        let each = answers.into_iter().map(|(name, answer)| Ok((name, as_json(answer)?)));
        return output::line(json!(each.collect::<Result<Map<_, _>, CommandError>>()?).to_string());
    }
    let mut parts = Vec::new();
    for (name, answer) in answers {
        parts.push(format!("{name}\n{}\n", as_text(answer)?));
    }
    output::line(parts.join("\n"))
}

fn as_json(answer: Answer) -> Result<Value, CommandError> {
    match answer {
        Answer::Refused(why) => Err(CommandError::Failed(why)),
        Answer::Hash(report) => Ok(json!(report)),
        Answer::Staging(queues) => Ok(json!({ "queues": queues })),
    }
}

fn as_text(answer: Answer) -> Result<String, CommandError> {
    match answer {
        Answer::Refused(why) => Err(CommandError::Failed(why)),
        Answer::Hash(report) => Ok(told(&report)),
        Answer::Staging(queues) => Ok(staging_told(&queues)),
    }
}

fn staging_setting(set: &StagingSetArgs) -> StagingSetting {
    StagingSetting { pages: set.pages, queue: set.queue }
}

/// Returns a table of staged pages, followed by the refusals.
fn staging_told(queues: &[StagingReport]) -> String {
    let mut table = Table::new(&["queue#", "staged#", "wished#", "pages#", "most#"]);
    for report in queues {
        let most = report.capacity.map_or_else(|| "-".to_owned(), |most| most.to_string());
        table.row([
            report.queue.to_string(),
            report.staged.to_string(),
            report.wished.to_string(),
            report.pages.to_string(),
            most,
        ]);
    }
    let refused = queues.iter().filter_map(|report| report.refused.as_deref());
    refused.fold(table.to_string().trim_end().to_owned(), |told, why| told + "\n" + why)
}

fn setting(set: &HashSetArgs) -> Result<Option<HashSetting>, CommandError> {
    if set.algorithm == AlgorithmArg::None {
        let given = [("--key", set.key.is_some()), ("--mapping", !set.mapping.is_empty())];
        return match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(CommandError::Usage(format!(
                "{option} has no effect with --algorithm none; remove one of the two"
            ))),
            None => Ok(None),
        };
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

/// Returns a random key.
fn random_key() -> Result<Key, CommandError> {
    let key = input::random();
    key.map(Key).map_err(|e| CommandError::Failed(format!("getrandom: {e}; give a key with --key")))
}

fn ask(args: &CtlArgs, question: &Question) -> Result<Answer, CommandError> {
    let GuestArgs { host, domain, run_dir } = &args.guest;
    let path = ctl_socket(host.as_ref().unwrap_or(run_dir), *domain, args.devid);
    let client = UnixStream::connect(&path).map_err(|e| {
        let of = domain.map_or_else(String::new, |domain| format!(" of domain {domain}"));
        CommandError::Failed(format!(
            "{}: {e}; no frontend is running for vif {}{of}; start it: grantway frontend",
            path.display(),
            args.devid
        ))
    })?;
    talk(client, question)
}

fn talk(mut client: UnixStream, question: &Question) -> Result<Answer, CommandError> {
    let mut line = serde_json::to_string(question).map_err(CommandError::failed)?;
    line.push('\n');
    let mut answer = String::new();
    let patience = patience::answer(PATIENCE);
    let talk = client
        .set_read_timeout(Some(patience))
        .and_then(|()| client.write_all(line.as_bytes()))
        .and_then(|()| BufReader::new(client).read_line(&mut answer));
    match talk {
        Ok(1..) => serde_json::from_str(&answer).map_err(CommandError::failed),
        Ok(_) => Err(CommandError::Failed("the frontend ended before it answered".into())),
        Err(e) => Err(CommandError::Failed(format!(
            "the frontend did not answer within {} s ({e}); check that its backend is running",
            patience.as_secs()
        ))),
    }
}

/// Returns the report as lines for people.
fn told(report: &HashReport) -> String {
    let HashReport { state, queues, setting } = report;
    let Some(HashSetting { types, key, mapping }) = setting else {
        return format!("hash: {state}; the backend chooses among {queues} queues");
    };
    let types: Vec<_> = args::TypeArg::ALL
        .into_iter()
        .filter(|kind| types & kind.bit() != 0)
        .map(args::TypeArg::name)
        .collect();
    let table: Vec<_> = mapping.iter().map(u16::to_string).collect();
    let table = match table.is_empty() {
        true => "none: the queue is the hash modulo the number of queues".to_owned(),
        false => table.join(","),
    };
    format!(
        "hash: {state}\nqueues: {queues}\ntypes: {}\nkey: {key}\nmapping: {table}",
        types.join(",")
    )
}
