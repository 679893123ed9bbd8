//! The states of a response.

use rocmforge::engine::StopReason;
use serde_json::{Value, json};

use crate::access::unique;
use crate::generation::Usage;
use crate::state::{ServedModel, now};

/// Returns true if an answer ended before the model ended it.
pub(super) fn is_cut_off(reason: StopReason) -> bool {
    matches!(reason, StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit)
}

/// The fields that all states of a response share.
pub(super) struct Head {
    id: String,
    created: u64,
    model: String,
    instructions: Option<String>,
    max_tokens: Option<usize>,
}

impl Head {
    pub(super) fn new(
        model: &ServedModel,
        instructions: Option<String>,
        max_tokens: Option<usize>,
    ) -> Self {
        let model = model.id().to_owned();
        Self { id: unique("resp_"), created: now(), model, instructions, max_tokens }
    }

    /// The response before its end.
    pub(super) fn begun(&self) -> Value {
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "error": null,
            "incomplete_details": null,
            "instructions": self.instructions,
            "max_output_tokens": self.max_tokens,
            "model": self.model,
            "output": [],
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": { "effort": null, "summary": null },
            "store": false,
            "temperature": null,
            "text": { "format": { "type": "text" } },
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "disabled",
            "usage": null,
            "user": null,
            "metadata": {},
        })
    }

    /// The response at its end.
    pub(super) fn ended(&self, output: Vec<Value>, reason: StopReason, usage: Usage) -> Value {
        let mut body = self.begun();
        body["output"] = Value::from(output);
        if is_cut_off(reason) {
            body["status"] = json!("incomplete");
            body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        } else {
            body["status"] = json!("completed");
        }
        body["usage"] = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": { "cached_tokens": usage.cached_tokens },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        });
        body
    }
}
