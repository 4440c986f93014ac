//! A command line's definition as JSON, so that `grantway generate` writes the manual and
//! the completions of commands that other programs run.
//!
//! The outline has what a reader of help sees, and nothing by which arguments are judged. The
//! options that all commands have are left to the whole command line.

use crate::error::CommandError;
use crate::output;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    name: String,
    about: Option<String>,
    long_about: Option<String>,
    after_help: Option<String>,
    hidden: bool,
    /// True if a subcommand has to be named.
    split: bool,
    options: Vec<Opt>,
    commands: Vec<Outline>,
}

/// An option, or an argument without a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Opt {
    id: String,
    short: Option<char>,
    long: Option<String>,
    help: Option<String>,
    long_help: Option<String>,
    action: Action,
    value_names: Vec<String>,
    default: Vec<String>,
    possible: Vec<Possible>,
    /// True if it is a path, which shells complete.
    path: bool,
    /// Options that it cannot be given with.
    conflicts: Vec<String>,
    required: bool,
    hidden: bool,
    /// True if it is shown by `--help` and not by `-h`.
    hidden_short: bool,
}

/// The effect of an option that is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Action {
    Set,
    Append,
    Flag,
    Count,
}

/// A value that an option may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Possible {
    name: String,
    help: Option<String>,
    hidden: bool,
}

fn text(words: Option<&clap::builder::StyledStr>) -> Option<String> {
    words.map(ToString::to_string)
}

impl Outline {
    /// Returns the outline of a command as it is defined, before clap adds what all commands have.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        Self {
            name: command.get_name().to_owned(),
            about: text(command.get_about()),
            long_about: text(command.get_long_about()),
            after_help: text(command.get_after_help()),
            hidden: command.is_hide_set(),
            split: command.is_subcommand_required_set(),
            options: command.get_arguments().map(|arg| Opt::of(command, arg)).collect(),
            commands: command.get_subcommands().map(Self::of).collect(),
        }
    }

    /// Prints it as JSON, in one line.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub fn print(&self) -> Result<(), CommandError> {
        output::line(serde_json::to_string(self).map_err(CommandError::failed)?)
    }

    /// Returns the subcommands.
    #[must_use]
    pub fn into_commands(self) -> Vec<Self> {
        self.commands
    }

    /// Returns the command's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Builds a command of this outline.
    #[must_use]
    pub fn command(self) -> Command {
        let mut command = Command::new(self.name)
            .hide(self.hidden)
            .subcommand_required(self.split)
            .args(self.options.into_iter().map(Opt::arg))
            .subcommands(self.commands.into_iter().map(Self::command));
        if let Some(about) = self.about {
            command = command.about(about);
        }
        if let Some(about) = self.long_about {
            command = command.long_about(about);
        }
        if let Some(help) = self.after_help {
            command = command.after_help(help);
        }
        command
    }
}

impl Opt {
    fn of(command: &Command, arg: &Arg) -> Self {
        let action = match arg.get_action() {
            ArgAction::Append => Action::Append,
            ArgAction::Count => Action::Count,
            action if action.takes_values() => Action::Set,
            _ => Action::Flag,
        };
        // clap gives a flag a value name, which no reader sees.
        let takes_value = matches!(action, Action::Set | Action::Append);
        let possible = if takes_value { arg.get_possible_values() } else { Vec::new() };
        let possible = possible.iter().map(|value| Possible {
            name: value.get_name().to_owned(),
            help: text(value.get_help()),
            hidden: value.is_hide_set(),
        });
        let names = arg.get_value_names().filter(|_| takes_value).unwrap_or_default().iter();
        let default = arg.get_default_values().iter().filter(|_| takes_value);
        let conflicts = command.get_arg_conflicts_with(arg).into_iter();
        // The rest is copied as clap has it.
        Self {
            id: arg.get_id().to_string(),
            short: arg.get_short(),
            long: arg.get_long().map(str::to_owned),
            help: text(arg.get_help()),
            long_help: text(arg.get_long_help()),
            action,
            value_names: names.map(ToString::to_string).collect(),
            default: default.map(|value| value.to_string_lossy().into_owned()).collect(),
            possible: possible.collect(),
            path: arg.get_value_hint() == ValueHint::AnyPath,
            conflicts: conflicts.map(|other| other.get_id().to_string()).collect(),
            required: arg.is_required_set(),
            hidden: arg.is_hide_set(),
            hidden_short: arg.is_hide_short_help_set(),
        }
    }

    fn arg(self) -> Arg {
        let mut arg = Arg::new(self.id)
            .action(match self.action {
                Action::Set => ArgAction::Set,
                Action::Append => ArgAction::Append,
                Action::Flag => ArgAction::SetTrue,
                Action::Count => ArgAction::Count,
            })
            .conflicts_with_all(self.conflicts)
            .required(self.required)
            .hide(self.hidden)
            .hide_short_help(self.hidden_short);
        if let Some(short) = self.short {
            arg = arg.short(short);
        }
        if let Some(long) = self.long {
            arg = arg.long(long);
        }
        if let Some(help) = self.help {
            arg = arg.help(help);
        }
        if let Some(help) = self.long_help {
            arg = arg.long_help(help);
        }
        if !self.value_names.is_empty() {
            arg = arg.value_names(self.value_names);
        }
        if self.path {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        if !self.default.is_empty() {
            arg = arg.default_values(self.default);
        }
        if !self.possible.is_empty() {
            let values = self.possible.into_iter().map(Possible::value);
            arg = arg.value_parser(PossibleValuesParser::new(values));
        }
        arg
    }
}

impl Possible {
    fn value(self) -> clap::builder::PossibleValue {
        let value = clap::builder::PossibleValue::new(self.name).hide(self.hidden);
        match self.help {
            Some(help) => value.help(help),
            None => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{GuestArgs, Switch};
    use clap::{CommandFactory, Parser, Subcommand};

    /// A program.
    #[derive(Parser)]
    #[command(name = "sample", after_help = "An afterword.")]
    struct Sample {
        /// More words.
        #[arg(short, long, action = ArgAction::Count)]
        _verbose: u8,
        #[command(subcommand)]
        _what: What,
    }

    #[derive(Subcommand)]
    enum What {
        /// Do it.
        ///
        /// At length.
        Do {
            #[command(flatten)]
            _guest: GuestArgs,
            /// A switch.
            #[arg(long, value_enum, default_value_t = Switch::On)]
            _merge: Switch,
            /// Several, of which some are needed.
            #[arg(short = 'A', long, value_name = "ADDR/BITS", required = true)]
            _address: Vec<String>,
            /// A number.
            #[arg(long, default_value_t = 7, hide_short_help = true)]
            _number: u32,
            /// A flag.
            #[arg(long)]
            _json: bool,
            /// A file.
            #[arg(value_name = "FILE")]
            _file: String,
        },
        /// Not for people.
        #[command(hide = true)]
        Hidden,
    }

    #[test]
    fn what_comes_back_reads_the_same() {
        let json = serde_json::to_string(&Outline::of(&Sample::command())).unwrap();
        let outline: Outline = serde_json::from_str(&json).unwrap();
        let [mut ours, mut theirs] = [outline.command(), Sample::command()];
        assert_eq!(Outline::of(&ours), Outline::of(&theirs));
        assert_eq!(ours.render_help().to_string(), theirs.render_help().to_string());
        let [ours, theirs] =
            [&mut ours, &mut theirs].map(|command| command.find_subcommand_mut("do").unwrap());
        assert_eq!(ours.render_help().to_string(), theirs.render_help().to_string());
        assert_eq!(ours.render_long_help().to_string(), theirs.render_long_help().to_string());
    }
}
