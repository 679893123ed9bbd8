//! The settings of a request, which its response repeats.

use std::mem::take;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fields::ResponsesFields;
use crate::sampling::Params;

/// The fields of a request that change nothing but the response, which repeats them, and those
/// whose other parts are read apart.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RepeatedFields {
    max_tool_calls: Option<u64>,
    metadata: Option<Map<String, Value>>,
    parallel_tool_calls: Option<bool>,
    prompt_cache_key: Option<String>,
    safety_identifier: Option<String>,
    text: Option<RepeatedText>,
    truncation: Option<String>,
    user: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct RepeatedText {
    format: Option<Map<String, Value>>,
    verbosity: Option<String>,
}

/// The settings in a response: those of its request, or what happens without them.
#[derive(Serialize, JsonSchema)]
pub(super) struct ResponseSettings {
    background: bool,
    frequency_penalty: f32,
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    max_tool_calls: Option<u64>,
    metadata: Map<String, Value>,
    parallel_tool_calls: bool,
    presence_penalty: f32,
    previous_response_id: Option<String>,
    prompt_cache_key: Option<String>,
    reasoning: ReasoningSettings,
    safety_identifier: Option<String>,
    service_tier: &'static str,
    store: bool,
    temperature: f32,
    text: TextSettings,
    /// A word, or the tool that must be called.
    tool_choice: Value,
    tools: Vec<Value>,
    top_logprobs: usize,
    top_p: f32,
    truncation: String,
    user: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ReasoningSettings {
    effort: Option<String>,
    summary: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct TextSettings {
    format: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbosity: Option<String>,
}

impl ResponseSettings {
    /// The settings of a request, of which `request` has no tools from now on.
    pub(super) fn new(
        request: &mut ResponsesFields,
        repeated: RepeatedFields,
        params: &Params,
    ) -> Self {
        let sampler = &params.options.sampler;
        let text = repeated.text.unwrap_or_default();
        let reasoning = request.reasoning.take();
        let (effort, summary) = reasoning.map_or((None, None), |r| (r.effort, r.summary));
        let mut tools = take(&mut request.tools).unwrap_or_default();
        tools.iter_mut().for_each(complete);
        Self {
            background: false,
            frequency_penalty: sampler.frequency_penalty,
            instructions: take(&mut request.instructions),
            max_output_tokens: params.options.max_tokens,
            max_tool_calls: repeated.max_tool_calls,
            metadata: repeated.metadata.unwrap_or_default(),
            parallel_tool_calls: repeated.parallel_tool_calls.unwrap_or(true),
            presence_penalty: sampler.presence_penalty,
            previous_response_id: take(&mut request.previous_response_id),
            prompt_cache_key: repeated.prompt_cache_key,
            reasoning: ReasoningSettings { effort, summary },
            safety_identifier: repeated.safety_identifier,
            // There is one.
            service_tier: "default",
            store: request.store.unwrap_or(true),
            temperature: sampler.temperature,
            text: TextSettings {
                format: text.format.map_or_else(|| json!({ "type": "text" }), Value::Object),
                verbosity: text.verbosity,
            },
            tool_choice: request.tool_choice.take().unwrap_or_else(|| json!("auto")),
            tools,
            top_logprobs: 0,
            top_p: sampler.top_p,
            truncation: repeated.truncation.unwrap_or_else(|| "disabled".to_owned()),
            user: repeated.user,
        }
    }
}

/// Adds the fields that every function has in a response.
fn complete(tool: &mut Value) {
    let Some(tool) = tool.as_object_mut() else { return };
    if tool.get("type").and_then(Value::as_str) == Some("function") {
        for field in ["description", "parameters", "strict"] {
            tool.entry(field).or_insert(Value::Null);
        }
    }
}
