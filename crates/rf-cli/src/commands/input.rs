//! The messages that a user types: a line editor with a history, completion and several lines.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Result;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, CompletionType, Config, Context, Editor, Helper, KeyCode, KeyEvent, Modifiers,
};

use crate::interrupt::{HOW_TO_LEAVE, Note};
use crate::{state, terminal};

/// The mark before and after the lines of a message.
const QUOTES: &str = "\"\"\"";

/// A line editor. Its feature `buffer-redux` keeps what was typed or pasted after a line for the
/// next one.
pub(super) struct LineEditor {
    editor: Editor<Helpers, DefaultHistory>,
    history: Option<PathBuf>,
}

/// The input of a user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// A message or a command.
    Line(String),
    /// A message between marks, which is no command whatever it begins with.
    Message(String),
}

/// The words that complete a line: commands, and what follows each.
pub(super) struct Words {
    /// Names of commands, and whether a path follows.
    pub(super) commands: Vec<(&'static str, bool)>,
    /// The command that is followed by the name of an option, and the options.
    pub(super) options: (&'static str, Vec<String>),
}

impl LineEditor {
    pub(super) fn open(words: Words) -> Result<Self> {
        let config = Config::builder().completion_type(CompletionType::List).build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Helpers(words)));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = state::folder().map(|folder| folder.join("history"));
        if let Some(history) = &history {
            // Without a history the chat works, too.
            drop(editor.load_history(history));
        }
        Ok(Self { editor, history })
    }

    /// Reads a message, over several lines where they end with `\\`; `None` at the end of input.
    /// The line begins with a text to change.
    pub(super) fn message(&mut self, initial: &str) -> Result<Option<Typed>> {
        let mut text = String::new();
        let mut initial = Some(initial);
        let mut prompt: &'static str = ">>> ";
        loop {
            let note = Note::new(prompt);
            let line = match initial.take().filter(|text| !text.is_empty()) {
                Some(start) => self.editor.readline_with_initial(prompt, (start, "")),
                None => self.editor.readline(prompt),
            };
            drop(note);
            match line {
                Ok(line) => {
                    if let Some(start) = line.strip_suffix('\\') {
                        text.push_str(start);
                        text.push('\n');
                        prompt = "... ";
                        continue;
                    }
                    text.push_str(&line);
                    if !text.trim().is_empty() {
                        self.editor.add_history_entry(text.as_str())?;
                    }
                    let quoted = text.trim().strip_prefix(QUOTES);
                    let quoted = quoted.map(|text| text.strip_suffix(QUOTES).unwrap_or(text));
                    return Ok(Some(match quoted {
                        Some(text) => Typed::Message(text.trim_matches(['\r', '\n']).to_owned()),
                        None => Typed::Line(text),
                    }));
                }
                // As in a shell, Ctrl-C drops the line.
                Err(ReadlineError::Interrupted) => {
                    terminal::note(HOW_TO_LEAVE);
                    return Ok(Some(Typed::Line(String::new())));
                }
                Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                    terminal::warn(
                        "the line has bytes that are not UTF-8 and is left out: set the terminal \
                         to UTF-8 and type it again",
                    );
                    return Ok(Some(Typed::Line(String::new())));
                }
                Err(ReadlineError::Eof) => {
                    if is_without_editor() {
                        writeln!(io::stdout().lock())?;
                    }
                    return Ok(None);
                }
                Err(error) => {
                    io::stdout().flush()?;
                    return Err(error.into());
                }
            }
        }
    }

    /// Keeps the history for the next run.
    pub(super) fn close(mut self) {
        let Some(history) = &self.history else { return };
        if let Some(folder) = history.parent() {
            drop(fs::create_dir_all(folder));
        }
        // Another chat may have added lines meanwhile.
        drop(self.editor.append_history(history));
    }
}

/// Completes commands, options and files, and waits for the end of a message between marks.
struct Helpers(Words);

impl Helper for Helpers {}

impl Highlighter for Helpers {}

impl Hinter for Helpers {
    type Hint = String;
}

impl Validator for Helpers {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input().trim();
        let is_open = text.strip_prefix(QUOTES).is_some_and(|rest| !rest.ends_with(QUOTES));
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Helpers {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(self.0.completed(&line[..position]))
    }
}

impl Words {
    /// Where the word begins that is completed, and its completions.
    fn completed(&self, line: &str) -> (usize, Vec<Pair>) {
        let same = |text: &str| Pair { display: text.to_owned(), replacement: text.to_owned() };
        let Some((command, argument)) = line.split_once(' ') else {
            let names = self.commands.iter().map(|(name, _)| *name);
            let fitting = names.filter(|name| line.starts_with('/') && name.starts_with(line));
            return (0, fitting.map(same).collect());
        };
        let argument = argument.trim_start();
        let start = line.len() - argument.len();
        if command == self.options.0 && !argument.contains(' ') {
            let dashed = argument.trim_start_matches('-').replace('_', "-");
            let fitting = self.options.1.iter().filter(|name| name.starts_with(&dashed));
            return (start, fitting.map(|name| same(name)).collect());
        }
        if self.commands.contains(&(command, true)) {
            let folder_len = argument.rfind('/').map_or(0, |slash| slash + 1);
            return (start + folder_len, files(&argument[..folder_len], &argument[folder_len..]));
        }
        (line.len(), Vec::new())
    }
}

/// The files in a folder whose names begin so.
fn files(folder: &str, start: &str) -> Vec<Pair> {
    let Ok(entries) = fs::read_dir(if folder.is_empty() { "." } else { folder }) else {
        return Vec::new();
    };
    let names = entries.flatten().filter_map(|entry| {
        let mut name = entry.file_name().into_string().ok()?;
        let is_hidden = name.starts_with('.') && !start.starts_with('.');
        // Control characters in a name would reach the terminal.
        if is_hidden || !name.starts_with(start) || !name.chars().all(terminal::is_safe) {
            return None;
        }
        if fs::metadata(entry.path()).is_ok_and(|data| data.is_dir()) {
            name.push('/');
        }
        Some(name)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.into_iter().map(|name| Pair { display: name.clone(), replacement: name }).collect()
}

/// Returns true if the editor only reads lines on this terminal, and leaves the last one open.
fn is_without_editor() -> bool {
    std::env::var("TERM").is_ok_and(|term| ["dumb", "cons25", "emacs"].contains(&&*term))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_options_and_files_are_completed() {
        let words = Words {
            commands: vec![("/load", true), ("/set", false), ("/system", false)],
            options: ("/set", vec!["temp".into(), "top-k".into(), "top-p".into()]),
        };
        let completed = |line: &str| {
            let (start, pairs) = words.completed(line);
            (start, pairs.into_iter().map(|pair| pair.replacement).collect::<Vec<_>>())
        };
        assert_eq!(completed("/s"), (0, vec!["/set".into(), "/system".into()]));
        assert_eq!(completed("s"), (0, vec![]));
        assert_eq!(completed("/set top_"), (5, vec!["top-k".into(), "top-p".into()]));
        assert_eq!(completed("/set temp 0"), (11, vec![]));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a chat.json"), "").unwrap();
        fs::write(folder.path().join("a\x1b[2Jb"), "").unwrap();
        fs::create_dir(folder.path().join("above")).unwrap();
        let line = format!("/load {}/a", folder.path().display());
        let names = vec!["a chat.json".to_owned(), "above/".to_owned()];
        assert_eq!(completed(&line), (line.len() - 1, names));
    }
}
