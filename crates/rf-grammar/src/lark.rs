//! The notation of Lark.

use std::fmt::Write as _;

use serde_json::Value;

/// A text as a literal of Lark.
pub(crate) fn literal(text: &str) -> String {
    // Lark's literals are those of JSON, but without the control character that JSON leaves as is.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// One of some texts, as a regular expression: a single terminal is read in linear time, whereas
/// the matcher would keep an item for each alternative of a rule.
pub(crate) fn one_of(texts: &[String]) -> String {
    let mut regex = String::from("/(");
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            regex.push('|');
        }
        for c in text.chars() {
            if c.is_ascii_alphanumeric() {
                regex.push(c);
            } else {
                // Writing to a string cannot fail.
                let _: std::fmt::Result = write!(regex, "\\x{{{:x}}}", u32::from(c));
            }
        }
    }
    regex + ")/"
}
