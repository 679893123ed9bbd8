//! Checks of the limits, before anything is compiled.

use serde_json::Value;

use crate::limits::{MAX_CHOICES, MAX_GRAMMAR_BYTES, MAX_RULES, MAX_TOOLS_BYTES, at_most};
use crate::operators::{Notation, check_regex, check_rules};
use crate::{Error, Grammar, schema};

/// Checks the limits of one grammar.
pub(crate) fn check(grammar: &Grammar) -> Result<(), Error> {
    match grammar {
        Grammar::JsonObject => Ok(()),
        Grammar::JsonSchema(schema) => {
            at_most("the size of the schema in bytes", schema_bytes(schema), MAX_GRAMMAR_BYTES)?;
            schema::measure(schema)
        }
        Grammar::Regex(text) => {
            at_most("the size of the regular expression in bytes", text.len(), MAX_GRAMMAR_BYTES)?;
            check_regex(text)
        }
        Grammar::Choice(choices) => {
            at_most("the number of choices", choices.len(), MAX_CHOICES)?;
            let bytes = choices.iter().map(String::len).sum();
            at_most("the size of the choices in bytes", bytes, MAX_GRAMMAR_BYTES)
        }
        Grammar::Gbnf(text) | Grammar::Lark(text) => {
            at_most("the size of the grammar in bytes", text.len(), MAX_GRAMMAR_BYTES)?;
            at_most("the number of rules", num_rules(text), MAX_RULES)?;
            let is_lark = matches!(grammar, Grammar::Lark(_));
            check_rules(text, if is_lark { Notation::Lark } else { Notation::Gbnf })?;
            embedded_schemas(text).iter().try_for_each(schema::measure)
        }
    }
}

/// Checks the limits of the parameters of tools.
pub(crate) fn check_tools<'a>(
    parameters: impl Iterator<Item = &'a Value> + Clone,
) -> Result<(), Error> {
    let bytes = parameters.clone().map(schema_bytes).sum();
    at_most("the size of the parameters of all tools in bytes", bytes, MAX_TOOLS_BYTES)?;
    schema::measure_all(parameters)
}

/// The size of a schema as text.
pub(crate) fn schema_bytes(schema: &Value) -> usize {
    struct Count(usize);

    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // Counting cannot fail.
    drop(serde_json::to_writer(&mut count, schema));
    count.0
}

/// The number of lines that define a rule or a terminal, in GBNF or Lark.
fn num_rules(text: &str) -> usize {
    let defines = |line: &&str| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "?!".contains(c));
        let starts = line.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        starts && line.contains(':')
    };
    text.lines().filter(defines).count()
}

/// The schemas of a Lark grammar: each `%json` is followed by one.
fn embedded_schemas(lark: &str) -> Vec<Value> {
    const KEYWORD: &str = "%json";
    let mut schemas = Vec::new();
    let mut rest = lark;
    while let Some(at) = rest.find(KEYWORD) {
        rest = &rest[at + KEYWORD.len()..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        if let Some(Ok(schema)) = values.next() {
            rest = rest.get(values.byte_offset()..).unwrap_or_default();
            schemas.push(schema);
        }
    }
    schemas
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_of_both_notations_are_counted() {
        assert_eq!(num_rules("root ::= a\na ::= \"x\" |\n  \"y: z\"\n# no rule\n"), 2);
        assert_eq!(num_rules("start: A\n?a.2[lazy]: \"x\"\n  | b\nA: /x/\n%ignore /:/\n"), 3);
    }

    #[test]
    fn schemas_within_lark_are_found() {
        let lark = "start: a b\na: %json {\"const\": \"%json {}\"}\nb: %json\n [1] %json x %json";
        assert_eq!(embedded_schemas(lark), [json!({"const": "%json {}"}), json!([1])]);
    }
}
