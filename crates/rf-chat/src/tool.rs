//! The tools that a request offers.

use serde_json::{Value, json};

use crate::Error;

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The name that a call uses.
    pub name: String,
    /// A description of the function, for the model.
    pub description: Option<String>,
    /// JSON schema of the arguments: an object, empty for a function without parameters.
    pub parameters: Value,
}

impl Tool {
    /// Reads a tool of an `OpenAI` request: `{"type": "function", "function": {"name": …}}`, or
    /// the function alone, as the Responses API writes it.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] with the path within the tool.
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let (function, path) = match value.get("function") {
            Some(function) => (function, "function."),
            None => (value, ""),
        };
        let error = |field: &str, problem: &'static str| Error::Tool {
            path: format!("{path}{field}"),
            problem,
        };
        let name = match function.get("name").map(Value::as_str) {
            Some(Some(name)) if is_name(name) => name.to_owned(),
            Some(Some(_)) => {
                return Err(error("name", "must be 1 to 256 letters, digits, or any of _ - . : /"));
            }
            _ => return Err(error("name", "must be a string")),
        };
        let description = match function.get("description") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(error("description", "must be a string")),
        };
        let parameters = match function.get("parameters") {
            None | Some(Value::Null) => {
                json!({"type": "object", "properties": {}, "additionalProperties": false})
            }
            Some(schema @ Value::Object(_)) => schema.clone(),
            Some(_) => return Err(error("parameters", "must be a JSON schema object")),
        };
        Ok(Self { name, description, parameters })
    }

    /// The tool as templates expect it: `{"type": "function", "function": {…}}`.
    pub fn to_json(&self) -> Value {
        let mut function = json!({"name": self.name});
        if let Some(description) = &self.description {
            function["description"] = json!(description);
        }
        function["parameters"] = self.parameters.clone();
        json!({"type": "function", "function": function})
    }

    /// The schema of one argument.
    pub(crate) fn argument(&self, name: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(name)
    }
}

/// Returns true if `c` may be part of a tool's name.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}

/// The longest name of a tool, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;

pub(crate) fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.chars().all(is_name_char)
}
