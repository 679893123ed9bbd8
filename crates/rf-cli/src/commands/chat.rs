//! The interactive chat of `rf-cli run`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rocmforge::engine::{Engine, GenerateOptions, Outcome, Session, Speculation, StopReason};
use rocmforge::messages::{ChatPrompt, Message, Tool};
use serde_json::{Value, json};

use super::answer::{OutputForm, conversation_prompt, extras, stream, summary};
use super::input::Input;
use crate::failure::{bad_input, sentence};
use crate::terminal::{self, Palette};
use crate::{prefix_cache, sources};

/// A conversation at the terminal.
pub(super) struct Chat {
    engine: Engine,
    session: Session,
    setup: Setup,
    /// The messages of the conversation, the system message first.
    messages: Vec<Message>,
    last: Option<Outcome>,
    /// The user knows that old messages are left out.
    knows_of_limit: bool,
}

/// The settings of a chat.
pub(super) struct Setup {
    pub(super) options: GenerateOptions,
    pub(super) form: Option<OutputForm>,
    pub(super) speculation: Option<Speculation>,
    pub(super) system: Option<String>,
    pub(super) tools: Vec<Tool>,
    pub(super) load_time: Duration,
    /// Print no metrics.
    pub(super) quiet: bool,
    /// End after the first answer.
    pub(super) single_turn: bool,
}

/// A line of input, parsed.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Empty,
    Say(&'a str),
    Help,
    Reset,
    Stats,
    Exit,
    Regenerate,
    /// A new system message, or none.
    System(&'a str),
    Save(&'a str),
    Load(&'a str),
    Model,
    /// A command without the argument that it needs, or with one that it does not take.
    Misused(&'static str),
    Unknown(&'a str),
}

const HELP: &str = "\
/help           show this list
/reset          forget the conversation
/regenerate     answer the last message again
/system TEXT    set the system message; without TEXT, remove it
/save FILE      write the conversation to FILE, as JSON
/load FILE      continue the conversation in FILE
/model          show the model
/stats          show throughput, memory and use of the context
/exit, /quit    leave (as does Ctrl-D)
A line that ends with \\ continues in the next one. Ctrl-C stops an answer.";

impl Chat {
    pub(super) fn new(engine: Engine, setup: Setup) -> Self {
        let messages = setup.system.iter().map(|text| Message::new("system", text)).collect();
        let session = engine.session();
        Self { session, engine, setup, messages, last: None, knows_of_limit: false }
    }

    /// Chats until the user leaves, and returns the engine.
    pub(super) fn run(mut self) -> Result<Engine> {
        if self.engine.model().chat_template().is_none() {
            return Err(bad_input!(
                "the model has no chat template, so it cannot chat: give a text to continue, as in \
                 rf-cli run -m FILE \"Once upon a time\", or --chat-template"
            ));
        }
        let mut input = Input::open()?;
        self.greet();
        while let Some(text) = input.message()? {
            match Line::parse(&text) {
                Line::Empty => continue,
                Line::Say(text) => self.say(text)?,
                Line::Help => terminal::note(HELP),
                Line::Reset => self.reset(),
                Line::Stats => self.stats(),
                Line::Exit => break,
                Line::Regenerate => self.regenerate()?,
                Line::System(text) => self.set_system(text),
                Line::Save(path) => self.save(path),
                Line::Load(path) => self.load(path),
                Line::Model => self.show_model(),
                Line::Misused(usage) => terminal::note(format_args!("use it as {usage}")),
                Line::Unknown(command) => {
                    let command = terminal::shown(command);
                    terminal::note(format_args!("unknown command {command}: see /help"));
                }
            }
            if self.setup.single_turn && self.last.is_some() {
                break;
            }
        }
        input.close();
        Ok(self.engine)
    }

    fn greet(&self) {
        let metadata = self.engine.model().gguf().metadata();
        let name =
            metadata.get("general.name").and_then(|name| name.as_str()).unwrap_or("the model");
        let palette = Palette::stderr();
        terminal::note(format_args!(
            "{} {}",
            palette.bold(terminal::shown(name)),
            palette.dim(format_args!(
                "({} tokens of context; /help for help, Ctrl-D to leave)",
                self.engine.context_tokens()
            ))
        ));
    }

    fn say(&mut self, text: &str) -> Result<()> {
        self.messages.push(Message::new("user", text));
        if !self.answer()? {
            // The conversation so far is valid.
            self.messages.pop();
        }
        Ok(())
    }

    /// Drops the last answer and makes another one.
    fn regenerate(&mut self) -> Result<()> {
        let Some(asked) = self.messages.iter().rposition(|message| message.role == "user") else {
            terminal::note("there is no message to answer");
            return Ok(());
        };
        let answers = self.messages.split_off(asked + 1);
        if !self.answer()? {
            self.messages.extend(answers);
        }
        Ok(())
    }

    /// Answers the last message. Returns false if that failed and was reported.
    fn answer(&mut self) -> Result<bool> {
        let ChatPrompt { ids, rendered_tokens, prompt } = match self.fitting_prompt() {
            Ok(fitting) => fitting,
            Err(error) => {
                report(&error);
                return Ok(false);
            }
        };
        let constraint = self.setup.form.as_ref().map(|form| form.constraint(Some(&prompt)));
        let constraint = constraint.transpose()?;
        let Setup { options, speculation, quiet, .. } = &mut self.setup;
        options.rendered_tokens = rendered_tokens;
        let extras = extras(constraint, speculation.as_mut());
        let (engine, session) = (&mut self.engine, &mut self.session);
        let result = stream(engine, session, (ids.into(), Some(&prompt)), options, extras, *quiet);
        let (outcome, answer) = match result {
            Ok(answered) => answered,
            Err(error) if error.is::<rocmforge::engine::Error>() => {
                report(&error);
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if outcome.stop_reason == StopReason::Cancelled {
            terminal::note(Palette::stderr().dim("(stopped)"));
        }
        // With its reasoning, which the template leaves out of later turns where it should.
        self.messages.push(answer.into());
        if !self.setup.quiet {
            terminal::note(Palette::stderr().dim(summary(&outcome.timings, self.memory_bytes())));
        }
        self.last = Some(outcome);
        Ok(true)
    }

    /// The prompt of the conversation without its oldest turns, if the context has no room for
    /// them. A quarter of the context is left for the answer.
    fn fitting_prompt(&mut self) -> Result<ChatPrompt> {
        let context_tokens = self.engine.context_tokens();
        let most = context_tokens - context_tokens / 4;
        let mut kept = self.messages.clone();
        loop {
            let prompt = conversation_prompt(self.engine.model(), &kept, &self.setup.tools)?;
            if prompt.ids.len() <= most || !drop_oldest_turn(&mut kept) {
                return Ok(prompt);
            }
            if !self.knows_of_limit {
                self.knows_of_limit = true;
                terminal::note(Palette::stderr().dim(format_args!(
                    "(the context of {context_tokens} tokens is full: from now on the model forgets \
                     the oldest messages; -c gives it a larger one)"
                )));
            }
        }
    }

    fn reset(&mut self) {
        self.messages.retain(|message| message.role == "system");
        self.forget("the conversation is forgotten");
    }

    fn set_system(&mut self, text: &str) {
        self.messages.retain(|message| message.role != "system");
        if text.is_empty() {
            terminal::note("the system message is removed");
        } else {
            self.messages.insert(0, Message::new("system", text));
            terminal::note("the system message is set");
        }
    }

    fn forget(&mut self, note: &str) {
        self.session.reset();
        self.last = None;
        self.knows_of_limit = false;
        terminal::note(note);
    }

    fn save(&self, path: &str) {
        let messages: Vec<_> = self.messages.iter().map(message_json).collect();
        let text = format!("{:#}\n", json!({ "messages": messages }));
        let path = Path::new(path);
        let written = sources::check_output(path).and_then(|()| {
            Ok(rf_profile::replace_file(path, |out| out.write_all(text.as_bytes()))?)
        });
        match written {
            Ok(()) => terminal::note(format_args!("{} messages are saved", messages.len())),
            Err(error) => report(&error),
        }
    }

    fn load(&mut self, path: &str) {
        match read_conversation(Path::new(path)) {
            Ok(messages) => {
                self.messages = messages;
                let count = self.messages.len();
                self.forget(&format!("the conversation has {count} messages"));
            }
            Err(error) => report(&error),
        }
    }

    fn show_model(&self) {
        let model = self.engine.model();
        let metadata = model.gguf().metadata();
        let name = metadata.str("general.name").ok().flatten().unwrap_or("without a name");
        let path = model.gguf().paths().first();
        let path = path.map_or("built-in".into(), |path| path.to_string_lossy());
        terminal::note(format_args!(
            "{}: {}, {}, {} layers; leave and give another one with -m",
            terminal::shown(&path),
            terminal::shown(name),
            model.config().architecture,
            model.config().num_layers()
        ));
    }

    fn stats(&self) {
        if let Some(last) = &self.last {
            terminal::note(format_args!(
                "last answer: {}, seed {}",
                summary(&last.timings, self.memory_bytes()),
                last.seed
            ));
        }
        if let Some(line) = prefix_cache::line(&self.engine) {
            terminal::note(line);
        }
        let memory = self.engine.memory();
        terminal::note(format_args!(
            "context: {} of {} tokens in {} messages; memory: weights {}, KV cache {}{}, buffers {}; loaded in {:.2} s",
            self.session.len(),
            self.engine.context_tokens(),
            self.messages.len(),
            terminal::bytes(memory.weights_bytes),
            terminal::bytes(memory.kv_bytes),
            match memory.states_bytes {
                0 => String::new(),
                bytes => format!(", recurrent states {}", terminal::bytes(bytes)),
            },
            terminal::bytes(memory.buffers_bytes),
            self.setup.load_time.as_secs_f64()
        ));
    }

    fn memory_bytes(&self) -> u64 {
        rocmforge::memory_bytes(&self.engine, self.setup.speculation.as_ref())
    }
}

/// Removes the oldest turn: a message of the user and what follows it, up to the next one. Returns
/// false if only the last turn is left.
fn drop_oldest_turn(messages: &mut Vec<Message>) -> bool {
    let is_user = |message: &Message| message.role == "user";
    let mut turns = (0..messages.len()).filter(|&index| is_user(&messages[index]));
    match (turns.next(), turns.next()) {
        (Some(first), Some(second)) => {
            messages.drain(first..second);
            true
        }
        _ => false,
    }
}

/// A message in a file. Tool calls are not kept: their results would be missing.
fn message_json(message: &Message) -> Value {
    let mut json = json!({"role": message.role, "content": message.content});
    if let Some(reasoning) = &message.reasoning {
        json["reasoning_content"] = reasoning.as_str().into();
    }
    json
}

fn read_conversation(path: &Path) -> Result<Vec<Message>> {
    let text = sources::file_text(path)?;
    let malformed = || {
        bad_input!(
            "'{}' is not a conversation: expected {{\"messages\": [{{\"role\": …, \"content\": …}}]}}",
            path.display()
        )
    };
    let json: Value = serde_json::from_str(&text).map_err(|_| malformed())?;
    let messages = json["messages"].as_array().ok_or_else(malformed)?;
    let message = |message: &Value| {
        let (role, content) = (message["role"].as_str()?, message["content"].as_str()?);
        let reasoning = message["reasoning_content"].as_str().map(str::to_owned);
        Some(Message { reasoning, ..Message::new(role, content) })
    };
    messages.iter().map(message).collect::<Option<_>>().ok_or_else(malformed)
}

fn report(error: &anyhow::Error) {
    let error = sentence(error);
    terminal::note(format_args!("{} {error}", Palette::stderr().red("error:")));
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let line = line.trim();
        if line.is_empty() {
            return Self::Empty;
        }
        let (command, argument) = match line.split_once(char::is_whitespace) {
            Some((command, argument)) => (command, argument.trim()),
            None => (line, ""),
        };
        let alone = |line, usage| if argument.is_empty() { line } else { Self::Misused(usage) };
        match command {
            "/help" | "/?" => alone(Self::Help, "/help"),
            "/reset" | "/clear" => alone(Self::Reset, "/reset"),
            "/stats" => alone(Self::Stats, "/stats"),
            "/exit" | "/quit" | "/bye" => alone(Self::Exit, "/exit"),
            "/regenerate" | "/regen" => alone(Self::Regenerate, "/regenerate"),
            "/model" => alone(Self::Model, "/model"),
            "/system" => Self::System(argument),
            "/save" if argument.is_empty() => Self::Misused("/save FILE"),
            "/save" => Self::Save(argument),
            "/load" if argument.is_empty() => Self::Misused("/load FILE"),
            "/load" => Self::Load(argument),
            // A path, or several lines of text, are a message.
            _ if command.starts_with('/') && !command[1..].contains('/') && argument.is_empty() => {
                Self::Unknown(command)
            }
            _ => Self::Say(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_start_with_a_slash() {
        assert_eq!(Line::parse("  "), Line::Empty);
        assert_eq!(Line::parse("/help"), Line::Help);
        assert_eq!(Line::parse(" /reset "), Line::Reset);
        assert_eq!(Line::parse("/reset now"), Line::Misused("/reset"));
        assert_eq!(Line::parse("/stats"), Line::Stats);
        assert_eq!(Line::parse("/bye"), Line::Exit);
        assert_eq!(Line::parse("/system Be brief. "), Line::System("Be brief."));
        assert_eq!(Line::parse("/system"), Line::System(""));
        assert_eq!(Line::parse("/save a b.json"), Line::Save("a b.json"));
        assert_eq!(Line::parse("/load"), Line::Misused("/load FILE"));
        assert_eq!(Line::parse("/regenerate"), Line::Regenerate);
        assert_eq!(Line::parse("/nothing"), Line::Unknown("/nothing"));
        assert_eq!(Line::parse("/usr/bin is a folder"), Line::Say("/usr/bin is a folder"));
        assert_eq!(Line::parse("hello"), Line::Say("hello"));
    }

    #[test]
    fn the_oldest_turns_go_first_and_the_system_message_stays() {
        let roles = |messages: &[Message]| {
            messages.iter().map(|m| m.content.clone()).collect::<Vec<_>>().join(" ")
        };
        let mut messages: Vec<_> = [
            ("system", "s"),
            ("user", "a"),
            ("assistant", "A"),
            ("user", "b"),
            ("assistant", "B"),
            ("user", "c"),
        ]
        .map(|(role, text)| Message::new(role, text))
        .into();
        assert!(drop_oldest_turn(&mut messages));
        assert_eq!(roles(&messages), "s b B c");
        assert!(drop_oldest_turn(&mut messages));
        assert_eq!(roles(&messages), "s c");
        assert!(!drop_oldest_turn(&mut messages));
        assert_eq!(roles(&messages), "s c");
    }
}
