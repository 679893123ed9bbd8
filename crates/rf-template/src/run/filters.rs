//! Filters of single values.

use std::sync::Arc;

use super::TemplateRun;
use super::arguments::{Arguments, size, text, text_or};
use crate::error::Error;
use crate::meter::Text;
use crate::value::{Key, Value};
use crate::{json, print};

impl TemplateRun<'_> {
    /// Applies the filter `name`.
    #[expect(clippy::too_many_lines, reason = "an arm per filter")]
    pub(super) fn filter(
        &mut self,
        name: &str,
        value: Value,
        arguments: Arguments,
    ) -> Result<Value, Error> {
        self.meter.step(1)?;
        match name {
            "tojson" => self.to_json(&value, arguments),
            "default" | "d" => {
                let [default, for_false] = arguments.bind(name, ["default_value", "boolean"])?;
                let default =
                    if let Value::Undefined = default { Value::text("") } else { default };
                let is_missing =
                    matches!(value, Value::Undefined) || (for_false.is_true() && !value.is_true());
                Ok(if is_missing { default } else { value })
            }
            "length" | "count" => self.length(&value),
            "string" | "safe" | "e" | "escape" | "forceescape" => {
                let [] = arguments.bind(name, [])?;
                let text = self.printed(&value)?;
                if matches!(name, "string" | "safe") {
                    return Ok(Value::Text(text));
                }
                self.escape(&text)
            }
            "int" => {
                let [default] = arguments.bind(name, ["default"])?;
                let default = default.as_int().unwrap_or(0);
                Ok(Value::Int(self.to_int(&value)?.unwrap_or(default)))
            }
            "float" => {
                let [default] = arguments.bind(name, ["default"])?;
                let parsed = match &value {
                    Value::Text(text) => {
                        self.meter.scan(text.len())?;
                        text.trim().parse().ok()
                    }
                    value => value.as_float(),
                };
                Ok(Value::Float(parsed.or(default.as_float()).unwrap_or(0.0)))
            }
            "bool" => Ok(Value::Bool(value.is_true())),
            "abs" => match (value.as_int(), value.as_float()) {
                (Some(int), _) => {
                    let magnitude = int.checked_abs();
                    magnitude.map(Value::Int).ok_or_else(|| Error::failed("too large"))
                }
                (None, Some(float)) => Ok(Value::Float(float.abs())),
                _ => Err(Error::failed(format!("a {} is not a number", value.kind()))),
            },
            "round" => round(&value, arguments),
            "trim" => {
                let [chars] = arguments.bind(name, ["chars"])?;
                let text = self.printed(&value)?;
                self.strip(&text, &chars, true, true)
            }
            "upper" | "lower" | "title" | "capitalize" | "replace" | "split" | "lines" => {
                let text = self.printed(&value)?;
                let method = if name == "lines" { "splitlines" } else { name };
                self.text_method(&text, &method.into(), arguments)
            }
            "indent" => self.indent(&value, arguments),
            "truncate" => {
                let names = ["length", "killwords", "end", "leeway"];
                let [length, cuts_words, end, leeway] = arguments.bind(name, names)?;
                let text = self.printed(&value)?;
                let (length, leeway) = (size(&length, 255)?, size(&leeway, 5)?);
                self.meter.scan(text.len())?;
                if text.chars().count() <= length.saturating_add(leeway) {
                    return Ok(Value::Text(text));
                }
                self.truncate(&text, length, cuts_words.is_true(), &text_or(&end, "...")?)
            }
            "center" => {
                let [width] = arguments.bind(name, ["width"])?;
                let text = self.printed(&value)?;
                let padding = self.width(&width, 80)?.saturating_sub(text.chars().count());
                let mut centred = Text::new(self.meter);
                centred.push_repeated(" ", padding / 2)?;
                centred.push(&text)?;
                centred.push_repeated(" ", padding - padding / 2)?;
                Ok(Value::text(centred.finish()))
            }
            "wordcount" => {
                let text = self.printed(&value)?;
                self.meter.scan(text.len())?;
                Ok(Value::Int(text.split_whitespace().count() as i128))
            }
            "urlencode" => {
                let text = self.printed(&value)?;
                let mut encoded = Text::new(self.meter);
                for byte in text.bytes() {
                    match byte {
                        b'0'..=b'9'
                        | b'a'..=b'z'
                        | b'A'..=b'Z'
                        | b'-'
                        | b'.'
                        | b'_'
                        | b'~'
                        | b'/' => {
                            encoded.push_char(char::from(byte))?;
                        }
                        byte => encoded.push(&format!("%{byte:02X}"))?,
                    }
                }
                Ok(Value::text(encoded.finish()))
            }
            "format" => {
                let pattern = text(&value)?;
                if arguments.named.is_empty() {
                    let values = Value::tuple(arguments.positional)?;
                    return self.percent_format(pattern, &values);
                }
                let named = arguments.named.into_iter();
                let named = named.map(|(name, value)| (Key::Text(name), value)).collect();
                self.percent_format(pattern, &Value::map(named)?)
            }
            "pprint" => {
                let mut shown = Text::new(self.meter);
                print::represent(&value, &mut shown)?;
                Ok(Value::text(shown.finish()))
            }
            "attr" => {
                let [name] = arguments.bind(name, ["name"])?;
                self.field(&value, text(&name)?)
            }
            _ => self.sequence_filter(name, &value, arguments),
        }
    }

    /// The printed form of the value.
    pub(super) fn printed(&self, value: &Value) -> Result<Arc<str>, Error> {
        if let Value::Text(text) = value {
            return Ok(Arc::clone(text));
        }
        let mut text = Text::new(self.meter);
        print::print(value, &mut text)?;
        Ok(text.finish().into())
    }

    /// Returns the length of a value. Like in Python, undefined is empty and none has no length.
    fn length(&self, value: &Value) -> Result<Value, Error> {
        let len = match value {
            Value::Undefined => 0,
            Value::Text(text) => {
                self.meter.scan(text.len())?;
                text.chars().count()
            }
            Value::List(list) => list.items.len(),
            Value::Map(map) => map.entries.len(),
            _ => {
                let message = format!("a value of type {} has no length", value.kind());
                return Err(Error::failed(message));
            }
        };
        Ok(Value::Int(len as i128))
    }

    fn to_json(&self, value: &Value, arguments: Arguments) -> Result<Value, Error> {
        let names = ["indent", "ensure_ascii", "separators", "sort_keys"];
        let [indent, ensure_ascii, separators, sort_keys] = arguments.bind("tojson", names)?;
        let indent = match indent {
            Value::Undefined | Value::None => None,
            width => Some(size(&width, 0)?),
        };
        let between = if indent.is_some() { "," } else { ", " };
        let (mut between_items, mut after_key) = (between.to_owned(), ": ".to_owned());
        if let Value::List(list) = &separators
            && let [Value::Text(between), Value::Text(after)] = list.items.as_slice()
        {
            (between_items, after_key) = (between.to_string(), after.to_string());
        }
        let format = json::JsonFormat {
            indent,
            ensure_ascii: ensure_ascii.is_true(),
            sort_keys: sort_keys.is_true(),
            between_items,
            after_key,
        };
        let mut text = Text::new(self.meter);
        json::write(value, &format, &mut text)?;
        Ok(Value::text(text.finish()))
    }

    fn escape(&self, text: &str) -> Result<Value, Error> {
        let mut escaped = Text::new(self.meter);
        for c in text.chars() {
            match c {
                '&' => escaped.push("&amp;")?,
                '<' => escaped.push("&lt;")?,
                '>' => escaped.push("&gt;")?,
                '"' => escaped.push("&#34;")?,
                '\'' => escaped.push("&#39;")?,
                c => escaped.push_char(c)?,
            }
        }
        Ok(Value::text(escaped.finish()))
    }

    /// Converts a value like Python's `int`: text is parsed, floats are cut.
    pub(super) fn to_int(&self, value: &Value) -> Result<Option<i128>, Error> {
        let whole = |float: f64| (float.abs() < 1e30).then_some(float as i128);
        Ok(match value {
            Value::Text(text) => {
                self.meter.scan(text.len())?;
                let text = text.trim();
                text.parse().ok().or_else(|| text.parse().ok().and_then(whole))
            }
            Value::Float(float) => whole(*float),
            value => value.as_int(),
        })
    }

    fn indent(&self, value: &Value, arguments: Arguments) -> Result<Value, Error> {
        let [width, first, blank] = arguments.bind("indent", ["width", "first", "blank"])?;
        let text = self.printed(value)?;
        let margin = match &width {
            Value::Text(margin) => Arc::clone(margin),
            width => {
                let mut margin = Text::new(self.meter);
                margin.push_repeated(" ", size(width, 4)?)?;
                margin.finish().into()
            }
        };
        let mut indented = Text::new(self.meter);
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                indented.push("\n")?;
            }
            let wanted = if index == 0 { first.is_true() } else { true };
            if wanted && (!line.is_empty() || blank.is_true()) {
                indented.push(&margin)?;
            }
            indented.push(line)?;
        }
        Ok(Value::text(indented.finish()))
    }

    fn truncate(
        &self,
        text: &str,
        length: usize,
        cuts_words: bool,
        end: &str,
    ) -> Result<Value, Error> {
        let kept = length.saturating_sub(end.chars().count());
        let mut cut = Text::new(self.meter);
        let bytes = text.char_indices().nth(kept).map_or(text.len(), |(at, _)| at);
        let head = &text[..bytes];
        let whole_words = head.rsplit_once(' ').filter(|_| !cuts_words).map(|(head, _)| head);
        cut.push(whole_words.unwrap_or(head))?;
        cut.push(end)?;
        Ok(Value::text(cut.finish()))
    }
}

/// Rounds a number like the filter of jinja2: integers stay integers.
fn round(value: &Value, arguments: Arguments) -> Result<Value, Error> {
    let [precision, method] = arguments.bind("round", ["precision", "method"])?;
    let number = value.as_float();
    let number = number.ok_or_else(|| Error::failed("round takes a number"))?;
    let method = text_or(&method, "common")?;
    if let (Value::Int(_), "common") = (value, &*method) {
        return Ok(value.clone());
    }
    let precision = size(&precision, 0)?.min(300) as i32;
    let scale = 10_f64.powi(precision);
    let scaled = number * scale;
    let rounded = match &*method {
        "common" => scaled.round_ties_even(),
        "floor" => scaled.floor(),
        "ceil" => scaled.ceil(),
        _ => return Err(Error::failed("round knows common, floor and ceil")),
    };
    Ok(Value::Float(if scaled.is_finite() { rounded / scale } else { number }))
}
