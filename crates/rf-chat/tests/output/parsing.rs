//! Parsing in tests: the tools, and what an answer should be.

use rf_chat::{Answer, AnswerCall, OutputFormat, OutputParser, ReasoningFormat, Tool, ToolFormat};
use serde_json::json;

/// The form of calls with the reasoning that goes with it.
pub(crate) fn format(tools: ToolFormat) -> OutputFormat {
    let reasoning = match tools {
        ToolFormat::Mistral | ToolFormat::MistralArray => ReasoningFormat::Mistral,
        ToolFormat::Gemma => ReasoningFormat::Gemma,
        ToolFormat::Harmony => ReasoningFormat::Harmony,
        _ => ReasoningFormat::Think,
    };
    OutputFormat { tools, reasoning, template_knows_tools: true, template_knows_reasoning: true }
}

/// `weather(city, days, tags)`, `time()` and `note(text)`.
pub(crate) fn tools() -> Vec<Tool> {
    let tool = |name: &str, properties: serde_json::Value| {
        let parameters = json!({"type": "object", "properties": properties});
        Tool { name: name.into(), description: None, parameters }
    };
    vec![
        tool(
            "weather",
            json!({
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "tags": {"type": "array"},
            }),
        ),
        tool("time", json!({})),
        tool("note", json!({"text": {"type": "string"}})),
    ]
}

/// The answer of the pieces. Ids are equal in all runs.
pub(crate) fn parse<'a>(
    format: OutputFormat,
    tools: &[Tool],
    in_reasoning: bool,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Answer {
    let mut parser = OutputParser::with_id_seed(format, tools, in_reasoning, 1);
    let mut answer = Answer::default();
    for piece in pieces {
        answer.extend(parser.push(piece));
    }
    answer.extend(parser.finish());
    answer
}

/// A complete call.
pub(crate) fn call(name: &str, arguments: &str) -> ExpectedCall {
    ExpectedCall { name: name.into(), arguments: arguments.into(), complete: true }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExpectedCall {
    name: String,
    arguments: String,
    complete: bool,
}

impl ExpectedCall {
    pub(crate) fn incomplete(mut self) -> Self {
        self.complete = false;
        self
    }

    fn of(call: &AnswerCall) -> Self {
        let AnswerCall { name, arguments, complete, .. } = call.clone();
        Self { name, arguments, complete }
    }
}

/// An answer without ids.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Expected {
    pub(crate) in_reasoning: bool,
    content: String,
    reasoning: String,
    calls: Vec<ExpectedCall>,
}

impl Expected {
    pub(crate) fn within_reasoning(mut self) -> Self {
        self.in_reasoning = true;
        self
    }

    pub(crate) fn content(mut self, text: &str) -> Self {
        self.content = text.into();
        self
    }

    pub(crate) fn reasoning(mut self, text: &str) -> Self {
        self.reasoning = text.into();
        self
    }

    pub(crate) fn call(mut self, call: ExpectedCall) -> Self {
        self.calls.push(call);
        self
    }

    pub(crate) fn assert(&self, answer: &Answer, text: &str) {
        let got = Self {
            in_reasoning: self.in_reasoning,
            content: answer.content.clone(),
            reasoning: answer.reasoning.clone(),
            calls: answer.calls.iter().map(ExpectedCall::of).collect(),
        };
        assert_eq!(&got, self, "{text}");
        for call in answer.calls.iter().filter(|call| call.complete) {
            let parsed = serde_json::from_str::<serde_json::Value>(&call.arguments);
            assert!(parsed.is_ok_and(|value| value.is_object()), "{call:?}");
        }
    }
}
