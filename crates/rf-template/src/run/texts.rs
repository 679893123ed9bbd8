//! Python's methods of strings.

use std::sync::Arc;

use super::TemplateRun;
use super::arguments::{Arguments, size, text};
use crate::error::Error;
use crate::meter::Text;
use crate::print;
use crate::value::Value;

impl TemplateRun<'_> {
    #[expect(clippy::too_many_lines, reason = "an arm per method")]
    pub(super) fn text_method(
        &self,
        value: &Arc<str>,
        name: &Arc<str>,
        arguments: Arguments,
    ) -> Result<Value, Error> {
        self.meter.scan(value.len())?;
        match &**name {
            "strip" | "lstrip" | "rstrip" => {
                let [chars] = arguments.bind(name, ["chars"])?;
                self.strip(value, &chars, &**name != "rstrip", &**name != "lstrip")
            }
            "split" | "rsplit" => {
                let [separator, limit] = arguments.bind(name, ["sep", "maxsplit"])?;
                let limit = limit.as_int().and_then(|n| usize::try_from(n).ok());
                let limit = limit.unwrap_or(usize::MAX - 1);
                self.split(value, &separator, limit, &**name == "rsplit")
            }
            "splitlines" => {
                let [keep] = arguments.bind(name, ["keepends"])?;
                if keep.is_true() {
                    self.texts(value.split_inclusive('\n'))
                } else {
                    self.texts(value.lines())
                }
            }
            "startswith" | "endswith" => {
                let [parts] = arguments.bind(name, ["prefix"])?;
                self.starts_or_ends(value, &parts, &**name == "startswith")
            }
            "removeprefix" | "removesuffix" => {
                let [part] = arguments.bind(name, ["part"])?;
                let part = text(&part)?;
                let rest = if &**name == "removeprefix" {
                    value.strip_prefix(&**part)
                } else {
                    value.strip_suffix(&**part)
                };
                self.copy(rest.unwrap_or(value))
            }
            "replace" => {
                let [old, new, limit] = arguments.bind(name, ["old", "new", "count"])?;
                let limit = limit.as_int().and_then(|n| usize::try_from(n).ok());
                self.replace(value, text(&old)?, text(&new)?, limit.unwrap_or(usize::MAX))
            }
            "upper" | "lower" | "title" | "capitalize" => {
                let [] = arguments.bind(name, [])?;
                // One character becomes three at most.
                self.meter.allocate(value.len().saturating_mul(3))?;
                Ok(Value::text(match &**name {
                    "upper" => value.to_uppercase(),
                    "lower" => value.to_lowercase(),
                    name => capitalized(value, name == "title"),
                }))
            }
            "find" | "rfind" | "index" => {
                let [part] = arguments.bind(name, ["part"])?;
                let part = text(&part)?;
                let at =
                    if &**name == "rfind" { value.rfind(&**part) } else { value.find(&**part) };
                match at {
                    Some(at) => Ok(Value::Int(value[..at].chars().count() as i128)),
                    None if &**name == "index" => Err(Error::failed("the part is not there")),
                    None => Ok(Value::Int(-1)),
                }
            }
            "count" => {
                let [part] = arguments.bind(name, ["part"])?;
                let count = value.matches(&**text(&part)?).count();
                Ok(Value::Int(count as i128))
            }
            "join" => {
                let [items] = arguments.bind(name, ["items"])?;
                let mut joined = Text::new(self.meter);
                for (index, item) in self.items(&items)?.items.iter().enumerate() {
                    if index > 0 {
                        joined.push(value)?;
                    }
                    joined.push(text(item)?)?;
                }
                Ok(Value::text(joined.finish()))
            }
            "format" => self.brace_format(value, &arguments),
            "partition" | "rpartition" => {
                let [separator] = arguments.bind(name, ["sep"])?;
                let separator = text(&separator)?;
                let parts = if &**name == "partition" {
                    value.split_once(&**separator).map(|(a, b)| [a, separator, b])
                } else {
                    value.rsplit_once(&**separator).map(|(a, b)| [a, separator, b])
                };
                let whole =
                    if &**name == "partition" { [value, "", ""] } else { ["", "", &**value] };
                self.texts(parts.unwrap_or(whole).into_iter())
            }
            "ljust" | "rjust" | "zfill" => {
                let [width, fill] = arguments.bind(name, ["width", "fillchar"])?;
                self.padded(value, name, size(&width, 0)?, &fill)
            }
            "isdigit" | "isdecimal" | "isnumeric" => {
                Ok(Value::Bool(!value.is_empty() && value.chars().all(char::is_numeric)))
            }
            "isalpha" => {
                Ok(Value::Bool(!value.is_empty() && value.chars().all(char::is_alphabetic)))
            }
            "isalnum" => {
                Ok(Value::Bool(!value.is_empty() && value.chars().all(char::is_alphanumeric)))
            }
            "isspace" => {
                Ok(Value::Bool(!value.is_empty() && value.chars().all(char::is_whitespace)))
            }
            "isupper" | "islower" => {
                let wrong = |c: char| {
                    if &**name == "isupper" { c.is_lowercase() } else { c.is_uppercase() }
                };
                let cased = value.chars().any(|c| c.is_lowercase() || c.is_uppercase());
                Ok(Value::Bool(cased && !value.chars().any(wrong)))
            }
            _ => Err(Error::failed(format!("a string has no method `{name}`"))),
        }
    }

    /// A copy of a part of a text.
    fn copy(&self, part: &str) -> Result<Value, Error> {
        self.meter.allocate(part.len())?;
        Ok(Value::text(part))
    }

    fn texts<'v>(&self, parts: impl Iterator<Item = &'v str>) -> Result<Value, Error> {
        let mut items = Vec::new();
        for part in parts {
            self.meter.allocate_list(1)?;
            // The header of the shared text counts, too.
            self.meter.allocate(16)?;
            items.push(self.copy(part)?);
        }
        Value::list(items)
    }

    pub(super) fn strip(
        &self,
        value: &Arc<str>,
        chars: &Value,
        start: bool,
        end: bool,
    ) -> Result<Value, Error> {
        let set: Option<Vec<char>> = match chars {
            Value::Undefined | Value::None => None,
            chars => {
                let chars = text(chars)?;
                self.meter.allocate(chars.len().saturating_mul(4))?;
                // Each character of the text is compared with the set.
                self.meter.step(chars.len().saturating_mul(value.len() / 16 + 1))?;
                Some(chars.chars().collect())
            }
        };
        let is_stripped = |c: char| set.as_ref().map_or(c.is_whitespace(), |set| set.contains(&c));
        self.meter.scan(value.len())?;
        let mut rest = &**value;
        if start {
            rest = rest.trim_start_matches(is_stripped);
        }
        if end {
            rest = rest.trim_end_matches(is_stripped);
        }
        if rest.len() == value.len() { Ok(Value::Text(Arc::clone(value))) } else { self.copy(rest) }
    }

    fn split(
        &self,
        value: &str,
        separator: &Value,
        limit: usize,
        from_end: bool,
    ) -> Result<Value, Error> {
        let parts = limit.saturating_add(1);
        match separator {
            Value::Undefined | Value::None => {
                if limit >= value.len() {
                    return self.texts(value.split_whitespace());
                }
                let mut rest = value.trim_start();
                let mut words = Vec::new();
                while words.len() < limit && !rest.is_empty() {
                    self.meter.allocate_list(1)?;
                    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                    words.push(&rest[..end]);
                    rest = rest[end..].trim_start();
                }
                let rest = Some(rest).filter(|rest| !rest.is_empty());
                self.texts(words.into_iter().chain(rest))
            }
            separator => {
                let separator = text(separator)?;
                if separator.is_empty() {
                    return Err(Error::failed("the separator is empty"));
                }
                if !from_end {
                    return self.texts(value.splitn(parts, &**separator));
                }
                let list = self.texts(value.rsplitn(parts, &**separator))?;
                let items = self.items(&list)?;
                self.meter.allocate_list(items.items.len())?;
                Value::list(items.items.iter().rev().cloned().collect())
            }
        }
    }

    fn starts_or_ends(&self, value: &str, parts: &Value, starts: bool) -> Result<Value, Error> {
        let fits = |part: &Value| {
            let part = text(part)?;
            Ok(if starts { value.starts_with(&**part) } else { value.ends_with(&**part) })
        };
        let Value::List(parts) = parts else { return fits(parts).map(Value::Bool) };
        for part in &parts.items {
            self.meter.step(1)?;
            if fits(part)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    fn replace(&self, value: &str, old: &str, new: &str, limit: usize) -> Result<Value, Error> {
        let mut replaced = Text::new(self.meter);
        let mut copied = 0;
        for (at, _) in value.match_indices(old).take(limit) {
            replaced.push(&value[copied..at])?;
            replaced.push(new)?;
            copied = at + old.len();
        }
        replaced.push(&value[copied..])?;
        Ok(Value::text(replaced.finish()))
    }

    fn padded(&self, value: &str, name: &str, width: usize, fill: &Value) -> Result<Value, Error> {
        let fill = match fill {
            Value::Undefined => if name == "zfill" { "0" } else { " " }.into(),
            fill => Arc::clone(text(fill)?),
        };
        let padding = width.saturating_sub(value.chars().count());
        let mut padded = Text::new(self.meter);
        let sign = value.strip_prefix(['-', '+']).filter(|_| name == "zfill");
        let (sign, rest) = value.split_at(value.len() - sign.map_or(value.len(), str::len));
        padded.push(sign)?;
        if name != "ljust" {
            padded.push_repeated(&fill, padding)?;
        }
        padded.push(rest)?;
        if name == "ljust" {
            padded.push_repeated(&fill, padding)?;
        }
        Ok(Value::text(padded.finish()))
    }

    /// `str.format` with `{}`, `{0}` and `{name}`.
    fn brace_format(&self, pattern: &str, arguments: &Arguments) -> Result<Value, Error> {
        let bad = || Error::failed("the format has an unknown field");
        let mut text = Text::new(self.meter);
        let mut next = 0;
        let mut rest = pattern;
        while let Some(at) = rest.find(['{', '}']) {
            text.push(&rest[..at])?;
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                text.push(brace)?;
                rest = after;
                continue;
            }
            let end = rest.find('}').filter(|_| brace == "{").ok_or_else(bad)?;
            let field = &rest[..end];
            rest = &rest[end + 1..];
            let value = if field.is_empty() {
                next += 1;
                arguments.positional.get(next - 1)
            } else if let Ok(index) = field.parse::<usize>() {
                arguments.positional.get(index)
            } else {
                arguments.named.iter().find(|(name, _)| **name == *field).map(|(_, value)| value)
            };
            print::print(value.ok_or_else(bad)?, &mut text)?;
        }
        text.push(rest)?;
        Ok(Value::text(text.finish()))
    }
}

/// The first letter in upper case, of each word or of the text, and the others in lower case.
fn capitalized(value: &str, each_word: bool) -> String {
    let mut text = String::new();
    let mut at_start = true;
    for c in value.chars() {
        if at_start && (c.is_alphabetic() || !each_word) {
            text.extend(c.to_uppercase());
        } else {
            text.extend(c.to_lowercase());
        }
        at_start = each_word && !c.is_alphabetic();
    }
    text
}
