//! The messages that a user types: a line editor with a history.

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Result;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::interrupt::{HOW_TO_LEAVE, Note};
use crate::terminal;

/// A line editor. Its feature `buffer-redux` keeps what was typed or pasted after a line for the
/// next one.
pub(super) struct Input {
    editor: DefaultEditor,
    history: Option<PathBuf>,
}

impl Input {
    pub(super) fn open() -> Result<Self> {
        let mut editor = DefaultEditor::new()?;
        let history = history_path();
        if let Some(history) = &history {
            // Without a history the chat works, too.
            drop(editor.load_history(history));
        }
        Ok(Self { editor, history })
    }

    /// Reads a message, over several lines where they end with `\\`; `None` at the end of input.
    pub(super) fn message(&mut self) -> Result<Option<String>> {
        let mut text = String::new();
        let mut prompt: &'static str = ">>> ";
        loop {
            let note = Note::new(prompt);
            let line = self.editor.readline(prompt);
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
                    return Ok(Some(text));
                }
                // As in a shell, Ctrl-C drops the line.
                Err(ReadlineError::Interrupted) => {
                    terminal::note(HOW_TO_LEAVE);
                    return Ok(Some(String::new()));
                }
                Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                    terminal::warn(
                        "the line has bytes that are not UTF-8 and is left out: set the terminal \
                         to UTF-8 and type it again",
                    );
                    return Ok(Some(String::new()));
                }
                Err(ReadlineError::Eof) => return Ok(None),
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
            drop(std::fs::create_dir_all(folder));
        }
        // Another chat may have added lines meanwhile.
        drop(self.editor.append_history(history));
    }
}

/// `$XDG_STATE_HOME/rocmforge/history`; the variable defaults to `~/.local/state`, on Windows to
/// `%LOCALAPPDATA%`.
fn history_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || match set("LOCALAPPDATA") {
        Some(folder) if cfg!(windows) => Some(folder),
        _ => Some(set("HOME")?.join(".local/state")),
    };
    let state = set("XDG_STATE_HOME").or_else(user)?;
    Some(state.join("rocmforge").join("history"))
}
