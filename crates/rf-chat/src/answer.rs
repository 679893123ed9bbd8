//! The results of a parser: deltas, and the answer that is their sum.

use serde_json::Value;

use crate::message::{Message, MessageCall};

/// A piece of a generated answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text for the user.
    Content(String),
    /// Text of the model's reasoning.
    Reasoning(String),
    /// A tool call begins. Its arguments follow.
    CallStart {
        /// The number of the call in this answer, from 0.
        index: usize,
        /// An id that is new for each call.
        id: String,
        /// The name of the tool.
        name: String,
    },
    /// A piece of the arguments of a call. The pieces of a complete call form one JSON object.
    CallArguments {
        /// The number of the call.
        index: usize,
        /// Text to append to the arguments.
        fragment: String,
    },
    /// A tool call ends.
    CallEnd {
        /// The number of the call.
        index: usize,
        /// True if its arguments are a whole JSON object. They are not if the text ends or stops
        /// being a call within them.
        complete: bool,
    },
}

/// A tool call of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerCall {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments: a JSON object, or its beginning if the call is not complete.
    pub arguments: String,
    /// True if the arguments are a whole JSON object.
    pub complete: bool,
}

/// A whole answer: the sum of its deltas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Text for the user.
    pub content: String,
    /// The model's reasoning.
    pub reasoning: String,
    /// The tool calls, in order.
    pub calls: Vec<AnswerCall>,
}

impl Answer {
    /// Returns true if the answer asks for tools: it has calls, and all of them are complete.
    pub fn calls_tools(&self) -> bool {
        !self.calls.is_empty() && self.calls.iter().all(|call| call.complete)
    }
}

impl Extend<Delta> for Answer {
    fn extend<T: IntoIterator<Item = Delta>>(&mut self, deltas: T) {
        for delta in deltas {
            match delta {
                Delta::Content(text) => self.content += &text,
                Delta::Reasoning(text) => self.reasoning += &text,
                Delta::CallStart { id, name, .. } => {
                    self.calls.push(AnswerCall { id, name, ..AnswerCall::default() });
                }
                Delta::CallArguments { index, fragment } => {
                    if let Some(call) = self.calls.get_mut(index) {
                        call.arguments += &fragment;
                    }
                }
                Delta::CallEnd { index, complete } => {
                    if let Some(call) = self.calls.get_mut(index) {
                        call.complete = complete;
                    }
                }
            }
        }
    }
}

/// The message of the assistant in the next conversation. A call that was cut off is left out.
impl From<Answer> for Message {
    fn from(answer: Answer) -> Self {
        let call = |call: AnswerCall| {
            let arguments =
                serde_json::from_str(&call.arguments).unwrap_or(Value::String(call.arguments));
            MessageCall { id: call.id, name: call.name, arguments }
        };
        let calls = answer.calls.into_iter().filter(|call| call.complete);
        Self {
            reasoning: Some(answer.reasoning).filter(|text| !text.is_empty()),
            tool_calls: calls.map(call).collect(),
            ..Self::new("assistant", answer.content)
        }
    }
}

impl FromIterator<Delta> for Answer {
    fn from_iter<T: IntoIterator<Item = Delta>>(deltas: T) -> Self {
        let mut answer = Self::default();
        answer.extend(deltas);
        answer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_a_message_of_the_next_prompt() {
        let start =
            |index, name: &str| Delta::CallStart { index, id: "1".into(), name: name.into() };
        let fragment = |index, text: &str| Delta::CallArguments { index, fragment: text.into() };
        let answer: Answer = [
            Delta::Reasoning("Look.".into()),
            Delta::Content("I'll look.".into()),
            start(0, "weather"),
            fragment(0, r#"{"city": "#),
            fragment(0, r#""Oslo"}"#),
            Delta::CallEnd { index: 0, complete: true },
            start(1, "time"),
            fragment(1, "{"),
            Delta::CallEnd { index: 1, complete: false },
        ]
        .into_iter()
        .collect();
        assert!(!answer.calls_tools());
        let message = Message::from(answer);
        assert_eq!((message.role.as_str(), message.content.as_str()), ("assistant", "I'll look."));
        assert_eq!(message.reasoning.as_deref(), Some("Look."));
        let [call] = message.tool_calls.as_slice() else { unreachable!("one call is complete") };
        assert_eq!((call.name.as_str(), &call.arguments), ("weather", &json!({"city": "Oslo"})));
        assert_eq!(Message::from(Answer::default()).reasoning, None);
    }
}
