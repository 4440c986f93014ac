//! `grantway generate` writes man pages and completions for shells, from the definition of the
//! command line. `make install` installs them.

use crate::programs::with_programs;
use clap::builder::{Resettable, StyledStr};
use clap::{Args, Command};
use clap_complete::Shell;
use grantway_command::error::CommandError;
use grantway_command::output;
use std::io::Write;
use std::path::{Path, PathBuf};

/// `grantway generate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Writes man1/grantway*.1 and completions/ for bash, fish and zsh.

Example:
  grantway generate /tmp/gw-doc")]
pub struct GenerateArgs {
    /// Output directory. It is created if it does not exist.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// `grantway completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
The packages install these files. Without a package, write the output to the
directory in which your shell looks for completions.

Example:
  grantway completions bash")]
pub struct CompletionsArgs {
    /// Shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints the completions of the command line `cli` for a shell.
///
/// # Errors
///
/// A program that has some of the commands is missing, or standard output cannot be written.
pub fn completions(args: &CompletionsArgs, cli: Command) -> Result<(), CommandError> {
    let mut text = Vec::new();
    let mut cli = with_programs(cli)?.disable_help_subcommand(true);
    clap_complete::generate(args.shell, &mut cli, "grantway", &mut text);
    output::line(String::from_utf8_lossy(&text).trim_end())
}

/// Writes the pages and completions of the command line `cli`.
///
/// # Errors
///
/// The folder cannot be written, or a program that has some of the commands is missing.
pub fn run(args: &GenerateArgs, cli: Command) -> Result<(), CommandError> {
    let cli = with_programs(cli)?;
    write(&args.dir, cli).map_err(|e| CommandError::Failed(format!("{}: {e}", args.dir.display())))
}

fn write(dir: &Path, cli: Command) -> std::io::Result<()> {
    let (pages, completions) = (dir.join("man1"), dir.join("completions"));
    for folder in [&pages, &completions] {
        std::fs::create_dir_all(folder)?;
    }
    // `help` would add a second page for each command.
    let mut command = cli.disable_help_subcommand(true);
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command.clone(), "grantway", &completions)?;
    }
    command.build();
    manual(&command, &pages)
}

/// Writes the page of a command, and those of its subcommands.
fn manual(command: &Command, folder: &Path) -> std::io::Result<()> {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        manual(one, folder)?;
    }
    // clap_mangen fills the lines of these texts, and leaves an option that `-h` hides without help.
    let texts = [command.get_before_help(), command.get_after_help()];
    let sections = sections(texts.into_iter().flatten().map(ToString::to_string));
    let page = clap_mangen::Man::new(
        command
            .clone()
            .before_help(Resettable::<StyledStr>::Reset)
            .after_help(Resettable::<StyledStr>::Reset)
            .mut_args(|arg| arg.hide_short_help(false)),
    );
    let mut text = Vec::new();
    page.render(&mut text)?;
    for (heading, lines) in sections.iter().filter(|(_, lines)| !lines.is_empty()) {
        write!(text, ".SH {heading:?}\n.nf\n{}.fi\n", roff(lines))?;
    }
    std::fs::write(folder.join(page.get_filename()), text)
}

/// Divides the texts of a help into the sections of a man page.
fn sections(texts: impl Iterator<Item = String>) -> [(&'static str, String); 3] {
    let [mut notes, mut status, mut examples] = [const { String::new() }; 3];
    for text in texts {
        for paragraph in text.split("\n\n") {
            let (section, lines) = match paragraph.split_once('\n') {
                Some((heading, lines)) if heading.starts_with("Example") => (&mut examples, lines),
                _ => match paragraph.strip_prefix("Exit status: ") {
                    Some(lines) => (&mut status, lines),
                    None => (&mut notes, paragraph),
                },
            };
            if !section.is_empty() {
                section.push('\n');
            }
            *section += lines.trim_end();
            section.push('\n');
        }
    }
    [("NOTES", notes), ("EXIT STATUS", status), ("EXAMPLES", examples)]
}

/// Returns lines in a form that roff shows unchanged: without control lines, and with hyphens that
/// can be copied into a shell.
fn roff(lines: &str) -> String {
    let escaped = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        format!("{guard}{}\n", line.replace('\'', "\\(aq").replace('`', "\\(ga"))
    };
    lines.lines().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use std::process;

    fn generated() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), Cli::command()).unwrap();
        folder
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = generated();
        let cli = Cli::command();
        for command in cli.get_subcommands() {
            let page = folder.path().join(format!("man1/grantway-{}.1", command.get_name()));
            assert_eq!(page.exists(), !command.is_hide_set(), "{}", page.display());
        }
        let page = std::fs::read_to_string(folder.path().join("man1/grantway-backend.1")).unwrap();
        for part in [".TH grantway-backend 1", "metrics", "SIGTERM ends it and leaves the vifs"] {
            assert!(page.contains(part), "no {part:?} in {page}");
        }
    }

    #[test]
    fn examples_of_a_page_can_be_copied_and_each_option_has_a_description() {
        let folder = generated();
        let text = |name: &str| {
            std::fs::read_to_string(folder.path().join(format!("man1/{name}.1"))).unwrap()
        };
        let rules = text("grantway-rules-check");
        let lines = "\n  [firewall]\n  default = \"drop\"                # if no rule matches\n";
        assert!(rules.contains(lines), "{rules}");
        let example = ".SH \"EXAMPLES\"\n.nf\n  grantway rules check rules.toml\n";
        assert!(rules.contains(example), "{rules}");
        assert!(rules.contains(".SH \"EXIT STATUS\"\n.nf\n0 if the file is valid"), "{rules}");
        let backend = text("grantway-backend");
        let (_, options) = backend.split_once(".SH OPTIONS").unwrap();
        let (_, option) = options.split_once("mapped\\-pages").unwrap();
        let (described, _) = option.split_once(".TP").unwrap();
        assert!(described.contains("Largest number of pages mapped"), "{described}");
    }

    #[test]
    fn lines_are_no_commands_of_roff() {
        assert_eq!(roff(".nf\n'x' -\\"), "\\&.nf\n\\&\\(aqx\\(aq \\-\\e\n");
    }

    #[test]
    fn completions_have_commands_and_options() {
        let folder = generated();
        for name in ["grantway.bash", "grantway.fish", "_grantway"] {
            let path = folder.path().join("completions").join(name);
            let text = std::fs::read_to_string(&path).unwrap();
            for word in ["backend", "metrics", "detach", "interval", "persistent"] {
                assert!(text.contains(word), "no {word:?} in {name}");
            }
        }
        let script = folder.path().join("completions/grantway.bash");
        let asked = "source \"$0\"; COMP_WORDS=(grantway backend --met); COMP_CWORD=2; \
                     _grantway grantway --met backend; printf '%s' \"${COMPREPLY[*]}\"";
        match process::Command::new("bash").args(["-c", asked]).arg(&script).output() {
            Ok(said) => assert_eq!(String::from_utf8_lossy(&said.stdout), "--metrics", "{said:?}"),
            Err(e) => eprintln!("skipped: bash: {e}"),
        }
    }
}
