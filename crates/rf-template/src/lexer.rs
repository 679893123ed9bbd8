//! Cuts a source into text and the tokens of tags, with the rules for white space of
//! `transformers`: `trim_blocks` and `lstrip_blocks`.

use crate::error::Error;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// Text outside of tags.
    Text(String),
    /// `{{` and `}}`.
    PrintStart,
    PrintEnd,
    /// `{%` and `%}`.
    TagStart,
    TagEnd,
    Name(String),
    Quoted(String),
    Int(i128),
    Float(f64),
    /// An operator or bracket.
    Sign(&'static str),
    End,
}

/// The tokens of `source` with their lines. The last one is [`Token::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, u32)>, Error> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { rest: source, line: 1, tokens: Vec::new(), after: After::Start };
    lexer.run()?;
    Ok(lexer.tokens)
}

/// Longer signs first.
const SIGNS: [&str; 27] = [
    "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[",
    "]", "{", "}", ",", ".", ":", "|", ";", "!",
];

/// The token before a text.
#[derive(Debug, Clone, Copy, PartialEq)]
enum After {
    Start,
    Print,
    /// A tag or comment, whose line break is dropped.
    Tag,
    /// A tag with `+`.
    Kept,
    /// A tag with `-`.
    Trimmed,
}

struct Lexer<'s> {
    rest: &'s str,
    line: u32,
    tokens: Vec<(Token, u32)>,
    after: After,
}

impl<'s> Lexer<'s> {
    fn run(&mut self) -> Result<(), Error> {
        loop {
            let start = self.find_tag();
            let (text, tag) = self.rest.split_at(start.unwrap_or(self.rest.len()));
            self.push_text(text, tag);
            self.skip(text.len());
            match tag.as_bytes().get(1) {
                Some(b'#') => self.comment()?,
                Some(b'{') => {
                    self.open(Token::PrintStart);
                    self.inside("}}", Token::PrintEnd)?;
                }
                Some(_) if self.starts_raw() => self.raw()?,
                Some(_) => {
                    self.open(Token::TagStart);
                    self.inside("%}", Token::TagEnd)?;
                }
                None => {
                    self.tokens.push((Token::End, self.line));
                    return Ok(());
                }
            }
        }
    }

    fn find_tag(&self) -> Option<usize> {
        let bytes = self.rest.as_bytes();
        (0..bytes.len().saturating_sub(1))
            .find(|&at| bytes[at] == b'{' && matches!(bytes[at + 1], b'{' | b'%' | b'#'))
    }

    /// Adds `text`, which stands before `tag`, without the white space that the tags around remove.
    fn push_text(&mut self, text: &'s str, tag: &str) {
        let line = self.line;
        let mut text = match self.after {
            After::Trimmed => text.trim_start(),
            After::Tag => text.strip_prefix('\n').unwrap_or(text),
            After::Start | After::Print | After::Kept => text,
        };
        let is_block = tag.starts_with("{%") || tag.starts_with("{#");
        match tag.as_bytes().get(2) {
            Some(b'-') => text = text.trim_end(),
            Some(b'+') => {}
            _ if is_block => {
                let indented = text.trim_end_matches([' ', '\t']);
                let at_line_start = match indented.chars().next_back() {
                    Some(last) => last == '\n',
                    // The text begins where a line does.
                    None => match self.after {
                        After::Start => true,
                        After::Tag => self.rest.starts_with('\n'),
                        After::Print | After::Kept | After::Trimmed => false,
                    },
                };
                if at_line_start {
                    text = indented;
                }
            }
            _ => {}
        }
        if !text.is_empty() {
            self.tokens.push((Token::Text(text.to_owned()), line));
        }
    }

    fn open(&mut self, token: Token) {
        self.tokens.push((token, self.line));
        self.skip(2);
        if self.rest.starts_with(['-', '+']) {
            self.skip(1);
        }
    }

    fn skip(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.line += passed.bytes().filter(|&byte| byte == b'\n').count() as u32;
        self.rest = rest;
    }

    fn comment(&mut self) -> Result<(), Error> {
        let end = self.rest.find("#}").ok_or_else(|| self.error("the comment has no end"))?;
        // `{#-}` closes nothing: the sign belongs to the opening.
        let sign = self.rest.as_bytes()[end - 1];
        self.skip(end + 2);
        self.after = after_block(if end > 2 { sign } else { b' ' });
        Ok(())
    }

    fn starts_raw(&self) -> bool {
        let tag = self.rest[2..].trim_start_matches(['-', '+']).trim_start();
        tag.strip_prefix("raw").is_some_and(|tag| {
            let end = tag.trim_start();
            end.starts_with("%}") || end.starts_with("-%}") || end.starts_with("+%}")
        })
    }

    fn raw(&mut self) -> Result<(), Error> {
        let open = self.rest.find("%}").ok_or_else(|| self.error("the tag has no end"))?;
        let trims_start = self.rest.as_bytes()[open - 1] == b'-';
        self.skip(open + 2);
        let mut at = 0;
        let (end, tag) = loop {
            let found = self.rest[at..].find("{%").map(|found| at + found);
            let found = found.ok_or_else(|| self.error("raw has no endraw"))?;
            let tag = self.rest[found + 2..].trim_start_matches(['-', '+']).trim_start();
            if tag.strip_prefix("endraw").is_some_and(|tag| {
                tag.trim_start().trim_start_matches(['-', '+']).starts_with("%}")
            }) {
                break (found, &self.rest[found..]);
            }
            at = found + 2;
        };
        let mut text = &self.rest[..end];
        text = if trims_start { text.trim_start() } else { text };
        text = if tag.as_bytes().get(2) == Some(&b'-') { text.trim_end() } else { text };
        if !text.is_empty() {
            self.tokens.push((Token::Text(text.to_owned()), self.line));
        }
        let close = tag.find("%}").unwrap_or(0);
        let sign = tag.as_bytes()[close.saturating_sub(1)];
        self.skip(end + close + 2);
        self.after = after_block(sign);
        Ok(())
    }

    /// The tokens of a tag up to `end`. Brackets hide it: `{{ {'a': {}} }}`.
    fn inside(&mut self, end: &str, token: Token) -> Result<(), Error> {
        let mut open_braces = 0_usize;
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.skip(blanks);
            let signed = self.rest.strip_prefix(['-', '+']);
            let closes = self.rest.starts_with(end) && open_braces == 0;
            if closes || signed.is_some_and(|rest| rest.starts_with(end)) {
                let sign = self.rest.as_bytes()[0];
                self.tokens.push((token.clone(), self.line));
                self.skip(if closes { 2 } else { 3 });
                self.after = match (token, sign) {
                    (_, b'-') => After::Trimmed,
                    (Token::TagEnd, _) => after_block(sign),
                    _ => After::Print,
                };
                return Ok(());
            }
            let Some(first) = self.rest.chars().next() else {
                return Err(self.error("the tag has no end"));
            };
            let line = self.line;
            let found = match first {
                '\'' | '"' => self.quoted(first)?,
                '0'..='9' => self.number()?,
                c if c == '_' || c.is_alphabetic() => {
                    let is_part = |c: char| c == '_' || c.is_alphanumeric();
                    let len = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                    let name = self.rest[..len].to_owned();
                    self.skip(len);
                    Token::Name(name)
                }
                _ => {
                    let sign = SIGNS.iter().find(|sign| self.rest.starts_with(**sign));
                    let Some(sign) = sign else {
                        return Err(self.error(&format!("unexpected character {first:?}")));
                    };
                    match *sign {
                        "{" => open_braces += 1,
                        "}" => open_braces = open_braces.saturating_sub(1),
                        _ => {}
                    }
                    self.skip(sign.len());
                    Token::Sign(sign)
                }
            };
            self.tokens.push((found, line));
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Token, Error> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.skip(at + 1);
                return Ok(Token::Quoted(text));
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let Some((_, escaped)) = chars.next() else { break };
            let digits = match escaped {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            match escaped {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                'v' => text.push('\u{b}'),
                'a' => text.push('\u{7}'),
                '0' => text.push('\0'),
                '\n' => {}
                '\\' | '\'' | '"' => text.push(escaped),
                'x' | 'u' | 'U' => {
                    let hex: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                    let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
                    let c = code.and_then(char::from_u32);
                    text.push(c.ok_or_else(|| self.error("the escape sequence is malformed"))?);
                }
                other => text.extend(['\\', other]),
            }
        }
        Err(self.error("the string has no end"))
    }

    fn number(&mut self) -> Result<Token, Error> {
        let is_digit = |c: char| c.is_ascii_digit() || c == '_';
        let digits = |text: &str| text.find(|c| !is_digit(c)).unwrap_or(text.len());
        let mut len = digits(self.rest);
        let mut is_float = false;
        let fraction = self.rest[len..].strip_prefix('.').map_or(0, digits);
        if fraction > 0 {
            is_float = true;
            len += 1 + fraction;
        }
        if let Some(exponent) = self.rest[len..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let count = digits(&exponent[sign..]);
            if count > 0 {
                is_float = true;
                len += 1 + sign + count;
            }
        }
        let text = self.rest[..len].replace('_', "");
        let malformed = || self.error("the number is too large");
        let token = if is_float {
            Token::Float(text.parse().map_err(|_| malformed())?)
        } else {
            Token::Int(text.parse().map_err(|_| malformed())?)
        };
        self.skip(len);
        Ok(token)
    }

    fn error(&self, message: &str) -> Error {
        Error::Syntax { line: self.line, message: message.to_owned() }
    }
}

fn after_block(sign: u8) -> After {
    match sign {
        b'-' => After::Trimmed,
        b'+' => After::Kept,
        _ => After::Tag,
    }
}
