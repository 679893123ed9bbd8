//! The syntax of GBNF.

use crate::Error;

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 100;
/// The largest number of repetitions.
const MAX_REPETITIONS: u32 = 10_000;

/// `name ::= expression`
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) place: GrammarPosition,
    pub(super) expression: Expression,
}

/// Sequences, separated by `|`.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) alternatives: Vec<Vec<Element>>,
}

/// An element of a sequence.
#[derive(Debug)]
pub(super) enum Element {
    Rule {
        name: String,
        place: GrammarPosition,
    },
    Terminal(Terminal),
    /// `<[id]>` or `<name>`: a token of the vocabulary.
    Token(String),
    Group(Expression),
    Repeated {
        element: Box<Self>,
        least: u32,
        most: Option<u32>,
    },
}

#[derive(Debug, PartialEq)]
pub(super) enum Terminal {
    Text(String),
    Any,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// A place in a grammar: an index of its characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrammarPosition(usize);

impl GrammarPosition {
    pub(super) const START: Self = Self(0);

    /// An error at this place of `text`.
    pub(super) fn error(self, text: &str, problem: String) -> Error {
        let (mut line, mut column) = (1, 1);
        for c in text.chars().take(self.0) {
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        Error::Gbnf { line, column, problem }
    }
}

/// Parses a grammar.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>, Error> {
    let mut parser = Parser { text, chars: text.chars().collect(), at: 0 };
    let mut rules = Vec::new();
    parser.space(true);
    while parser.peek().is_some() {
        let place = GrammarPosition(parser.at);
        let name = parser.name().ok_or_else(|| parser.expected("the name of a rule"))?;
        parser.space(false);
        if !parser.take("::=") {
            return Err(parser.expected("::="));
        }
        parser.space(true);
        let expression = parser.expression(0)?;
        rules.push(Rule { name, place, expression });
        parser.space(true);
    }
    Ok(rules)
}

struct Parser<'a> {
    text: &'a str,
    chars: Vec<char>,
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += usize::from(c.is_some());
        c
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let fits = text.chars().zip(rest).filter(|(a, b)| a == *b).count() == text.chars().count();
        if fits {
            self.at += text.chars().count();
        }
        fits
    }

    fn error(&self, at: usize, problem: impl Into<String>) -> Error {
        GrammarPosition(at).error(self.text, problem.into())
    }

    fn expected(&self, what: &str) -> Error {
        self.error(self.at, format!("expected {what}"))
    }

    /// Skips white space and comments; line breaks only if they cannot end the rule.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                '\n' | '\r' if !lines => return,
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ if c.is_whitespace() => self.at += 1,
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)) {
            name.push(c);
            self.at += 1;
        }
        Some(name).filter(|name| !name.is_empty())
    }

    fn expression(&mut self, depth: usize) -> Result<Expression, Error> {
        if depth > MAX_DEPTH {
            return Err(self.error(self.at, "the groups are nested too deep"));
        }
        let mut alternatives = vec![self.sequence(depth)?];
        while self.peek() == Some('|') {
            self.at += 1;
            self.space(true);
            alternatives.push(self.sequence(depth)?);
        }
        Ok(Expression { alternatives })
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Element>, Error> {
        let mut elements = Vec::new();
        loop {
            match self.peek() {
                None | Some('|' | '\n' | '\r') => return Ok(elements),
                Some(')') if depth > 0 => return Ok(elements),
                Some(_) => {
                    let element = self.element(depth)?;
                    let element = self.repetitions(element)?;
                    elements.push(element);
                    // Within a group, rules cannot end.
                    self.space(depth > 0);
                }
            }
        }
    }

    fn element(&mut self, depth: usize) -> Result<Element, Error> {
        let start = self.at;
        match self.peek() {
            Some('"') => self.text().map(Element::Terminal),
            Some('[') => self.class().map(Element::Terminal),
            Some('.') => {
                self.at += 1;
                Ok(Element::Terminal(Terminal::Any))
            }
            Some('<') => self.token(),
            Some('(') => {
                self.at += 1;
                self.space(true);
                let expression = self.expression(depth + 1)?;
                self.space(true);
                if !self.take(")") {
                    return Err(self.expected(")"));
                }
                Ok(Element::Group(expression))
            }
            _ => match self.name() {
                Some(name) => Ok(Element::Rule { name, place: GrammarPosition(start) }),
                None => Err(self.expected("a text, a class, a rule or a group")),
            },
        }
    }

    fn repetitions(&mut self, mut element: Element) -> Result<Element, Error> {
        loop {
            let start = self.at;
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.at += 1;
                    let bounds = self.bounds()?;
                    if self.peek() != Some('}') {
                        return Err(self.expected("}"));
                    }
                    bounds
                }
                _ => return Ok(element),
            };
            self.at += 1;
            if most.is_some_and(|most| least > most) {
                return Err(self.error(start, "the least number is above the most"));
            }
            element = Element::Repeated { element: Box::new(element), least, most };
        }
    }

    /// `m`, `m,`, `,n` or `m,n`.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), Error> {
        let least = self.number()?;
        if !self.take(",") {
            let exactly = least.ok_or_else(|| self.expected("a number"))?;
            return Ok((exactly, Some(exactly)));
        }
        Ok((least.unwrap_or(0), self.number()?))
    }

    fn number(&mut self) -> Result<Option<u32>, Error> {
        self.space(false);
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let digits: String = self.chars[start..self.at].iter().collect();
        self.space(false);
        if digits.is_empty() {
            return Ok(None);
        }
        let number = digits.parse().ok().filter(|number| *number <= MAX_REPETITIONS);
        let too_large = format!("at most {MAX_REPETITIONS} repetitions are supported");
        number.map(Some).ok_or_else(|| self.error(start, too_large))
    }

    fn text(&mut self) -> Result<Terminal, Error> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => {
                    return Err(self.error(start, "the text is not closed: add \""));
                }
                Some('"') => {
                    self.at += 1;
                    return Ok(Terminal::Text(text));
                }
                Some(_) => text.push(self.character()?),
            }
        }
    }

    fn class(&mut self) -> Result<Terminal, Error> {
        let start = self.at;
        self.at += 1;
        let negated = self.take("^");
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                None | Some('\n') => {
                    return Err(self.error(start, "the class is not closed: add ]"));
                }
                Some(']') => {
                    self.at += 1;
                    if ranges.is_empty() {
                        return Err(self.error(start, "the class is empty"));
                    }
                    return Ok(Terminal::Class { negated, ranges });
                }
                Some(_) => {
                    let from = self.at;
                    let first = self.character()?;
                    let is_range = self.peek() == Some('-')
                        && self.chars.get(self.at + 1).is_some_and(|c| *c != ']');
                    let last = if is_range {
                        self.at += 1;
                        self.character()?
                    } else {
                        first
                    };
                    if first > last {
                        return Err(self.error(from, "the range is empty"));
                    }
                    ranges.push((first, last));
                }
            }
        }
    }

    /// A character of a text or class, perhaps escaped.
    fn character(&mut self) -> Result<char, Error> {
        let c = self.next().ok_or_else(|| self.expected("a character"))?;
        if c != '\\' {
            return Ok(c);
        }
        let at = self.at;
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) => return Err(self.error(at, format!("unknown escape \\{c}"))),
            None => return Err(self.expected("an escape")),
        };
        let number: String = self.chars[self.at..].iter().take(digits).collect();
        let hex = number.len() == digits && number.chars().all(|c| c.is_ascii_hexdigit());
        if !hex {
            return Err(self.error(at, format!("expected {digits} hexadecimal digits")));
        }
        self.at += digits;
        let c = u32::from_str_radix(&number, 16).ok().and_then(char::from_u32);
        c.ok_or_else(|| self.error(at, "no character has this number"))
    }

    fn token(&mut self) -> Result<Element, Error> {
        let start = self.at;
        let mut token = String::new();
        while let Some(c) = self.next().filter(|c| !c.is_whitespace()) {
            token.push(c);
            if c == '>' && token.len() > 2 {
                return Ok(Element::Token(token));
            }
        }
        Err(self.error(start, "the token is not closed: add >"))
    }
}
