//! The manual page and the completion scripts, from the program itself.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::command::output_of;
use super::release::PROGRAM;

/// The texts that the program prints about itself.
pub(super) struct Texts {
    /// The page of section 1.
    pub(super) page: String,
    pub(super) bash: String,
    pub(super) zsh: String,
    pub(super) fish: String,
}

impl Texts {
    /// Runs the program for its texts.
    pub(super) fn of(program: &Path) -> Result<Self> {
        let print = |arguments: &[&str]| {
            // The width of lines is that of the terminal.
            output_of(Command::new(program).args(arguments).env("COLUMNS", "100"))
        };
        let completions = |shell| print(&["completions", shell]);
        let help = print(&["--help"])?;
        let mut commands = Vec::new();
        let mut waiting: VecDeque<_> = names(&help).map(str::to_owned).collect();
        while let Some(name) = waiting.pop_front() {
            let words: Vec<_> = name.split(' ').chain(["--help"]).collect();
            let text = print(&words)?;
            // A command may have commands within it.
            let inner = names(&text).map(|inner| format!("{name} {inner}")).collect::<Vec<_>>();
            inner.into_iter().rev().for_each(|inner| waiting.push_front(inner));
            commands.push((name, text));
        }
        Ok(Self {
            page: page(&print(&["-V"])?, &help, &commands)?,
            bash: completions("bash")?,
            zsh: completions("zsh")?,
            fish: completions("fish")?,
        })
    }
}

/// The names in the list of commands of a help text.
fn names(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Lines that continue a description are indented further.
    let names = lines.filter_map(|line| {
        let line = line.strip_prefix("  ")?;
        if line.starts_with(' ') { None } else { line.split_whitespace().next() }
    });
    names.filter(|name| *name != "help")
}

/// The manual page: the help texts as they are printed.
fn page(version: &str, help: &str, commands: &[(String, String)]) -> Result<String> {
    let summary = help.lines().next().context("the help is empty")?;
    let title = PROGRAM.to_uppercase();
    let mut page = format!(
        ".TH {title} 1 \"\" \"{}\" \"ROCmForge\"\n.SH NAME\n{PROGRAM} \\- {}\n",
        escaped(version.trim()),
        escaped(summary.trim_end_matches('.'))
    );
    let mut section = |name: &str, text: &str| {
        let lines: Vec<_> = text.lines().map(escaped).collect();
        write!(page, ".SH {}\n.nf\n{}\n.fi\n", name.to_uppercase(), lines.join("\n"))
    };
    section("description", help)?;
    for (name, text) in commands {
        section(&format!("{PROGRAM} {name}"), text)?;
    }
    Ok(page)
}

/// A line of text for roff: a backslash starts an escape, a full stop or an apostrophe a request.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_section_per_command() {
        let help =
            "Runs models.\n\nCommands:\n  run    Answer\n           .more\n  help   Print\n\nx";
        assert_eq!(names(help).collect::<Vec<_>>(), ["run"]);
        let page =
            page("rf-cli 1.0", help, &[("run".to_owned(), "Answers \\n\n.x".to_owned())]).unwrap();
        assert!(page.contains(".SH NAME\nrf-cli \\- Runs models\n"), "{page}");
        assert!(page.contains(".SH RF-CLI RUN\n.nf\nAnswers \\en\n\\&.x\n.fi\n"), "{page}");
    }
}
