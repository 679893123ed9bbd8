//! The notation of Lark.

use serde_json::Value;

/// A text as a literal of Lark.
pub(crate) fn literal(text: &str) -> String {
    // Lark's literals are those of JSON, but without the control character that JSON leaves as is.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
