//! The interactive chat of `rf-cli run`.
//!
//! [`Chat`] is the conversation and its settings, [`ChatModel`] the model that answers. Another
//! model may take over the conversation (`/model`).

mod history;
mod line;
mod settings;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rocmforge::engine::{
    Engine, GenerateOptions, GenerationOutcome, MixedPrompt, Session, Speculation, StopReason,
};
use rocmforge::messages::{ChatPrompt, Conversation, Message};
use rocmforge::{Media, MediaEncoders, MediaKind, OpenModel};

use super::answer::{OutputForm, conversation_prompt, summary};
use super::display::{Presentation, Question, stream};
use super::input::{LineEditor, Typed, Words};
use crate::failure::{bad_input, sentence};
use crate::interrupt::Watch;
use crate::terminal::{self, Palette};
use crate::{media, prefix_cache};
use history::ChatHistory;
use line::{COMMANDS, ChatCommand, Line};
pub(super) use settings::ChatSettings;

/// A conversation at the terminal, and its settings.
pub(super) struct Chat {
    pub(super) options: GenerateOptions,
    pub(super) settings: ChatSettings,
    /// A conversation without messages, which has the tools.
    pub(super) base: Conversation,
    pub(super) presentation: Presentation,
    /// End after the first answer.
    pub(super) single_turn: bool,
    history: ChatHistory,
    /// Pictures and sounds of the next message.
    files: Vec<Media>,
    /// The text with which the next line begins.
    draft: String,
    last: Option<GenerationOutcome>,
}

/// A model that chats.
pub(super) struct ChatModel {
    engine: Engine,
    session: Session,
    speculation: Option<Speculation>,
    encoders: Option<Arc<MediaEncoders>>,
    form: Option<OutputForm>,
    load_time: Duration,
}

/// The end of a chat with a model.
pub(super) enum ChatEnd {
    /// The user leaves.
    Left,
    /// The chat goes on with this model.
    OtherModel(Box<OpenModel>),
}

/// The next thing to do.
enum Next {
    Input,
    Leave,
    Model(Box<OpenModel>),
}

/// Opens the file of a model.
type Open<'a> = &'a dyn Fn(&Path) -> Result<OpenModel>;

impl ChatModel {
    pub(super) fn new(
        loaded: rocmforge::LoadedModel,
        form: Option<OutputForm>,
        load_time: Duration,
    ) -> Self {
        let rocmforge::LoadedModel { engine, speculation, encoders, .. } = loaded;
        Self { session: engine.session(), engine, speculation, encoders, form, load_time }
    }

    pub(super) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn memory_bytes(&self) -> u64 {
        rocmforge::memory_bytes(&self.engine, self.speculation.as_ref())
    }

    fn name(&self) -> String {
        let metadata = self.engine.model().gguf().metadata();
        let name = metadata.str("general.name").ok().flatten().unwrap_or("the model");
        terminal::shown(name)
    }
}

/// Checks that a model chats.
pub(super) fn check_chats(model: &rocmforge::engine::Model) -> Result<()> {
    if model.chat_template().is_some() {
        return Ok(());
    }
    Err(bad_input!(
        "the model has no chat template, so it cannot chat: give a text to continue, as in \
         rf-cli run -m FILE \"Once upon a time\", or --chat-template"
    ))
}

impl Chat {
    pub(super) fn new(
        options: GenerateOptions,
        settings: ChatSettings,
        (system, base): (Option<&str>, Conversation),
        presentation: Presentation,
        single_turn: bool,
    ) -> Self {
        Self {
            options,
            settings,
            base,
            presentation,
            single_turn,
            history: ChatHistory::new(system),
            files: Vec::new(),
            draft: String::new(),
            last: None,
        }
    }

    /// Opens the editor for the lines of a chat.
    pub(super) fn input() -> Result<LineEditor> {
        let commands = COMMANDS
            .iter()
            .flat_map(|row| row.names.iter().map(|name| (*name, row.takes_path())))
            .collect();
        LineEditor::open(Words { commands, options: ("/set", ChatSettings::names()) })
    }

    /// Chats until the user leaves or wants another model.
    pub(super) fn run(
        &mut self,
        model: &mut ChatModel,
        input: &mut LineEditor,
        open: Open<'_>,
    ) -> Result<ChatEnd> {
        check_chats(model.engine.model())?;
        self.options.sampler = self.settings.sampler(model.engine.model())?;
        terminal::note(format_args!(
            "{} {}",
            Palette::stderr().bold(model.name()),
            Palette::stderr().dim(format_args!(
                "({} tokens of context; /help for help, Ctrl-D to leave)",
                model.engine.context_tokens()
            ))
        ));
        while let Some(typed) = input.message(&std::mem::take(&mut self.draft))? {
            let next = match &typed {
                Typed::Message(text) if text.trim().is_empty() => Next::Input,
                Typed::Message(text) => self.say(model, text)?,
                Typed::Line(line) => match Line::parse(line) {
                    Line::Empty => Next::Input,
                    Line::Say(text) => self.say(model, text)?,
                    Line::Do(command, argument) => self.obey(model, command, argument, open)?,
                    Line::Misused(row) => {
                        terminal::note(format_args!("use it as {}", row.usage()));
                        Next::Input
                    }
                    Line::Unknown(command) => {
                        let command = terminal::shown(command);
                        terminal::note(format_args!(
                            "unknown command {command}: see /help; a message that begins with a slash \
                             stands between \"\"\" and \"\"\""
                        ));
                        Next::Input
                    }
                },
            };
            match next {
                Next::Leave => break,
                Next::Model(open) => return Ok(ChatEnd::OtherModel(open)),
                Next::Input => {}
            }
            if self.single_turn && self.last.is_some() {
                break;
            }
        }
        Ok(ChatEnd::Left)
    }

    fn obey(
        &mut self,
        model: &mut ChatModel,
        command: ChatCommand,
        argument: &str,
        open: Open<'_>,
    ) -> Result<Next> {
        match command {
            ChatCommand::Help => terminal::note(line::help()),
            ChatCommand::Set if argument.is_empty() => terminal::note(ChatSettings::list()),
            ChatCommand::Set => self.set(model, argument),
            ChatCommand::System => self.set_system(argument),
            ChatCommand::Image => self.attach(model, MediaKind::Image, argument),
            ChatCommand::Audio => self.attach(model, MediaKind::Audio, argument),
            ChatCommand::Retry => self.retry(model)?,
            ChatCommand::Edit => self.edit(),
            ChatCommand::Undo => self.undo(),
            ChatCommand::Copy => self.copy()?,
            ChatCommand::Save => match self.history.save(Path::new(argument)) {
                Ok(count) => terminal::note(format_args!("{} saved", messages(count))),
                Err(error) => report(&error),
            },
            ChatCommand::Load => self.load(model, argument),
            ChatCommand::Model if argument.is_empty() => show_model(model),
            ChatCommand::Model => match open(Path::new(argument)) {
                Ok(open) => return Ok(Next::Model(Box::new(open))),
                Err(error) => report(&error),
            },
            ChatCommand::Reset => {
                self.history.clear();
                self.forget(model, "the conversation is forgotten");
            }
            ChatCommand::Stats => self.stats(model),
            ChatCommand::Exit => return Ok(Next::Leave),
        }
        Ok(Next::Input)
    }

    fn say(&mut self, model: &mut ChatModel, text: &str) -> Result<Next> {
        let files = std::mem::take(&mut self.files);
        self.history.push(Message::new("user", text), files);
        if !self.answer(model)? {
            // The conversation so far is valid.
            self.files = self.history.pop_turn().map(|(_, files)| files).unwrap_or_default();
        }
        Ok(Next::Input)
    }

    /// Drops the last answer and makes another one.
    fn retry(&mut self, model: &mut ChatModel) -> Result<()> {
        let Some(answers) = self.history.pop_answer() else {
            terminal::note("there is no message to answer");
            return Ok(());
        };
        if !self.answer(model)? {
            self.history.restore(answers);
        }
        Ok(())
    }

    /// Removes the last message and its answer, and lets the user edit the message.
    fn edit(&mut self) {
        match self.history.pop_turn() {
            Some((text, files)) => {
                self.draft = text;
                self.files = files;
            }
            None => terminal::note("there is no message to edit"),
        }
    }

    fn undo(&mut self) {
        match self.history.pop_turn() {
            Some(_) => terminal::note(format_args!(
                "the last message is forgotten: {} left",
                messages(self.history.len())
            )),
            None => terminal::note("there is no message to forget"),
        }
    }

    /// Copies the last answer with a sequence that terminals understand, also through SSH.
    fn copy(&self) -> Result<()> {
        let Some(answer) = self.history.last_answer() else {
            terminal::note("there is no answer to copy");
            return Ok(());
        };
        if !Palette::stdout().is_coloured() {
            terminal::note("this terminal cannot copy");
            return Ok(());
        }
        let mut out = io::stdout().lock();
        write!(out, "\x1b]52;c;{}\x07", BASE64_STANDARD.encode(answer))?;
        out.flush()?;
        terminal::note("the answer is copied, if the terminal allows it (OSC 52)");
        Ok(())
    }

    fn set(&mut self, model: &ChatModel, text: &str) {
        let set = self.settings.set(text);
        let set = set.and_then(|settings| Ok((settings.sampler(model.engine.model())?, settings)));
        match set {
            Ok((sampler, settings)) => {
                self.options.sampler = sampler;
                self.options.max_tokens = settings.max_tokens();
                self.settings = settings;
                terminal::note(format_args!("set for the next answers: {}", terminal::shown(text)));
            }
            Err(error) => report(&error),
        }
    }

    fn attach(&mut self, model: &ChatModel, kind: MediaKind, path: &str) {
        let (missing, read): (_, fn(&Path) -> Result<Media>) = match kind {
            MediaKind::Image => (rocmforge::Error::NoProjector, media::image),
            MediaKind::Audio => (rocmforge::Error::NoAudioProjector, media::audio),
        };
        if !model.encoders.as_ref().is_some_and(|encoders| encoders.encodes(kind)) {
            report(&missing.into());
            return;
        }
        match read(Path::new(path)) {
            Ok(file) => {
                self.files.push(file);
                let counts = [
                    (MediaKind::Image, "picture", "pictures"),
                    (MediaKind::Audio, "sound", "sounds"),
                ];
                let counts = counts.into_iter().filter_map(|(kind, one, many)| {
                    let count = self.files.iter().filter(|file| file.kind() == kind).count();
                    let noun = if count == 1 { one } else { many };
                    (count > 0).then(|| format!("{count} {noun}"))
                });
                let counts: Vec<String> = counts.collect();
                terminal::note(format_args!("the next message has {}", counts.join(" and ")));
            }
            Err(error) => report(&error),
        }
    }

    /// Answers the last message. Returns false if there is no answer: it failed, which is reported,
    /// or was stopped before its start.
    fn answer(&mut self, model: &mut ChatModel) -> Result<bool> {
        let (ChatPrompt { rendered_tokens, prompt, .. }, mixed) = match self.fitting_prompt(model) {
            Ok(fitting) => fitting,
            Err(error) => {
                report(&error);
                return Ok(false);
            }
        };
        let constraint = model.form.as_ref();
        let constraint = constraint.map_or(Ok(None), |form| form.constraint(Some(&prompt)))?;
        self.options.rendered_tokens = rendered_tokens;
        let (engine, session) = (&mut model.engine, &mut model.session);
        let speculation = model.speculation.as_mut();
        let (chat, shown) = (Some(&prompt), None);
        let question = Question { prompt: mixed, chat, shown, constraint, speculation };
        let watch = Watch::of_chat();
        let result = stream(engine, session, question, &self.options, self.presentation, &watch);
        drop(watch);
        let (outcome, answer) = match result {
            Ok(answered) => answered,
            Err(error) if error.is::<rocmforge::engine::Error>() => {
                report(&error);
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if outcome.stop_reason == StopReason::Cancelled {
            let palette = Palette::stderr();
            if outcome.ids.is_empty() {
                terminal::note(palette.dim("(stopped before the answer: the message is left out)"));
                return Ok(false);
            }
            terminal::note(palette.dim("(stopped)"));
        }
        // With its reasoning, which the template leaves out of later turns where it should.
        self.history.push(answer.into(), Vec::new());
        if !self.presentation.quiet {
            let metrics = summary(&outcome.timings, model.memory_bytes());
            terminal::note(Palette::stderr().dim(metrics));
        }
        self.last = Some(outcome);
        Ok(true)
    }

    /// The prompt of the conversation. If it takes more than three quarters of the context, as many
    /// of the oldest turns are left out as leave half of it, from now on: later turns then find
    /// their beginning in the cache.
    fn fitting_prompt(&mut self, model: &ChatModel) -> Result<(ChatPrompt, MixedPrompt)> {
        let context_tokens = model.engine.context_tokens();
        let forgotten = self.history.forgotten_turns();
        let whole = self.prompt(model, forgotten)?;
        if whole.1.len() <= context_tokens - context_tokens / 4 {
            return Ok(whole);
        }
        // The last turn stays, even if it does not fit into a half: it may fit into the whole.
        let last = self.history.num_turns().saturating_sub(1).max(forgotten);
        let (mut too_few, mut turns) = (forgotten, last);
        let mut fitting = None;
        while too_few + 1 < turns {
            let middle = too_few.midpoint(turns);
            let prompt = self.prompt(model, middle)?;
            if prompt.1.len() <= context_tokens / 2 {
                (turns, fitting) = (middle, Some(prompt));
            } else {
                too_few = middle;
            }
        }
        let prompt = match fitting {
            Some(prompt) => prompt,
            None => self.prompt(model, turns)?,
        };
        if turns > forgotten {
            if forgotten == 0 {
                terminal::note(Palette::stderr().dim(format_args!(
                    "(the context of {context_tokens} tokens is full: from now on the model forgets the \
                     oldest messages; -c gives it a larger one)"
                )));
            }
            self.history.forget_turns(turns);
        }
        Ok(prompt)
    }

    /// The prompt without so many of the oldest turns.
    fn prompt(&self, model: &ChatModel, forgotten: usize) -> Result<(ChatPrompt, MixedPrompt)> {
        let (messages, files) = self.history.seen(forgotten);
        let prompt = conversation_prompt(model.engine.model(), &messages, &self.base)?;
        let mixed = if files.is_empty() {
            prompt.ids.clone().into()
        } else {
            let text = &prompt.prompt.text;
            let encoders = model.encoders.as_deref();
            rocmforge::mixed_prompt(model.engine.model(), encoders, text, &files)?
        };
        Ok((prompt, mixed))
    }

    fn set_system(&mut self, text: &str) {
        self.history.set_system(Some(text).filter(|text| !text.is_empty()));
        let state = if text.is_empty() { "removed" } else { "set" };
        terminal::note(format_args!("the system message is {state}"));
    }

    fn forget(&mut self, model: &mut ChatModel, note: &str) {
        model.session.reset();
        self.last = None;
        terminal::note(note);
    }

    fn load(&mut self, model: &mut ChatModel, path: &str) {
        match ChatHistory::load(Path::new(path)) {
            Ok(history) => {
                self.history = history;
                let count = messages(self.history.len());
                self.forget(model, &format!("the conversation has {count}"));
            }
            Err(error) => report(&error),
        }
    }

    fn stats(&self, model: &ChatModel) {
        if let Some(last) = &self.last {
            terminal::note(format_args!(
                "last answer: {}, seed {}",
                summary(&last.timings, model.memory_bytes()),
                last.seed
            ));
        }
        if let Some(line) = prefix_cache::line(&model.engine) {
            terminal::note(line);
        }
        let memory = model.engine.memory();
        terminal::note(format_args!(
            "context: {} of {} tokens in {}; memory: weights {}, KV cache {}{}, buffers {}; loaded in {:.2} s",
            model.session.len(),
            model.engine.context_tokens(),
            messages(self.history.len()),
            terminal::bytes(memory.weights_bytes),
            terminal::bytes(memory.kv_bytes),
            match memory.states_bytes {
                0 => String::new(),
                bytes => format!(", recurrent states {}", terminal::bytes(bytes)),
            },
            terminal::bytes(memory.buffers_bytes),
            model.load_time.as_secs_f64()
        ));
    }
}

fn show_model(model: &ChatModel) {
    let name = model.name();
    let model = model.engine.model();
    let path = model.gguf().paths().first();
    let path = path.map_or("built-in".into(), |path| path.to_string_lossy());
    terminal::note(format_args!(
        "{}: {name}, {}, {} layers; /model MODEL continues with another one",
        terminal::shown(&path),
        model.config().architecture,
        model.config().num_layers()
    ));
}

fn messages(count: usize) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}

/// Prints an error, after which the chat goes on.
pub(super) fn report(error: &anyhow::Error) {
    let error = sentence(error);
    terminal::note(format_args!("{} {error}", Palette::stderr().red("error:")));
}
