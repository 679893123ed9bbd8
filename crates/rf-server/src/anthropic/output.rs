//! Parts of answers.

use rocmforge::engine::StopReason;
use rocmforge::messages::Answer;
use serde_json::{Value, json};

use crate::generation::Usage;

/// A message without content.
pub(super) fn message(id: &str, model: &str, usage: Usage) -> Value {
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            // Tokens that the cache had are counted apart.
            "input_tokens": usage.prompt_tokens - usage.cached_tokens.min(usage.prompt_tokens),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": 0,
        },
    })
}

pub(super) fn stop_reason(reason: StopReason, calls_tools: bool) -> &'static str {
    match reason {
        StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit => "max_tokens",
        _ if calls_tools => "tool_use",
        StopReason::StopString => "stop_sequence",
        _ => "end_turn",
    }
}

pub(super) fn blocks(answer: Answer) -> Value {
    let mut blocks = Vec::new();
    if !answer.reasoning.is_empty() {
        blocks.push(json!({ "type": "thinking", "thinking": answer.reasoning, "signature": "" }));
    }
    if !answer.content.is_empty() {
        blocks.push(json!({ "type": "text", "text": answer.content }));
    }
    for call in answer.calls {
        // The arguments of a call that was cut off are no JSON.
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        blocks
            .push(json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input }));
    }
    Value::from(blocks)
}
