//! JSON as Python's `json.dumps` writes it.

use crate::error::Error;
use crate::meter::Text;
use crate::print;
use crate::value::{Key, Value};

/// Options of `json.dumps`.
#[derive(Debug)]
pub(crate) struct JsonFormat {
    pub(crate) indent: Option<usize>,
    pub(crate) ensure_ascii: bool,
    pub(crate) sort_keys: bool,
    pub(crate) between_items: String,
    pub(crate) after_key: String,
}

/// Appends `value` as JSON.
pub(crate) fn write(value: &Value, format: &JsonFormat, text: &mut Text<'_>) -> Result<(), Error> {
    write_at(value, format, 0, text)
}

fn write_at(
    value: &Value,
    format: &JsonFormat,
    level: usize,
    text: &mut Text<'_>,
) -> Result<(), Error> {
    match value {
        Value::None => text.push("null"),
        Value::Bool(true) => text.push("true"),
        Value::Bool(false) => text.push("false"),
        Value::Int(value) => text.push(&value.to_string()),
        Value::Float(value) if value.is_nan() => text.push("NaN"),
        Value::Float(value) if value.is_infinite() => {
            text.push(if *value > 0.0 { "Infinity" } else { "-Infinity" })
        }
        Value::Float(value) => text.push(&print::float(*value)),
        Value::Text(content) => quote(content, format, text),
        Value::List(list) => {
            let items: Vec<_> = list.items.iter().map(|item| (None, item)).collect();
            write_items(&items, ["[", "]"], format, level, text)
        }
        Value::Map(map) => {
            let mut items: Vec<_> =
                map.entries.iter().map(|(key, item)| (Some(name_of(key)), item)).collect();
            if format.sort_keys {
                items.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_items(&items, ["{", "}"], format, level, text)
        }
        _ => Err(Error::failed(format!("a value of type {} has no JSON", value.kind()))),
    }
}

fn write_items(
    items: &[(Option<String>, &Value)],
    [open, close]: [&str; 2],
    format: &JsonFormat,
    level: usize,
    text: &mut Text<'_>,
) -> Result<(), Error> {
    text.push(open)?;
    for (index, (key, item)) in items.iter().enumerate() {
        if index > 0 {
            text.push(&format.between_items)?;
        }
        new_line(format, level + 1, text)?;
        if let Some(key) = key {
            quote(key, format, text)?;
            text.push(&format.after_key)?;
        }
        write_at(item, format, level + 1, text)?;
    }
    if !items.is_empty() {
        new_line(format, level, text)?;
    }
    text.push(close)
}

fn new_line(format: &JsonFormat, level: usize, text: &mut Text<'_>) -> Result<(), Error> {
    let Some(indent) = format.indent else { return Ok(()) };
    text.push("\n")?;
    text.push_repeated(" ", indent.saturating_mul(level))
}

/// JSON has texts as keys only.
fn name_of(key: &Key) -> String {
    match key {
        Key::None => "null".to_owned(),
        Key::Bool(value) => value.to_string(),
        Key::Int(value) => value.to_string(),
        Key::Text(text) => text.to_string(),
    }
}

fn quote(content: &str, format: &JsonFormat, text: &mut Text<'_>) -> Result<(), Error> {
    text.push("\"")?;
    for c in content.chars() {
        match c {
            '"' => text.push("\\\"")?,
            '\\' => text.push("\\\\")?,
            '\n' => text.push("\\n")?,
            '\r' => text.push("\\r")?,
            '\t' => text.push("\\t")?,
            '\u{8}' => text.push("\\b")?,
            '\u{c}' => text.push("\\f")?,
            c if c < ' ' => text.push(&format!("\\u{:04x}", u32::from(c)))?,
            c if format.ensure_ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text.push(&format!("\\u{unit:04x}"))?;
                }
            }
            c => text.push_char(c)?,
        }
    }
    text.push("\"")
}
