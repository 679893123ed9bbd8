//! Custom tools, which take a text. For the model, each is a function with one argument, `input`.

use serde_json::{Map, Value, json};

/// A custom tool as a function.
pub(crate) fn as_function(tool: &Value) -> Value {
    json!({
        "name": tool["name"],
        "description": tool["description"],
        "parameters": {
            "type": "object",
            "properties": { "input": { "type": "string" } },
            "required": ["input"],
            "additionalProperties": false,
        },
    })
}

/// The arguments of a call with this text.
pub(crate) fn text_argument(input: String) -> Value {
    Value::Object(Map::from_iter([("input".to_owned(), Value::String(input))]))
}

/// The text of a call with these arguments. Arguments that were cut off are no JSON, and stay.
pub(crate) fn input(arguments: String) -> String {
    let parsed = serde_json::from_str::<Value>(&arguments).ok();
    let input = parsed.as_ref().and_then(|arguments| arguments["input"].as_str());
    input.map(str::to_owned).unwrap_or(arguments)
}
