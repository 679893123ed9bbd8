//! Values as text, as Python writes them.

use crate::error::Error;
use crate::meter::Text;
use crate::value::{Key, Value};

/// Appends what `{{ value }}` prints: Python's `str`.
pub(crate) fn print(value: &Value, text: &mut Text<'_>) -> Result<(), Error> {
    match value {
        Value::Undefined => Ok(()),
        Value::Text(content) => text.push(content),
        _ => represent(value, text),
    }
}

/// Appends Python's `repr`.
pub(crate) fn represent(value: &Value, text: &mut Text<'_>) -> Result<(), Error> {
    match value {
        Value::Undefined => text.push("Undefined"),
        Value::None => text.push("None"),
        Value::Bool(true) => text.push("True"),
        Value::Bool(false) => text.push("False"),
        Value::Int(value) => text.push(&value.to_string()),
        Value::Float(value) => text.push(&float(*value)),
        Value::Text(content) => quote(content, text),
        Value::List(list) => {
            let (open, close) = match (list.is_tuple, list.items.len()) {
                (false, _) => ("[", "]"),
                (true, 1) => ("(", ",)"),
                (true, _) => ("(", ")"),
            };
            text.push(open)?;
            for (index, item) in list.items.iter().enumerate() {
                text.push(if index == 0 { "" } else { ", " })?;
                represent(item, text)?;
            }
            text.push(close)
        }
        Value::Map(map) => {
            text.push("{")?;
            for (index, (key, item)) in map.entries.iter().enumerate() {
                text.push(if index == 0 { "" } else { ", " })?;
                represent(&Key::to_value(key), text)?;
                text.push(": ")?;
                represent(item, text)?;
            }
            text.push("}")
        }
        // Fields are left out: a namespace may contain itself.
        _ => text.push(&format!("<{}>", value.kind())),
    }
}

/// A number as Python writes it: the shortest digits that read back, with an exponent for large and
/// small ones.
pub(crate) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

fn quote(content: &str, text: &mut Text<'_>) -> Result<(), Error> {
    let quote = if content.contains('\'') && !content.contains('"') { '"' } else { '\'' };
    text.push_char(quote)?;
    for c in content.chars() {
        match c {
            '\n' => text.push("\\n")?,
            '\r' => text.push("\\r")?,
            '\t' => text.push("\\t")?,
            '\\' => text.push("\\\\")?,
            c if c == quote => {
                text.push("\\")?;
                text.push_char(c)?;
            }
            c if u32::from(c) < 0x20 || u32::from(c) == 0x7F => {
                text.push(&format!("\\x{:02x}", u32::from(c)))?;
            }
            c => text.push_char(c)?,
        }
    }
    text.push_char(quote)
}
