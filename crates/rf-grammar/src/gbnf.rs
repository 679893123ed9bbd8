//! GBNF, the grammar notation of llama.cpp, converted to Lark.

mod parse;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use self::parse::{Element, Expression, Rule, Terminal};
use crate::Error;
use crate::lark::literal;

/// Converts a GBNF grammar to llguidance's dialect of Lark. The rule `root` becomes `start`.
///
/// The matcher reads the longest terminal that fits, but GBNF tries all. So terminals are single
/// characters, except for literals whose first character begins no other terminal.
///
/// # Errors
///
/// [`Error::Gbnf`] with line and column.
pub fn gbnf_to_lark(gbnf: &str) -> Result<String, Error> {
    let rules = parse::parse(gbnf)?;
    let mut names = HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        // The names of Lark have fewer characters.
        let name = if rule.name == "root" { "start".to_owned() } else { format!("r{index}") };
        if names.insert(rule.name.as_str(), name).is_some() {
            let problem = format!("the rule `{}` is defined twice", rule.name);
            return Err(rule.place.error(gbnf, problem));
        }
    }
    if !names.contains_key("root") {
        return Err(parse::GrammarPosition::START.error(gbnf, "there is no rule `root`".to_owned()));
    }
    let mut writer = Writer { gbnf, names, starts: Starts::new(&rules), lark: String::new() };
    for rule in &rules {
        writer.rule(rule)?;
    }
    Ok(writer.lark)
}

struct Writer<'a> {
    gbnf: &'a str,
    names: HashMap<&'a str, String>,
    starts: Starts<'a>,
    lark: String,
}

impl Writer<'_> {
    fn rule(&mut self, rule: &Rule) -> Result<(), Error> {
        let name = self.names.get(rule.name.as_str()).cloned().unwrap_or_default();
        let expression = self.expression(&rule.expression)?;
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(self.lark, "{name}: {expression}");
        Ok(())
    }

    fn expression(&self, expression: &Expression) -> Result<String, Error> {
        let sequence = |elements: &Vec<Element>| -> Result<String, Error> {
            if elements.is_empty() {
                return Ok("\"\"".to_owned());
            }
            let elements: Result<Vec<_>, _> = elements.iter().map(|e| self.element(e)).collect();
            Ok(elements?.join(" "))
        };
        let alternatives: Result<Vec<_>, _> =
            expression.alternatives.iter().map(sequence).collect();
        Ok(alternatives?.join(" | "))
    }

    fn element(&self, element: &Element) -> Result<String, Error> {
        Ok(match element {
            Element::Rule { name, place } => {
                let known = self.names.get(name.as_str());
                let unknown =
                    || place.error(self.gbnf, format!("the rule `{name}` is not defined"));
                known.ok_or_else(unknown)?.clone()
            }
            Element::Terminal(terminal) => self.terminal(terminal),
            Element::Token(token) => token.clone(),
            Element::Group(expression) => format!("({})", self.expression(expression)?),
            Element::Repeated { element, least, most } => {
                let element = self.element(element)?;
                match (*least, *most) {
                    (0, None) => format!("({element})*"),
                    (1, None) => format!("({element})+"),
                    (0, Some(1)) => format!("({element})?"),
                    (_, Some(0)) => "\"\"".to_owned(),
                    (least, None) => format!("({element}){{{least},}}"),
                    (least, Some(most)) => format!("({element}){{{least},{most}}}"),
                }
            }
        })
    }

    fn terminal(&self, terminal: &Terminal) -> String {
        match terminal {
            Terminal::Text(text) if text.is_empty() => "\"\"".to_owned(),
            Terminal::Text(text) if self.starts.is_unique(text) => literal(text),
            Terminal::Text(text) => {
                let chars: Vec<_> =
                    text.chars().map(|c| literal(c.encode_utf8(&mut [0; 4]))).collect();
                format!("({})", chars.join(" "))
            }
            Terminal::Any => "/(?s:.)/".to_owned(),
            Terminal::Class { negated, ranges } => {
                let mut class = String::from(if *negated { "/[^" } else { "/[" });
                for (first, last) in ranges {
                    let (first, last) = (u32::from(*first), u32::from(*last));
                    let _: std::fmt::Result = write!(class, "\\x{{{first:x}}}-\\x{{{last:x}}}");
                }
                class + "]/"
            }
        }
    }
}

/// The first characters of all terminals.
struct Starts<'a> {
    /// The text that begins with a character; `None` if several do, or a class has it.
    texts: HashMap<char, Option<&'a str>>,
}

impl<'a> Starts<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        let mut texts = HashMap::new();
        let mut classes = HashSet::new();
        for terminal in terminals(rules) {
            match terminal {
                Terminal::Text(text) => {
                    let Some(first) = text.chars().next() else { continue };
                    let only = texts.entry(first).or_insert(Some(text.as_str()));
                    *only = only.filter(|other| other == text);
                }
                Terminal::Any => {
                    classes.insert((true, [].as_slice()));
                }
                Terminal::Class { negated, ranges } => {
                    classes.insert((*negated, ranges.as_slice()));
                }
            }
        }
        for (first, only) in &mut texts {
            let has_first = |(negated, ranges): &(bool, &[(char, char)])| {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(first)) != *negated
            };
            if classes.iter().any(has_first) {
                *only = None;
            }
        }
        Self { texts }
    }

    /// Returns true if no other terminal begins with the first character of `text`.
    fn is_unique(&self, text: &str) -> bool {
        let first = text.chars().next();
        first.and_then(|first| self.texts.get(&first)?.as_ref()).is_some()
    }
}

/// Returns the terminals of the rules.
fn terminals(rules: &[Rule]) -> Vec<&Terminal> {
    fn collect<'a>(element: &'a Element, terminals: &mut Vec<&'a Terminal>) {
        match element {
            Element::Terminal(terminal) => terminals.push(terminal),
            Element::Group(expression) => {
                expression.alternatives.iter().flatten().for_each(|e| collect(e, terminals));
            }
            Element::Repeated { element, .. } => collect(element, terminals),
            Element::Rule { .. } | Element::Token(_) => {}
        }
    }
    let mut terminals = Vec::new();
    for rule in rules {
        rule.expression.alternatives.iter().flatten().for_each(|e| collect(e, &mut terminals));
    }
    terminals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_become_lark() {
        for (gbnf, lark) in [
            (r#"root ::= "yes" | "no""#, "start: \"yes\" | \"no\"\n"),
            (r#"root ::= "ab" [a-c]"#, "start: (\"a\" \"b\") /[\\x{61}-\\x{63}]/\n"),
            (r#"root ::= "ab" | "ac""#, "start: (\"a\" \"b\") | (\"a\" \"c\")\n"),
            (
                "root ::= x-1 A\nx-1 ::= .\nA ::= [^\"\\n\\x41]",
                "start: r1 r2\nr1: /(?s:.)/\nr2: /[^\\x{22}-\\x{22}\\x{a}-\\x{a}\\x{41}-\\x{41}]/\n",
            ),
            (
                "root ::= (\"a\" |\n # why\n \"\\u00e9\\\"\")+ # end\n",
                "start: ((\"a\" | \"é\\\"\"))+\n",
            ),
            (
                "root ::= [0-9]{2} [a-]{1,} \"\\t\"{,3} \"x\"{0} \"y\"?",
                "start: (/[\\x{30}-\\x{39}]/){2,2} (/[\\x{61}-\\x{61}\\x{2d}-\\x{2d}]/)+ (\"\\t\"){0,3} \"\" (\"y\")?\n",
            ),
            ("root ::= <[12]> <|end|> \"\"", "start: <[12]> <|end|> \"\"\n"),
            ("root ::= \"a\" |\nroot2 \nroot2::=|\"b\"", "start: \"a\" | r1\nr1: \"\" | \"b\"\n"),
        ] {
            assert_eq!(
                gbnf_to_lark(gbnf).map_err(|e| e.to_string()),
                Ok(lark.to_owned()),
                "{gbnf}"
            );
        }
    }

    #[test]
    fn errors_name_the_place() {
        for (gbnf, expected) in [
            ("root ::= \"a", "in line 1, column 10: the text is not closed: add \""),
            ("root ::= [a", "in line 1, column 10: the class is not closed: add ]"),
            (
                "root ::= (\"a\"\nx ::= \"b\"",
                "in line 2, column 3: expected a text, a class, a rule or a group",
            ),
            ("root = \"a\"", "in line 1, column 6: expected ::="),
            ("root ::= \"a\"\n\nb ::= c", "in line 3, column 7: the rule `c` is not defined"),
            ("x ::= \"a\"", "in line 1, column 1: there is no rule `root`"),
            (
                "root ::= \"a\"\nroot ::= \"b\"",
                "in line 2, column 1: the rule `root` is defined twice",
            ),
            ("root ::= *", "in line 1, column 10: expected a text, a class, a rule or a group"),
            ("root ::= \"a\"{3,2}", "in line 1, column 13: the least number is above the most"),
            ("root ::= \"a\"{x}", "in line 1, column 14: expected a number"),
            ("root ::= \"\\q\"", "in line 1, column 12: unknown escape \\q"),
            ("root ::= [z-a]", "in line 1, column 11: the range is empty"),
            ("root ::= \"\\ud800\"", "in line 1, column 12: no character has this number"),
            ("", "in line 1, column 1: there is no rule `root`"),
        ] {
            let error = gbnf_to_lark(gbnf).unwrap_err().to_string();
            assert!(error.contains(expected), "{gbnf:?}: {error}, not {expected}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let gbnf = format!("root ::= {}", "(".repeat(100_000));
        assert!(gbnf_to_lark(&gbnf).unwrap_err().to_string().contains("too deep"));
    }
}
