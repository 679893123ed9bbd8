//! The operators and names of grammars and regular expressions, counted before anything is
//! compiled: the time and the memory of the matcher grow faster than their numbers.

use serde_json::Value;

use crate::Error;
use crate::limits::{
    MAX_OPERATORS, MAX_OPERATORS_IN_A_ROW, MAX_REFERENCES_TO_RULES, MAX_REGEX_OPERATORS,
    MAX_SET_OPERATORS, at_most,
};

/// A notation of rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Notation {
    Gbnf,
    Lark,
}

/// Checks the operators of a regular expression.
pub(crate) fn check_regex(regex: &str) -> Result<(), Error> {
    let found = repetitions(regex);
    at_most("the number of repetitions in a regular expression", found, MAX_REGEX_OPERATORS)
}

/// Checks the operators and names of a grammar.
pub(crate) fn check_rules(text: &str, notation: Notation) -> Result<(), Error> {
    let counts = Counts::new(text, notation);
    at_most("the number of operators & and ~", counts.set_operators, MAX_SET_OPERATORS)?;
    at_most("the number of repetitions in a row", counts.longest_row, MAX_OPERATORS_IN_A_ROW)?;
    at_most("the number of repetitions", counts.repetitions, MAX_OPERATORS)?;
    at_most("the number of references to rules", counts.names, MAX_REFERENCES_TO_RULES)?;
    let found = counts.regex_repetitions;
    at_most("the number of repetitions in a regular expression", found, MAX_REGEX_OPERATORS)
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    /// The intersections and complements.
    set_operators: usize,
    /// The repetitions, those of the regular expressions included.
    repetitions: usize,
    longest_row: usize,
    /// The repetitions of the regular expression that has the most.
    regex_repetitions: usize,
    /// The names, without those before a colon.
    names: usize,
}

impl Counts {
    /// Counts what is in a grammar, which may be malformed.
    fn new(text: &str, notation: Notation) -> Self {
        let mut counts = Self::default();
        let (mut rest, mut row) = (text, 0);
        while let Some(first) = rest.chars().next() {
            let tail = &rest[first.len_utf8()..];
            let is_lark = notation == Notation::Lark;
            let is_row = "*+?{".contains(first);
            row = if is_row || first.is_whitespace() { row + usize::from(is_row) } else { 0 };
            counts.longest_row = counts.longest_row.max(row);
            counts.repetitions += usize::from(is_row);
            rest = match first {
                '"' => {
                    let tail = after(tail, '"');
                    tail.strip_prefix('i').filter(|_| is_lark).unwrap_or(tail)
                }
                '[' if !is_lark => after(tail, ']'),
                '{' if !is_lark => after(tail, '}'),
                '#' => line_end(tail),
                '/' if is_lark && tail.starts_with('/') => line_end(tail),
                '/' if is_lark => {
                    let end = after(tail, '/');
                    let found = repetitions(&tail[..tail.len() - end.len()]);
                    counts.repetitions += found;
                    counts.regex_repetitions = counts.regex_repetitions.max(found);
                    end.trim_start_matches(|c| "imslux".contains(c))
                }
                '%' if is_lark => directive(tail),
                '<' => token_end(tail),
                '&' if is_lark => {
                    counts.set_operators += 1;
                    tail
                }
                '~' if is_lark => {
                    // Before a number it is a repetition.
                    let operand = tail.trim_start().chars().next();
                    let repeats = operand.is_some_and(|c| c.is_ascii_digit());
                    counts.repetitions += usize::from(repeats);
                    counts.set_operators += usize::from(!repeats);
                    tail
                }
                c if is_name(c) => {
                    let tail = tail.trim_start_matches(is_name);
                    let is_reference = !c.is_ascii_digit()
                        && !tail.trim_start_matches([' ', '\t']).starts_with(':');
                    counts.names += usize::from(is_reference);
                    tail
                }
                _ => tail,
            };
        }
        counts
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The text after the next `end` that is not escaped.
fn after(text: &str, end: char) -> &str {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == end => break,
            _ => {}
        }
    }
    chars.as_str()
}

fn line_end(text: &str) -> &str {
    text.find('\n').map_or("", |at| &text[at..])
}

/// The text after a token of the vocabulary, whose `<` is before `text`.
fn token_end(text: &str) -> &str {
    let end = text.find(|c: char| c == '>' || c.is_whitespace());
    end.map_or("", |at| text[at..].strip_prefix('>').unwrap_or(&text[at..]))
}

/// The text after the `%` of a directive, and after its value, if that is JSON.
fn directive(text: &str) -> &str {
    let rest = text.trim_start_matches(is_name);
    match &text[..text.len() - rest.len()] {
        "json" | "regex" => {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let is_json = matches!(values.next(), Some(Ok(_)));
            rest.get(values.byte_offset()..).filter(|_| is_json).unwrap_or(rest)
        }
        "lark" => rest.trim_start().strip_prefix('{').unwrap_or(rest),
        _ => rest,
    }
}

/// The number of repetitions in a regular expression.
fn repetitions(regex: &str) -> usize {
    let (mut count, mut in_class) = (0, false);
    let mut chars = regex.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                // The braces of `\x{61}` and `\p{L}` repeat nothing.
                let has_braces = chars.next().is_some_and(|c| "xuUpP".contains(c));
                chars.next_if(|c| has_braces && *c == '{');
            }
            '[' if !in_class => {
                in_class = true;
                chars.next_if_eq(&'^');
                chars.next_if_eq(&']');
            }
            ']' => in_class = false,
            // `(?:` is a group.
            '(' if !in_class => drop(chars.next_if_eq(&'?')),
            '*' | '+' | '?' | '{' => count += usize::from(!in_class),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_outside_of_classes_and_escapes() {
        assert_eq!(repetitions(r"(?:a|b)*c+?[*+?{][^]*]\*\x{61}\p{L}{2,3}"), 4);
    }

    #[test]
    fn operators_are_outside_of_texts_and_comments() {
        let gbnf = "# a*\nroot ::= (x-1 \"*\\\"+\" [\"*+] )** y? <|a*|> z{2,3}\nx-1 ::= .+";
        let counts = Counts::new(gbnf, Notation::Gbnf);
        let names = 3;
        let expected = Counts { repetitions: 5, longest_row: 2, names, ..Counts::default() };
        assert_eq!(counts, expected);
        let lark = "%ignore /[ ]+/ // a*\nstart: A & ~B a{2} \"*\"i b ~ 2..3\nA: /a\\/*b?/i # +\n\
                    c: %json {\"x\": {\"&\": \"~\"}} d\ne: %lark {\nstart: \"a\"* }";
        let expected = Counts {
            set_operators: 2,
            repetitions: 6,
            longest_row: 1,
            regex_repetitions: 2,
            names: 5,
        };
        assert_eq!(Counts::new(lark, Notation::Lark), expected);
    }
}
