//! Rules for the definition of every program's command line, for the unit tests of the programs.

use clap::{Command, Parser};

/// Columns of a terminal. The help is wrapped there, and a line that was wrapped twice is ragged.
const TERMINAL: usize = 80;

/// Checks that the definition is sound, that every command teaches with an example, and that its
/// text fits a terminal. The commands named in `elsewhere` have their help elsewhere.
pub fn every_command_teaches<C: Parser>(elsewhere: &[&str]) {
    fn check(command: &Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = command.get_name();
        assert!(help.contains("Example") && help.contains("grantway "), "{name}");
        for line in help.lines() {
            let columns = line.chars().count();
            assert!(columns <= TERMINAL, "{name}: {columns} columns, expected {TERMINAL}: {line}");
        }
        command.get_subcommands().for_each(check);
    }
    C::command().debug_assert();
    let all = C::command();
    all.get_subcommands().filter(|one| !elsewhere.contains(&one.get_name())).for_each(check);
}

/// Checks that every example is a command line that the program takes.
pub fn every_example_is_a_command_line<C: Parser>() {
    fn check<C: Parser>(command: &Command) {
        let texts = [command.get_before_help(), command.get_after_help()];
        let help = texts.into_iter().flatten().map(|text| format!("{text}\n")).collect::<String>();
        // A long example is continued on the next line.
        let help = help.replace("\\\n", "");
        let lines = help.lines().filter_map(|line| line.strip_prefix("  grantway "));
        for part in lines.flat_map(|line| line.split(['|', '&'])) {
            let words = part.split_whitespace().map(|word| word.trim_matches('\''));
            let words: Vec<_> = words.skip_while(|word| *word == "grantway").collect();
            if words.is_empty() || words[0] == "jq" {
                continue;
            }
            let line = [&["grantway"], words.as_slice()].concat();
            assert!(C::try_parse_from(&line).is_ok(), "{line:?}");
        }
        command.get_subcommands().for_each(check::<C>);
    }
    check::<C>(&C::command());
}
