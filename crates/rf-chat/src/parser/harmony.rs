//! gpt-oss: an answer is a sequence of messages, each with a channel and perhaps a recipient.

use super::body::Body;
use super::call::{CallStep, Context};
use super::json_call::{ArgumentsReader, JsonCall};
use super::sink::Channel;
use crate::tool::is_name;

/// The longest header of a message, in bytes.
const MAX_HEADER_BYTES: usize = 512;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// End a message.
const ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", START, CHANNEL];
/// Ends of a message that do not begin the next one.
const PLAIN_ENDS: [&str; 3] = ["<|end|>", "<|call|>", "<|return|>"];
/// Begin a header. The prompt ends with `<|start|>assistant`.
const HEADS: [&str; 4] = [" to=", START, CHANNEL, MESSAGE];

/// The state of an answer.
#[derive(Debug, Default)]
pub(super) struct Harmony {
    state: State,
    /// The text of the header, or what may be the beginning of a marker.
    pending: String,
    /// The header and the text of a call whose arguments have not begun.
    raw: String,
    /// The channel of the last text since the last call.
    last: Option<Channel>,
    /// True while the message has no text.
    is_new: bool,
    /// True if an object as content is a call if it names a tool.
    is_bare: bool,
}

#[derive(Debug, Default)]
enum State {
    /// Before the first header, or the text of an answer without any.
    #[default]
    Start,
    /// Between messages.
    Between,
    Header,
    Text(Channel),
    /// The arguments of a call.
    Call {
        name: String,
        body: Option<Body>,
    },
}

impl Harmony {
    pub(super) fn new(in_reasoning: bool, is_bare: bool) -> Self {
        let state = if in_reasoning { State::Text(Channel::Reasoning) } else { State::Start };
        Self { state, is_bare, ..Self::default() }
    }

    pub(super) fn push(&mut self, c: char, context: &mut Context<'_>) {
        self.pending.push(c);
        loop {
            if self.pending.is_empty() {
                return;
            }
            match &self.state {
                State::Start | State::Between => {
                    if self.is_any(&HEADS) {
                        self.state = State::Header;
                        // A message without a header is whole already.
                        if self.pending != MESSAGE {
                            return;
                        }
                        continue;
                    }
                    // The end of a call that its arguments have ended.
                    if self.is_any(&PLAIN_ENDS) && matches!(self.state, State::Between) {
                        return self.pending.clear();
                    }
                    if self.may_be_any(&HEADS) || self.may_be_any(&PLAIN_ENDS) {
                        return;
                    }
                    let c = self.pending.remove(0);
                    // Models put white space between messages.
                    if !(matches!(self.state, State::Between) && c.is_whitespace()) {
                        self.begin_text(Channel::Content);
                        self.message_text(Channel::Content, c, context);
                    }
                }
                State::Header => {
                    if let Some(header) = self.pending.strip_suffix(MESSAGE) {
                        let (header, raw) = (header.to_owned(), self.pending.clone());
                        self.pending.clear();
                        self.begin_message(&header, raw, context);
                    } else if self.header_fails() {
                        let text = std::mem::take(&mut self.pending);
                        self.begin_text(Channel::Content);
                        text.chars().for_each(|c| self.text(Channel::Content, c, context));
                    }
                    return;
                }
                State::Text(channel) => {
                    let channel = *channel;
                    if self.is_any(&ENDS) {
                        return self.end_message(context);
                    }
                    if self.may_be_any(&ENDS) {
                        return;
                    }
                    let c = self.pending.remove(0);
                    self.message_text(channel, c, context);
                }
                // Within the arguments, what looks like a marker is text of a string.
                State::Call { body, .. } => {
                    if body.is_none() && self.is_any(&ENDS) {
                        return self.end_message(context);
                    }
                    if body.is_none() && self.may_be_any(&ENDS) {
                        return;
                    }
                    let c = self.pending.remove(0);
                    self.argument(c, context);
                }
            }
        }
    }

    fn is_any(&self, markers: &[&str]) -> bool {
        markers.contains(&self.pending.as_str())
    }

    fn may_be_any(&self, markers: &[&str]) -> bool {
        markers.iter().any(|marker| marker.starts_with(&self.pending))
    }

    /// Returns true if the text cannot become a header.
    fn header_fails(&self) -> bool {
        self.pending.len() > MAX_HEADER_BYTES
            || PLAIN_ENDS.iter().any(|end| self.pending.ends_with(end))
    }

    /// Text follows.
    fn begin_text(&mut self, channel: Channel) {
        self.is_new = true;
        self.state = State::Text(channel);
    }

    /// A character of a message, which may begin an object that is a call.
    fn message_text(&mut self, channel: Channel, c: char, context: &mut Context<'_>) {
        let begins_call = self.is_bare && self.is_new && c == '{' && !context.tools.is_empty();
        if begins_call && channel == Channel::Content {
            let body = Some(Body::Json(JsonCall::new(true)));
            self.state = State::Call { name: String::new(), body };
            self.raw.clear();
            self.argument(c, context);
        } else {
            self.text(channel, c, context);
        }
    }

    /// A character of a message. Messages of one channel are paragraphs.
    fn text(&mut self, channel: Channel, c: char, context: &mut Context<'_>) {
        let continues = self.last.replace(channel) == Some(channel);
        if std::mem::take(&mut self.is_new) && continues {
            context.sink.exact(channel, '\n');
            context.sink.exact(channel, '\n');
        }
        context.sink.exact(channel, c);
    }

    fn begin_message(&mut self, header: &str, raw: String, context: &mut Context<'_>) {
        let recipient = recipient(header);
        let name = recipient.and_then(|to| match to.strip_prefix("functions.") {
            Some(name) => Some(name),
            None => context.tool(to).map(|tool| tool.name.as_str()),
        });
        if let Some(name) = name.filter(|name| is_name(name) && !context.tools.is_empty()) {
            self.raw = raw;
            self.state = State::Call { name: name.to_owned(), body: None };
        } else if channel(header) == Some("analysis") {
            self.begin_text(Channel::Reasoning);
        } else {
            self.begin_text(Channel::Content);
        }
    }

    fn argument(&mut self, c: char, context: &mut Context<'_>) {
        let State::Call { name, body } = &mut self.state else { return };
        let reported_bytes = context.sink.reported_bytes();
        let step = match body {
            Some(body) => body.push(c, context),
            None if c == '{' => {
                context.start_call(name);
                body.insert(Body::Arguments(ArgumentsReader::default())).push(c, context)
            }
            None if c.is_whitespace() => CallStep::Inside,
            None => CallStep::Invalid,
        };
        if context.sink.reported_bytes() > reported_bytes {
            self.raw.clear();
        } else if step != CallStep::Invalid {
            self.raw.push(c);
        }
        match step {
            CallStep::Inside => {}
            CallStep::Last => {
                context.sink.end_call();
                self.last = None;
                self.state = State::Between;
            }
            CallStep::Invalid => {
                context.sink.end_call();
                let raw = std::mem::take(&mut self.raw);
                self.begin_text(Channel::Content);
                raw.chars().for_each(|c| self.text(Channel::Content, c, context));
                // It may begin a marker.
                self.pending.insert(0, c);
            }
        }
    }

    /// At a marker that ends a message. Some of them begin the next one.
    fn end_message(&mut self, context: &mut Context<'_>) {
        if let State::Call { name, body } = &self.state {
            if body.is_none() {
                // A call without arguments.
                context.start_call(name);
                context.sink.arguments("{}");
                context.sink.complete_arguments();
            }
            context.sink.end_call();
            self.last = None;
        }
        self.state = if self.pending == START || self.pending == CHANNEL {
            State::Header
        } else {
            self.pending.clear();
            State::Between
        };
    }

    pub(super) fn finish(&mut self, context: &mut Context<'_>) {
        let pending = std::mem::take(&mut self.pending);
        let (channel, text) = match &self.state {
            State::Text(channel) => (*channel, pending),
            // White space after the last message.
            State::Between if pending.trim().is_empty() => return,
            State::Call { body: Some(_), .. } if context.sink.in_call() => {
                return context.sink.end_call();
            }
            State::Call { .. } => (Channel::Content, std::mem::take(&mut self.raw) + &pending),
            // The name of a channel was cut off.
            State::Header if is_cut_off(&pending) => return,
            State::Start | State::Between | State::Header => (Channel::Content, pending),
        };
        if !matches!(self.state, State::Text(_)) {
            self.begin_text(channel);
        }
        text.chars().for_each(|c| self.text(channel, c, context));
    }
}

/// `functions.f` of `<|channel|>commentary to=functions.f <|constrain|>json`.
fn recipient(header: &str) -> Option<&str> {
    word(header.split_once("to=")?.1)
}

/// `commentary` of the same.
fn channel(header: &str) -> Option<&str> {
    word(header.split_once(CHANNEL)?.1)
}

/// Returns true if `header` is the beginning of a header, so that no text is lost without it.
fn is_cut_off(header: &str) -> bool {
    let name = header.rsplit_once(CHANNEL).map_or("", |(_, name)| name);
    header.ends_with(START)
        || ["analysis", "commentary", "final"].iter().any(|channel| channel.starts_with(name))
            && header.contains(CHANNEL)
}

/// The text up to white space or a marker.
fn word(text: &str) -> Option<&str> {
    text.split(|c: char| c.is_whitespace() || c == '<').next().filter(|word| !word.is_empty())
}
