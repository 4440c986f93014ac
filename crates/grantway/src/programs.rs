//! Commands that other programs run, so that the program which serves guests has neither benches
//! nor a TCP stack.

use clap::{Args, Command};
use grantway_command::error::CommandError;
use grantway_command::outline::Outline;
use grantway_command::program::{become_program, find};
use std::ffi::OsString;

/// The program that runs `bench` and `demo`.
pub const BENCH: &str = "grantway-bench";
/// The program that runs `iperf`.
pub const IPERF: &str = "grantway-iperf";

/// The commands of each program.
const PROGRAMS: [(&str, &[&str]); 2] = [(BENCH, &["bench", "demo"]), (IPERF, &["iperf"])];

/// Words of a command that another program runs. That program parses them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct ProgramArgs {
    /// Words for the program.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// Runs a program in place of this one, with the words of this command line.
///
/// # Errors
///
/// The program is missing, or cannot be run.
pub fn run(program: &str) -> Result<(), CommandError> {
    Ok(become_program(program, std::env::args_os().skip(1))?)
}

/// Returns the command of `help COMMAND` and its program, if the command has a program.
pub fn asked_for_help(
    words: impl Iterator<Item = OsString>,
) -> Option<(&'static str, &'static str)> {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let mut words = words.filter(|word| !word.starts_with('-'));
    words.next().filter(|word| word == "help")?;
    let asked = words.next()?;
    let mut all = PROGRAMS
        .iter()
        .flat_map(|&(program, commands)| commands.iter().map(move |&command| (command, program)));
    all.find(|&(command, _)| command == asked)
}

/// Returns the whole command line: `cli`, with the commands of all programs as the programs define
/// them.
///
/// # Errors
///
/// A program is missing, or does not print its outline.
pub fn with_programs(cli: Command) -> Result<Command, CommandError> {
    let mut defined = Vec::new();
    for (program, commands) in PROGRAMS {
        let found = find(program)?;
        let failed =
            |why: String| CommandError::Failed(format!("{}: {why}; rebuild it", found.display()));
        let said = std::process::Command::new(&found).arg("outline").output();
        let said = said.map_err(|e| failed(e.to_string()))?;
        let outline: Outline = serde_json::from_slice(&said.stdout)
            .map_err(|e| failed(format!("`outline` printed no valid outline: {e}")))?;
        let all = outline.into_commands().into_iter();
        defined.extend(all.filter(|one| commands.contains(&one.name())).map(Outline::command));
    }
    let defined = |command: Command| {
        let found = defined.iter().find(|one| one.get_name() == command.get_name());
        let order = command.get_display_order();
        found.map_or(command, |one| one.clone().display_order(order))
    };
    Ok(cli.mut_subcommands(defined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_a_program_is_told_from_other_words() {
        let asked = |line: &str| asked_for_help(line.split_whitespace().map(OsString::from));
        assert_eq!(asked("help bench"), Some(("bench", BENCH)));
        assert_eq!(asked("-v help iperf server"), Some(("iperf", IPERF)));
        for other in ["", "help", "help list", "bench --help", "bench help packets", "--help"] {
            assert_eq!(asked(other), None, "{other}");
        }
    }
}
