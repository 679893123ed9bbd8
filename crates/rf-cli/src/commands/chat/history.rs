//! The messages of a chat: pictures, files, and the part that the model still sees.

use std::path::Path;

use anyhow::Result;
use rocmforge::Media;
use rocmforge::messages::Message;
use serde_json::{Value, json};

use crate::failure::bad_input;
use crate::sources;

/// A message with the pictures that come before its text.
#[derive(Clone, Debug)]
pub(super) struct HistoryEntry {
    message: Message,
    files: Vec<Media>,
}

/// The messages of a conversation, the system message first.
#[derive(Debug, Default)]
pub(super) struct ChatHistory {
    entries: Vec<HistoryEntry>,
    /// The oldest turns, which the model does not see any more. A turn is a message of the user and
    /// what follows it, up to the next one.
    forgotten_turns: usize,
}

impl ChatHistory {
    /// An empty conversation.
    pub(super) fn new(system: Option<&str>) -> Self {
        let mut history = Self::default();
        history.set_system(system);
        history
    }

    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The turns that the model does not see.
    pub(super) fn forgotten_turns(&self) -> usize {
        self.forgotten_turns
    }

    /// Leaves out so many of the oldest turns from now on.
    pub(super) fn forget_turns(&mut self, turns: usize) {
        self.forgotten_turns = turns;
    }

    pub(super) fn push(&mut self, message: Message, files: Vec<Media>) {
        self.entries.push(HistoryEntry { message, files });
    }

    /// Sets or removes the system message.
    pub(super) fn set_system(&mut self, text: Option<&str>) {
        self.entries.retain(|entry| entry.message.role != "system");
        if let Some(text) = text {
            let message = Message::new("system", text);
            self.entries.insert(0, HistoryEntry { message, files: Vec::new() });
        }
    }

    /// Removes all messages but that of the system.
    pub(super) fn clear(&mut self) {
        self.entries.retain(|entry| entry.message.role == "system");
        self.forgotten_turns = 0;
    }

    /// Removes the last message of the user and what follows it.
    pub(super) fn pop_turn(&mut self) -> Option<(String, Vec<Media>)> {
        let mut turn = self.entries.split_off(self.last_question()?).into_iter();
        self.forgotten_turns = self.forgotten_turns.min(self.turns().len().saturating_sub(1));
        turn.next().map(|entry| (entry.message.content, entry.files))
    }

    /// Removes what follows the last message of the user; `None` without such a message.
    pub(super) fn pop_answer(&mut self) -> Option<Vec<HistoryEntry>> {
        let asked = self.last_question()?;
        Some(self.entries.split_off(asked + 1))
    }

    /// Adds messages that were removed.
    pub(super) fn restore(&mut self, entries: Vec<HistoryEntry>) {
        self.entries.extend(entries);
    }

    /// The text of the last answer.
    pub(super) fn last_answer(&self) -> Option<&str> {
        let mut entries = self.entries.iter().rev();
        let answer = entries.find(|entry| entry.message.role == "assistant")?;
        Some(&answer.message.content)
    }

    /// The number of turns.
    pub(super) fn num_turns(&self) -> usize {
        self.turns().len()
    }

    /// The messages without the `forgotten` oldest turns, with marks of their pictures and sounds.
    pub(super) fn seen(&self, forgotten: usize) -> (Vec<Message>, Vec<Media>) {
        let turns = self.turns();
        let start = turns.first().copied().unwrap_or(self.entries.len());
        let kept = turns.get(forgotten.min(turns.len().saturating_sub(1)));
        let kept = kept.copied().unwrap_or(self.entries.len());
        let entries = || self.entries[..start].iter().chain(&self.entries[kept..]);
        let marked = |entry: &HistoryEntry| {
            let marks = rocmforge::media_marker().repeat(entry.files.len());
            Message { content: marks + &entry.message.content, ..entry.message.clone() }
        };
        let files = entries().flat_map(|entry| entry.files.iter().cloned()).collect();
        (entries().map(marked).collect(), files)
    }

    /// Writes the messages to a file; returns their number. Pictures and sounds are left out.
    pub(super) fn save(&self, path: &Path) -> Result<usize> {
        let messages: Vec<_> =
            self.entries.iter().map(|entry| message_json(&entry.message)).collect();
        let text = format!("{:#}\n", json!({ "messages": messages }));
        sources::check_output(path)?;
        rf_profile::replace_file(path, |out| out.write_all(text.as_bytes()))?;
        Ok(messages.len())
    }

    /// Reads the messages of a file.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text = sources::file_text(path)?;
        let malformed = || {
            bad_input!(
                "'{}' is not a conversation: expected {{\"messages\": [{{\"role\": …, \"content\": …}}]}}",
                path.display()
            )
        };
        let json: Value = serde_json::from_str(&text).map_err(|_| malformed())?;
        let messages = json["messages"].as_array().ok_or_else(malformed)?;
        let entry =
            |message: &Value| Some(HistoryEntry { message: read(message)?, files: Vec::new() });
        let entries: Option<_> = messages.iter().map(entry).collect();
        Ok(Self { entries: entries.ok_or_else(malformed)?, forgotten_turns: 0 })
    }

    fn last_question(&self) -> Option<usize> {
        self.entries.iter().rposition(|entry| entry.message.role == "user")
    }

    /// The places of the messages of the user.
    fn turns(&self) -> Vec<usize> {
        let is_user = |&index: &usize| self.entries[index].message.role == "user";
        (0..self.entries.len()).filter(is_user).collect()
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

/// A message of a file. As clients of `OpenAI`'s API write them, the content may be null or a list
/// of parts, of which the texts are taken.
fn read(message: &Value) -> Option<Message> {
    let content = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    let reasoning = message["reasoning_content"].as_str().map(str::to_owned);
    Some(Message { reasoning, ..Message::new(message["role"].as_str()?, &content) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(messages: &[(&str, &str)]) -> ChatHistory {
        let mut history = ChatHistory::default();
        for (role, text) in messages {
            history.push(Message::new(*role, *text), Vec::new());
        }
        history
    }

    fn seen(history: &ChatHistory, forgotten: usize) -> String {
        let (messages, _) = history.seen(forgotten);
        messages.iter().map(|message| message.content.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_oldest_turns_are_forgotten_and_the_system_message_and_the_last_turn_stay() {
        let mut history = history(&[
            ("system", "s"),
            ("user", "a"),
            ("assistant", "A"),
            ("user", "b"),
            ("assistant", "B"),
            ("user", "c"),
        ]);
        let all: Vec<_> = (0..4).map(|forgotten| seen(&history, forgotten)).collect();
        assert_eq!(all, ["s a A b B c", "s b B c", "s c", "s c"]);
        assert_eq!(history.pop_turn().unwrap().0, "c");
        assert_eq!(history.pop_turn().unwrap().0, "b");
        assert_eq!(seen(&history, 0), "s a A");
        assert_eq!(history.last_answer(), Some("A"));
    }

    #[test]
    fn pictures_stay_with_their_message() {
        let mut history = history(&[("user", "a"), ("assistant", "A")]);
        history.push(Message::new("user", "b"), vec![Media::image(*b"x"), Media::image(*b"y")]);
        let mark = rocmforge::media_marker();
        let (messages, files) = history.seen(1);
        assert_eq!((&*messages[0].content, files.len()), (&*format!("{mark}{mark}b"), 2));
        let (text, files) = history.pop_turn().unwrap();
        assert_eq!((&*text, files.len()), ("b", 2));
    }

    #[test]
    fn messages_of_other_clients_are_read() {
        let read = |json: &str| read(&serde_json::from_str(json).unwrap());
        let parts = r#"{"role": "user", "content": [{"type": "text", "text": "a"},
            {"type": "image_url"}, {"type": "text", "text": "b"}]}"#;
        assert_eq!(read(parts).unwrap().content, "a\nb");
        assert_eq!(read(r#"{"role": "assistant", "content": null}"#).unwrap().content, "");
        assert!(read(r#"{"role": "user", "content": 5}"#).is_none());
        assert!(read(r#"{"content": "x"}"#).is_none());
    }
}
