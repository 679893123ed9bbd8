//! Any text of a model in any format: no panic, the answer does not depend on the pieces in which
//! the text comes, and the arguments of complete calls are JSON objects.
//!
//! The first three bytes of the input select the format, the reasoning and the pieces.

#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rf_chat::{Answer, OutputFormat, OutputParser, ReasoningFormat, Tool, ToolFormat};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

static FORMATS: LazyLock<Vec<ToolFormat>> = LazyLock::new(|| ToolFormat::all().collect());

const REASONING: [ReasoningFormat; 5] = [
    ReasoningFormat::Think,
    ReasoningFormat::Mistral,
    ReasoningFormat::Gemma,
    ReasoningFormat::Seed,
    ReasoningFormat::Harmony,
];

static TOOLS: LazyLock<[Tool; 2]> = LazyLock::new(|| {
    let tool = |name: &str, properties: Value| Tool {
        name: name.to_owned(),
        description: None,
        parameters: json!({ "type": "object", "properties": properties }),
    };
    let types = ["string", "integer", "array", "object", "boolean"].map(|name| {
        let key = name[..1].to_owned();
        (key, json!({ "type": name }))
    });
    [tool("f", types.into_iter().collect::<Map<_, _>>().into()), tool("time", json!({}))]
});

fuzz_target!(|input: &[u8]| {
    let Some((&[format, reasoning, cuts], text)) = input.split_first_chunk() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    let tools = FORMATS[usize::from(format) % FORMATS.len()];
    let in_reasoning = reasoning & 0x80 != 0;
    let reasoning = REASONING[usize::from(reasoning & 0x7f) % REASONING.len()];
    let format = OutputFormat {
        tools,
        reasoning,
        template_knows_tools: true,
        template_knows_reasoning: true,
    };

    let whole = answer(format, in_reasoning, [text]);
    let pieces = answer(format, in_reasoning, Pieces { rest: text, random: cuts });
    assert_eq!(whole, pieces);
    for call in whole.calls.iter().filter(|call| call.complete) {
        // Numbers may be beyond those of a `Value`.
        let arguments = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&call.arguments);
        assert!(arguments.is_ok(), "{call:?}");
    }
});

fn answer<'a>(
    format: OutputFormat,
    in_reasoning: bool,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Answer {
    let mut parser = OutputParser::with_id_seed(format, &*TOOLS, in_reasoning, 1);
    let mut answer = Answer::default();
    for piece in pieces {
        answer.extend(parser.push(piece));
    }
    answer.extend(parser.finish());
    answer
}

/// A text in pieces of 1 to 8 characters.
struct Pieces<'a> {
    rest: &'a str,
    random: u8,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        // A full period over all bytes.
        self.random = self.random.wrapping_mul(5).wrapping_add(1);
        let mut starts = self.rest.char_indices().map(|(at, _)| at);
        let end = starts.nth(usize::from(self.random >> 5) + 1).unwrap_or(self.rest.len());
        let (piece, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!piece.is_empty()).then_some(piece)
    }
}
