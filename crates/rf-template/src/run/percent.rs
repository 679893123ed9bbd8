//! Python's `%` on texts: `'%s is %03d' % ('x', 5)`, and the filter `format`.

use std::sync::Arc;

use super::TemplateRun;
use crate::error::Error;
use crate::meter::Text;
use crate::print;
use crate::value::{Key, Value};

/// A directive after its `%`.
#[derive(Debug, Default)]
struct Directive<'p> {
    /// The key in parentheses.
    key: Option<&'p str>,
    to_left: bool,
    zeros: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

impl TemplateRun<'_> {
    /// The text of `pattern` with values: a tuple of them, a mapping for keys, or one value.
    pub(super) fn percent_format(&self, pattern: &str, value: &Value) -> Result<Value, Error> {
        let values = match value {
            Value::List(list) if list.is_tuple => list.items.as_slice(),
            value => std::slice::from_ref(value),
        };
        let mut values = values.iter();
        let mut text = Text::new(self.meter);
        let mut rest = pattern;
        while let Some(at) = rest.find('%') {
            text.push(&rest[..at])?;
            let (directive, tail) = Directive::parse(&rest[at + 1..])?;
            rest = tail;
            if directive.kind == '%' {
                text.push("%")?;
                continue;
            }
            let missing = || Error::failed("the format has too few values");
            match (directive.key, value) {
                (Some(key), Value::Map(map)) => {
                    let found = map.entries.get(&Key::Text(key.into())).ok_or_else(missing)?;
                    self.push_directive(&directive, found, &mut text)?;
                }
                (Some(_), _) => return Err(Error::failed("the format needs a mapping")),
                (None, _) => {
                    self.push_directive(&directive, values.next().ok_or_else(missing)?, &mut text)?;
                }
            }
        }
        text.push(rest)?;
        if values.next().is_some() && !matches!(value, Value::Map(_)) {
            return Err(Error::failed("the format has too many values"));
        }
        Ok(Value::text(text.finish()))
    }

    fn push_directive(
        &self,
        directive: &Directive<'_>,
        value: &Value,
        text: &mut Text<'_>,
    ) -> Result<(), Error> {
        let &Directive { to_left, zeros, plus, width, precision, kind, .. } = directive;
        let not_a_number = || Error::failed("expected a number");
        let int = || self.to_int(value)?.ok_or_else(not_a_number);
        let float = || value.as_float().ok_or_else(not_a_number);
        let piece: Arc<str> = match kind {
            's' => self.printed(value)?,
            'r' => {
                let mut printed = Text::new(self.meter);
                print::represent(value, &mut printed)?;
                printed.finish().into()
            }
            'd' | 'i' | 'u' => int()?.to_string().into(),
            'f' | 'F' => format!("{:.*}", precision.unwrap_or(6).min(300), float()?).into(),
            'x' => signed(int()?, |size| format!("{size:x}")).into(),
            'X' => signed(int()?, |size| format!("{size:X}")).into(),
            'o' => signed(int()?, |size| format!("{size:o}")).into(),
            _ => return Err(unknown()),
        };
        let is_text = matches!(kind, 's' | 'r');
        let piece = match precision.filter(|_| is_text) {
            Some(most) => piece.chars().take(most).collect::<String>().into(),
            None => piece,
        };
        let (sign, digits) = match piece.strip_prefix('-').filter(|_| !is_text) {
            Some(digits) => ("-", digits),
            None if plus && !is_text => ("+", &*piece),
            None => ("", &*piece),
        };
        let padding = width.saturating_sub(sign.len() + digits.chars().count());
        let zeros = zeros && !to_left && !is_text;
        text.push_repeated(" ", if to_left || zeros { 0 } else { padding })?;
        text.push(sign)?;
        text.push_repeated("0", if zeros { padding } else { 0 })?;
        text.push(digits)?;
        text.push_repeated(" ", if to_left { padding } else { 0 })
    }
}

impl<'p> Directive<'p> {
    /// Reads the directive at the start of `text`. Returns the text after it, too.
    fn parse(text: &'p str) -> Result<(Self, &'p str), Error> {
        let mut directive = Self::default();
        let mut rest = text;
        if let Some(after) = text.strip_prefix('(') {
            let (key, tail) = after.split_once(')').ok_or_else(unknown)?;
            (directive.key, rest) = (Some(key), tail);
        }
        let flags = rest.len() - rest.trim_start_matches(['-', '+', '0', ' ', '#']).len();
        let (flags, tail) = rest.split_at(flags);
        directive.to_left = flags.contains('-');
        directive.zeros = flags.contains('0');
        directive.plus = flags.contains('+');
        let (width, tail) = digits(tail);
        directive.width =
            if width.is_empty() { 0 } else { width.parse().map_err(|_| unknown())? };
        rest = tail;
        if let Some(after) = tail.strip_prefix('.') {
            let (precision, tail) = digits(after);
            directive.precision = Some(precision.parse().unwrap_or(0));
            rest = tail;
        }
        let kind = rest.chars().next().ok_or_else(unknown)?;
        directive.kind = kind;
        Ok((directive, &rest[kind.len_utf8()..]))
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len())
}

fn signed(value: i128, format: impl Fn(u128) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", format(value.unsigned_abs()))
}

fn unknown() -> Error {
    Error::failed("the format has an unknown directive")
}
