//! The help of `grantway` without a command: examples, then the commands in groups.

use clap::Command;
use std::fmt::Write;

/// The groups, and the commands of each in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["backend", "frontend", "host"]),
    ("Look", &["show", "top", "flows", "doctor", "plan"]),
    ("Configure", &["attach", "detach", "rules", "ctl"]),
    ("Try", &["demo", "bench", "iperf"]),
    ("Shell", &["completions"]),
];

/// Examples, above the groups.
pub const EXAMPLES: &str = "\
Examples:
  grantway demo
  grantway doctor";

/// Gives a command line the help that shows its commands in groups.
pub fn grouped(cli: Command) -> Command {
    let width = cli.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0);
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(groups, "{heading}:");
        for name in names {
            let about = cli.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {name:<width$}  {about}");
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{before-help}}{groups}Options:\n\
         {{options}}{{after-help}}"
    );
    cli.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[test]
    fn each_command_that_is_shown_is_in_one_group() {
        let cli = Cli::command();
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
        let shown: BTreeSet<_> = shown.map(Command::get_name).collect();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.len(), shown.len());
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), shown);
    }

    #[test]
    fn examples_come_before_the_commands_and_lines_fit_a_terminal() {
        let help = super::grouped(Cli::command()).term_width(80).render_help().to_string();
        let at = |part: &str| help.find(part).unwrap_or_else(|| panic!("no {part:?} in {help}"));
        assert!(at("Usage: grantway") < at("Examples:\n  grantway demo"), "{help}");
        assert!(at("Examples:") < at("Run:\n  backend"), "{help}");
        assert!(at("Try:") < at("Options:\n  -v"), "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
