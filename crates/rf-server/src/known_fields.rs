//! Fields of requests that this server does not support, and those that it does not know.
//!
//! A field that would change the answer is refused, because an answer without it would be wrong
//! without a word. Fields that are not known are ignored, as clients expect, and named in the log.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// Fields that would change the answer, with what to do instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("functions", "send `tools`"),
    ("function_call", "send `tool_choice`"),
    ("audio", "the answer is text"),
    ("modalities", "the answer is text"),
    ("web_search_options", "offer a tool"),
    ("background", "stream the answer"),
    ("conversation", "send `previous_response_id`"),
    ("mcp_servers", "offer their tools"),
    ("container", "leave it out"),
    ("guided_json", "send `structured_outputs`"),
    ("guided_regex", "send `structured_outputs`"),
    ("guided_choice", "send `structured_outputs`"),
    ("guided_grammar", "send `structured_outputs`"),
    ("use_beam_search", "leave it out"),
    ("length_penalty", "leave it out"),
    ("include_stop_str_in_output", "leave it out"),
    ("skip_special_tokens", "leave it out"),
    ("prompt_embeds", "send a text or tokens"),
    ("logits_processors", "leave it out"),
    ("truncate_prompt_tokens", "send a shorter text"),
    ("max_tokens_per_doc", "send shorter documents"),
    ("prompt_logprobs", "send `echo` and `logprobs` to /v1/completions"),
    ("chat_template", "start the server with --chat-template"),
    ("image_data", "send text"),
    ("multimodal_data", "send text"),
    ("post_sampling_probs", "leave it out"),
    ("t_max_predict_ms", "send `max_tokens`"),
    ("template", "start the server with --chat-template"),
    ("context", "send the conversation to /api/chat"),
    ("return_token_ids", "leave it out"),
    ("return_tokens", "leave it out"),
    ("return_tokens_as_token_ids", "leave it out"),
    ("repetition_detection", "leave it out"),
    ("response_fields", "leave it out"),
];
/// Fields that other routes support, or that change nothing there.
const UNSUPPORTED_IN_CHATS: &[(&str, &str)] = &[
    ("echo", "leave it out"),
    ("documents", "send them in a message"),
    ("reasoning_format", "leave it out"),
];
/// Fields that only chats support.
const SUPPORTED_IN_CHATS: &[(&str, &str)] = &[("include_reasoning", "leave it out")];
/// Fields whose default is true.
const ON_BY_DEFAULT: &[&str] = &["skip_special_tokens", "include_reasoning"];

/// Refuses fields of a request to `route` that would change the answer.
pub(crate) fn refuse_unsupported(route: &str, fields: &Map<String, Value>) -> Result<(), ApiError> {
    let is_chat = route.ends_with("/chat/completions");
    let is_structured = fields.get("structured_outputs").is_some_and(|value| !value.is_null());
    let of_chats = UNSUPPORTED_IN_CHATS.iter().filter(|_| is_chat);
    let of_others = SUPPORTED_IN_CHATS.iter().filter(|_| !route.contains("/chat/completions"));
    for (name, instead) in UNSUPPORTED.iter().chain(of_chats).chain(of_others) {
        // Some clients send the form of older versions of vLLM, too.
        if is_structured && name.starts_with("guided_") {
            continue;
        }
        if fields.get(*name).is_some_and(|value| !changes_nothing(name, value)) {
            return Err(refusal(name, instead));
        }
    }
    refuse_values(route, fields)
}

/// Refuses values of fields that have other values, which are supported.
fn refuse_values(route: &str, fields: &Map<String, Value>) -> Result<(), ApiError> {
    let is_set = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let outputs = fields.get("structured_outputs");
    if outputs.is_some_and(|outputs| !outputs["structural_tag"].is_null()) {
        return Err(refusal("structured_outputs.structural_tag", "send `tools` or a `grammar`"));
    }
    if fields.get("add_generation_prompt") == Some(&Value::Bool(false))
        && !is_set("continue_final_message")
    {
        return Err(refusal("add_generation_prompt", "send `continue_final_message`, too"));
    }
    if route.ends_with("/responses") {
        if fields.get("prompt").is_some_and(Value::is_object) {
            return Err(refusal("prompt", "send `instructions` and `input`"));
        }
        let includes = |items: &Vec<Value>| items.contains(&json!("message.output_text.logprobs"));
        if fields.get("include").and_then(Value::as_array).is_some_and(includes) {
            return Err(refusal("include", "send `logprobs` to /v1/chat/completions"));
        }
    }
    Ok(())
}

fn refusal(name: &str, instead: &str) -> ApiError {
    ApiError::field(name, format!("it is not supported: {instead}"))
}

/// Returns true for a value that is what happens without the field.
fn changes_nothing(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => *flag == ON_BY_DEFAULT.contains(&name),
        // The others ask for reasoning apart from the answer, as it comes.
        Value::String(text) if name == "reasoning_format" => text != "none",
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty() || *value == json!(["text"]),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => match name {
            "length_penalty" => number.as_f64() == Some(1.0),
            _ => number.as_f64().is_some_and(|number| number <= 0.0),
        },
    }
}

/// The fields that each route knows, by its pattern. Those within a field have its name before
/// theirs, as in `options.temperature`.
pub(crate) type KnownFields = HashMap<&'static str, HashSet<String>>;

static KNOWN: OnceLock<KnownFields> = OnceLock::new();

/// Sets the fields that the routes know, which are the same for every server of the process.
pub(crate) fn set_known(known: impl FnOnce() -> KnownFields) {
    KNOWN.get_or_init(known);
}

/// Further names of fields (`serde(alias)`), which no schema has.
const ALIASES: &[&str] = &[
    "documents",
    "queries",
    "reasoning_budget",
    "response_format.value",
    "thinking_budget_tokens",
];
/// Fields with fields of their own.
const NESTED: &[&str] = &["options", "response_format", "stream_options"];
/// The most names that are remembered, so that each is logged once.
const MAX_NAMES: usize = 256;
/// The longest name that is logged.
const MAX_NAME_BYTES: usize = 40;
/// The most digits of a name that is logged. Numbers of people, such as those of accounts, have
/// more.
const MAX_NAME_DIGITS: usize = 2;

/// Names the fields that a route does not know in the log, each once.
pub(crate) fn note_unknown(route: &str, fields: &Map<String, Value>) {
    static NOTED: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let Some(known) = KNOWN.get().and_then(|known| known.get(route)) else { return };
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    for name in unknown(known, fields) {
        if noted.len() < MAX_NAMES && noted.insert(name.clone()) {
            tracing::debug!(field = name, "a field that is not known is ignored");
        }
    }
}

/// Names the type of a part of a request that is left out in the log, each once.
pub(crate) fn note_left_out(part: &'static str, kind: &str) {
    static NOTED: LazyLock<Mutex<HashSet<(&'static str, String)>>> = LazyLock::new(Mutex::default);
    // Types of Anthropic end with a date.
    let is_date = |text: &str| text.len() == 8 && text.bytes().all(|c| c.is_ascii_digit());
    let kind =
        kind.rsplit_once('_').filter(|(_, date)| is_date(date)).map_or(kind, |(name, _)| name);
    let kind = if is_name(kind) { kind } else { "other" };
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.len() < MAX_NAMES && noted.insert((part, kind.to_owned())) {
        tracing::warn!(kind, "{part} of this type is left out");
    }
}

/// The names of fields that are not among `known`.
fn unknown(known: &HashSet<String>, fields: &Map<String, Value>) -> Vec<String> {
    let names = |fields: &Map<String, Value>, prefix: &str| {
        let names = fields.keys().filter(|name| is_name(name));
        let names = names.map(|name| format!("{prefix}{name}"));
        let is_known = |name: &String| known.contains(name) || ALIASES.contains(&name.as_str());
        names.filter(|name| !is_known(name)).collect::<Vec<_>>()
    };
    let nested = NESTED.iter().filter_map(|name| {
        let (prefix, inner) = (format!("{name}."), fields.get(*name)?.as_object()?);
        // Routes that take any value there know none of its fields.
        let knows_inner = known.iter().any(|known| known.starts_with(&prefix));
        knows_inner.then(|| names(inner, &prefix))
    });
    names(fields, "").into_iter().chain(nested.flatten()).collect()
}

/// Returns true for a text that can only be the name of a field. Others may be text of a request,
/// which is never logged.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
        && name.bytes().filter(u8::is_ascii_digit).count() <= MAX_NAME_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(fields: &Value) -> Option<String> {
        refused_by("/v1/chat/completions", fields)
    }

    fn refused_by(route: &str, fields: &Value) -> Option<String> {
        refuse_unsupported(route, fields.as_object().unwrap()).err()?.param
    }

    #[test]
    fn only_values_that_change_the_answer_are_refused() {
        for fields in [
            json!({ "functions": null, "audio": null, "background": false, "context": [] }),
            json!({ "skip_special_tokens": true, "length_penalty": 1.0, "t_max_predict_ms": -1 }),
            json!({ "modalities": ["text"], "template": "", "user": "me", "min_keep": 3 }),
            json!({ "guided_grammar": "a", "structured_outputs": { "grammar": "a" } }),
            json!({ "echo": false, "documents": [], "reasoning_format": "auto" }),
            json!({ "include_reasoning": false, "return_token_ids": false, "response_fields": [] }),
            json!({ "timings_per_token": true, "return_progress": true, "max_tool_calls": 3 }),
            json!({ "add_generation_prompt": false, "continue_final_message": true }),
            json!({ "add_generation_prompt": true, "structured_outputs": { "regex": "a" } }),
        ] {
            assert_eq!(refused(&fields), None, "{fields}");
        }
        for (fields, name) in [
            (json!({ "functions": [{ "name": "f" }] }), "functions"),
            (json!({ "modalities": ["text", "audio"] }), "modalities"),
            (json!({ "skip_special_tokens": false }), "skip_special_tokens"),
            (json!({ "use_beam_search": true }), "use_beam_search"),
            (json!({ "guided_grammar": "a", "structured_outputs": null }), "guided_grammar"),
            (json!({ "t_max_predict_ms": 100 }), "t_max_predict_ms"),
            (json!({ "echo": true }), "echo"),
            (json!({ "documents": [{ "text": "a" }] }), "documents"),
            (json!({ "reasoning_format": "none" }), "reasoning_format"),
            (json!({ "return_token_ids": true }), "return_token_ids"),
            (json!({ "repetition_detection": { "min_count": 2 } }), "repetition_detection"),
            (json!({ "response_fields": ["content"] }), "response_fields"),
            (json!({ "add_generation_prompt": false }), "add_generation_prompt"),
            (
                json!({ "structured_outputs": { "structural_tag": "{}" } }),
                "structured_outputs.structural_tag",
            ),
        ] {
            assert_eq!(refused(&fields).as_deref(), Some(name), "{fields}");
        }
        // Fields with another meaning on other routes.
        let fields = json!({ "echo": true, "documents": ["a"], "reasoning_format": "none" });
        assert_eq!(refused_by("/v1/completions", &fields), None);
        let fields = json!({ "prompt": null, "include": ["reasoning.encrypted_content"] });
        assert_eq!(refused_by("/v1/responses", &fields), None);
        let fields = json!({ "include_reasoning": true });
        assert_eq!(refused_by("/v1/responses", &fields), None);
        for (fields, name) in [
            (json!({ "include_reasoning": false }), "include_reasoning"),
            (json!({ "prompt": { "id": "pmpt_1" } }), "prompt"),
            (json!({ "include": ["message.output_text.logprobs"] }), "include"),
        ] {
            assert_eq!(refused_by("/v1/responses", &fields).as_deref(), Some(name), "{fields}");
        }
    }

    #[test]
    fn routes_know_their_fields() {
        let known = crate::router::known_fields();
        let chat = &known["/v1/chat/completions"];
        for field in ["messages", "tools", "temperature", "response_format", "stream"] {
            assert!(chat.contains(field), "{field}");
        }
        assert!(!chat.contains("metadata"));
        for field in ["options.temperature", "options.num_predict"] {
            assert!(known["/api/chat"].contains(field), "{field}");
        }
        assert!(chat.contains("stream_options.include_usage"));
        assert!(chat.contains("response_format.type"));
        assert!(known.contains_key("/slots/{id}"));
    }

    #[test]
    fn only_names_of_fields_are_noted() {
        for name in ["metadata", "maxTokens", "top_p2", "_", "n"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(MAX_NAME_BYTES + 1);
        for text in ["", "bank_pin_9471", "My secret", "straße", "a.b", "a-b", &long] {
            assert!(!is_name(text), "{text}");
        }
        let fields = json!({
            "messages": [], "maxTokens": 1, "options": { "top_p2": 1 }, "documents": [],
            "stream_options": { "include_usage": true, "includeUsage": true, "my secret": 1 },
            "response_format": { "type": "text", "value": {}, "strict": true },
        });
        let known = crate::router::known_fields();
        let unknown = unknown(&known["/v1/chat/completions"], fields.as_object().unwrap());
        // This route has no `options`, so their fields are of no interest.
        let expected =
            ["maxTokens", "options", "response_format.strict", "stream_options.includeUsage"];
        assert_eq!(unknown, expected);
    }
}
