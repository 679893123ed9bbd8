//! Messages in the form that strict templates accept.
//!
//! Clients replay conversations in forms that many templates refuse. The conversation is changed as
//! little as its template requires: [`joined`] is right for every template, [`LEVELS`] apply one
//! after the other to a template that refuses.

use std::borrow::Cow;

use crate::message::Message;

/// Changes for a template that refuses the messages, each greater than the one before.
pub(crate) const LEVELS: [Repair; 2] = [with_system_first, with_system_as_user];

/// The changed messages; `None` if there is nothing to change.
pub(crate) type Repair = fn(&[Message]) -> Option<Vec<Message>>;

/// The messages with one message for each answer. The Responses API has an item for each call and
/// each text of an answer, so that a text may come between a call and its result.
pub(crate) fn joined(messages: &[Message]) -> Cow<'_, [Message]> {
    let continues = |pair: &[Message]| {
        let is_answer = |message: &Message| message.role == "assistant";
        is_answer(&pair[0]) && is_answer(&pair[1]) && !pair[0].tool_calls.is_empty()
    };
    if !messages.windows(2).any(continues) {
        return Cow::Borrowed(messages);
    }
    let mut joined: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match joined.last_mut() {
            Some(last)
                if last.role == "assistant"
                    && message.role == "assistant"
                    && !last.tool_calls.is_empty() =>
            {
                append(last, message);
            }
            _ => joined.push(message.clone()),
        }
    }
    Cow::Owned(joined)
}

/// The messages with one system message, which comes first; `None` if they are so already.
fn with_system_first(messages: &[Message]) -> Option<Vec<Message>> {
    let is_system = |message: &&Message| message.role == "system";
    if !messages.iter().skip(1).any(|message| is_system(&message)) {
        return None;
    }
    let mut system = Message::new("system", "");
    messages.iter().filter(is_system).for_each(|message| append(&mut system, message));
    let others = messages.iter().filter(|message| !is_system(message)).cloned();
    Some(std::iter::once(system).chain(others).collect())
}

/// The messages with the system message as the beginning of the first question, and with one
/// message for questions that follow each other; `None` if they are so already.
fn with_system_as_user(messages: &[Message]) -> Option<Vec<Message>> {
    let as_user = |message: &Message| match message.role.as_str() {
        "system" => Message { role: "user".to_owned(), ..message.clone() },
        _ => message.clone(),
    };
    let messages_first = with_system_first(messages);
    let mut repaired: Vec<Message> = Vec::new();
    for message in messages_first.as_deref().unwrap_or(messages).iter().map(as_user) {
        match repaired.last_mut().filter(|last| last.role == "user" && message.role == "user") {
            Some(last) => append(last, &message),
            None => repaired.push(message),
        }
    }
    (repaired != messages).then_some(repaired)
}

/// Appends the content of a message and its calls.
fn append(to: &mut Message, message: &Message) {
    if !to.content.is_empty() && !message.content.is_empty() {
        to.content.push_str("\n\n");
    }
    to.content.push_str(&message.content);
    // The parts of both would not be the content.
    to.parts.clear();
    to.tool_calls.extend(message.tool_calls.iter().cloned());
    match (&mut to.reasoning, &message.reasoning) {
        (Some(reasoning), Some(more)) => {
            reasoning.push_str("\n\n");
            reasoning.push_str(more);
        }
        (reasoning @ None, more) => reasoning.clone_from(more),
        (Some(_), None) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::message::MessageCall;

    fn messages(messages: &[(&str, &str)]) -> Vec<Message> {
        messages.iter().map(|(role, content)| Message::new(*role, *content)).collect()
    }

    fn call(name: &str) -> MessageCall {
        MessageCall { id: name.into(), name: name.into(), arguments: Value::Null }
    }

    #[test]
    fn texts_after_calls_belong_to_the_answer_with_the_calls() {
        let mut items = messages(&[
            ("user", "x"),
            ("assistant", ""),
            ("assistant", "I look."),
            ("assistant", ""),
            ("tool", "4"),
            ("assistant", "It is 4."),
            ("assistant", "Done."),
        ]);
        items[1].tool_calls = vec![call("a")];
        items[3].tool_calls = vec![call("b")];
        let joined = joined(&items);
        let found: Vec<_> = joined.iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
        let expected = [
            ("user", "x"),
            ("assistant", "I look."),
            ("tool", "4"),
            ("assistant", "It is 4."),
            ("assistant", "Done."),
        ];
        assert_eq!(found, expected);
        assert_eq!(joined[1].tool_calls, [call("a"), call("b")]);
        assert!(matches!(super::joined(&items[4..]), Cow::Borrowed(_)));
    }

    #[test]
    fn system_messages_move_to_the_front_and_then_into_the_question() {
        let late = messages(&[
            ("system", "a"),
            ("user", "x"),
            ("assistant", "y"),
            ("system", "b"),
            ("user", "z"),
        ]);
        let first = with_system_first(&late).unwrap();
        assert_eq!(
            first,
            messages(&[("system", "a\n\nb"), ("user", "x"), ("assistant", "y"), ("user", "z")])
        );
        assert_eq!(with_system_first(&first), None);
        let user = messages(&[("user", "a\n\nb\n\nx"), ("assistant", "y"), ("user", "z")]);
        assert_eq!(with_system_as_user(&late).unwrap(), user);
        assert_eq!(with_system_as_user(&first).unwrap(), user);
        assert_eq!(with_system_as_user(&user), None);
        // Questions that follow each other.
        let twice = messages(&[("user", "x"), ("user", "y")]);
        assert_eq!(with_system_as_user(&twice).unwrap(), messages(&[("user", "x\n\ny")]));
    }
}
