//! The interactive chat of `rf-cli run`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use rf_engine::{Engine, GenerateOptions, Outcome, Session, StopReason};
use rf_tokenizer::Message;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::answer::{OutputForm, conversation_ids, stream, summary};
use crate::failure::{bad_input, sentence};
use crate::terminal::{self, Palette};

/// A conversation at the terminal.
pub(super) struct Chat {
    engine: Engine,
    session: Session,
    options: GenerateOptions,
    form: Option<OutputForm>,
    /// All messages, the system message first.
    messages: Vec<Message>,
    /// Messages that [`Chat::reset`] keeps.
    kept_messages: usize,
    last: Option<Outcome>,
    load_time: Duration,
    quiet: bool,
}

/// A line of input, parsed.
enum Line<'a> {
    Empty,
    Say(&'a str),
    Help,
    Reset,
    Stats,
    Exit,
    Unknown(&'a str),
}

const HELP: &str = "\
/help    show this list
/reset   forget the conversation
/stats   show throughput, memory and use of the context
/exit    leave (as does Ctrl-D)
A line that ends with \\ continues in the next one. Ctrl-C stops an answer.";

impl Chat {
    pub(super) fn new(
        engine: Engine,
        options: GenerateOptions,
        form: Option<OutputForm>,
        system: Option<&str>,
        load_time: Duration,
        quiet: bool,
    ) -> Self {
        let messages: Vec<_> =
            system.map(|text| Message::new("system", text)).into_iter().collect();
        Self {
            session: engine.session(),
            engine,
            options,
            form,
            kept_messages: messages.len(),
            messages,
            last: None,
            load_time,
            quiet,
        }
    }

    /// Chats until the user leaves, and returns the engine.
    pub(super) fn run(mut self) -> Result<Engine> {
        if self.engine.model().chat_template().is_none() {
            return Err(bad_input!(
                "the model has no chat template, so it cannot chat: give a text to continue, as in \
                 rf-cli run -m FILE \"Once upon a time\""
            ));
        }
        let mut editor = DefaultEditor::new()?;
        let history = history_path();
        if let Some(history) = &history {
            // Without a history the chat works, too.
            drop(editor.load_history(history));
        }
        self.greet();
        while let Some(text) = read(&mut editor)? {
            match Line::parse(&text) {
                Line::Empty => {}
                Line::Say(text) => self.answer(text)?,
                Line::Help => terminal::note(HELP),
                Line::Reset => self.reset(),
                Line::Stats => self.stats(),
                Line::Exit => break,
                Line::Unknown(command) => {
                    terminal::note(format_args!("unknown command {command}: see /help"));
                }
            }
        }
        if let Some(history) = history {
            if let Some(folder) = history.parent() {
                drop(std::fs::create_dir_all(folder));
            }
            drop(editor.save_history(&history));
        }
        Ok(self.engine)
    }

    fn greet(&self) {
        let metadata = self.engine.model().gguf().metadata();
        let name =
            metadata.get("general.name").and_then(|name| name.as_str()).unwrap_or("the model");
        let palette = Palette::stderr();
        terminal::note(format_args!(
            "{} {}",
            palette.bold(name.escape_debug()),
            palette.dim(format_args!(
                "({} tokens of context; /help for help, Ctrl-D to leave)",
                self.engine.context_tokens()
            ))
        ));
    }

    fn answer(&mut self, text: &str) -> Result<()> {
        self.messages.push(Message::new("user", text));
        let (prompt, ids) = conversation_ids(self.engine.model(), &self.messages)?;
        let form = self.form.as_ref();
        let constraint = form.map(|form| form.constraint(Some(&prompt))).transpose()?;
        let result = stream(&mut self.engine, &mut self.session, &ids, &self.options, constraint);
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) if error.is::<rf_engine::Error>() => {
                // Most likely the prompt is too long; the conversation so far is valid.
                self.messages.pop();
                let error = sentence(&error);
                terminal::note(format_args!(
                    "{} {error} (or /reset)",
                    Palette::stderr().red("error:")
                ));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if outcome.stop_reason == StopReason::Cancelled {
            terminal::note(Palette::stderr().dim("(stopped)"));
        }
        self.messages.push(Message::new("assistant", &outcome.text));
        if !self.quiet {
            terminal::note(Palette::stderr().dim(summary(&outcome.timings, self.memory_bytes())));
        }
        self.last = Some(outcome);
        Ok(())
    }

    fn reset(&mut self) {
        self.messages.truncate(self.kept_messages);
        self.session.reset();
        self.last = None;
        terminal::note("the conversation is forgotten");
    }

    fn stats(&self) {
        if let Some(last) = &self.last {
            terminal::note(format_args!(
                "last answer: {}, {} prompt tokens from the cache, seed {}",
                summary(&last.timings, self.memory_bytes()),
                last.timings.cached_tokens,
                last.seed
            ));
        }
        let memory = self.engine.memory();
        terminal::note(format_args!(
            "context: {} of {} tokens in {} messages; memory: weights {}, KV cache {}, buffers {}; loaded in {:.2} s",
            self.session.len(),
            self.engine.context_tokens(),
            self.messages.len(),
            terminal::bytes(memory.weights_bytes),
            terminal::bytes(memory.kv_bytes),
            terminal::bytes(memory.buffers_bytes),
            self.load_time.as_secs_f64()
        ));
    }

    fn memory_bytes(&self) -> u64 {
        self.engine.memory().total_bytes()
    }
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let line = line.trim();
        match line {
            "" => Self::Empty,
            "/help" | "/?" => Self::Help,
            "/reset" | "/clear" => Self::Reset,
            "/stats" => Self::Stats,
            "/exit" | "/quit" | "/bye" => Self::Exit,
            _ if line.starts_with('/') && !line[1..].contains(['/', ' ']) => Self::Unknown(line),
            _ => Self::Say(line),
        }
    }
}

/// Reads a message, over several lines where they end with `\`; `None` at the end of input.
fn read(editor: &mut DefaultEditor) -> Result<Option<String>> {
    let mut text = String::new();
    let mut prompt = ">>> ";
    loop {
        match editor.readline(prompt) {
            Ok(line) => {
                if let Some(start) = line.strip_suffix('\\') {
                    text.push_str(start);
                    text.push('\n');
                    prompt = "... ";
                    continue;
                }
                text.push_str(&line);
                if !text.trim().is_empty() {
                    editor.add_history_entry(text.as_str())?;
                }
                return Ok(Some(text));
            }
            // As in a shell, Ctrl-C drops the line.
            Err(ReadlineError::Interrupted) => {
                terminal::note("(Ctrl-D or /exit to leave)");
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

/// `$XDG_STATE_HOME/rocmforge/history`.
fn history_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("rocmforge/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_start_with_a_slash_and_are_one_word() {
        assert!(matches!(Line::parse("  "), Line::Empty));
        assert!(matches!(Line::parse("/help"), Line::Help));
        assert!(matches!(Line::parse(" /reset "), Line::Reset));
        assert!(matches!(Line::parse("/stats"), Line::Stats));
        assert!(matches!(Line::parse("/bye"), Line::Exit));
        assert!(matches!(Line::parse("/nothing"), Line::Unknown("/nothing")));
        assert!(matches!(Line::parse("/usr/bin is a folder"), Line::Say(_)));
        assert!(matches!(Line::parse("hello"), Line::Say("hello")));
    }
}
