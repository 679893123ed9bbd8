//! Limits of grammars and schemas. Everything is measured before it is compiled.

use std::time::Duration;

use serde_json::Value;

use crate::{Error, Grammar, schema};

/// The largest grammar, schema, regular expression or list of choices, in bytes.
pub const MAX_GRAMMAR_BYTES: usize = 256 << 10;
/// The largest parameters of all tools that a call may use, in bytes, as given and with the schemas
/// that they refer to.
pub const MAX_TOOLS_BYTES: usize = 1 << 20;
/// The largest number of choices.
pub const MAX_CHOICES: usize = 10_000;
/// The largest number of rules of a GBNF or Lark grammar.
pub const MAX_RULES: usize = 2_000;
/// The largest number of subschemas of a schema, those of its definitions included.
pub const MAX_SUBSCHEMAS: usize = 10_000;
/// The largest number of subschemas once those that apply to the same value are merged.
pub const MAX_MERGED_SUBSCHEMAS: usize = 50_000;
/// The largest number of `$ref`s of a schema.
pub const MAX_REFERENCES: usize = 4_000;
/// The deepest nesting of a schema, through its references.
///
/// The matcher recurses over it. A level takes at most 11 KiB of the 256 MiB of stack that a
/// compilation has.
pub const MAX_SCHEMA_DEPTH: usize = 1_000;
/// The largest number of optional properties of an object. The matcher keeps four items for each of
/// them, and has at most 2,000.
pub const MAX_OPTIONAL_PROPERTIES: usize = 500;
/// The largest number of `patternProperties` of a schema. Each pair of patterns is intersected.
pub const MAX_PATTERN_PROPERTIES: usize = 100;
/// The time for compiling a grammar, after which a server may give up.
pub const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a constraint may take per token, on average over the tokens of its output.
pub const MASK_TIME: Duration = Duration::from_millis(20);
/// The time that a constraint may take beyond the average, and so for one token. An output whose
/// constraint takes longer ends there.
pub const MASK_CREDIT: Duration = Duration::from_millis(250);

/// Checks the limits of one grammar.
pub(crate) fn check(grammar: &Grammar) -> Result<(), Error> {
    match grammar {
        Grammar::JsonObject => Ok(()),
        Grammar::JsonSchema(schema) => {
            at_most("the size of the schema in bytes", schema_bytes(schema), MAX_GRAMMAR_BYTES)?;
            schema::measure(schema)
        }
        Grammar::Regex(text) => {
            at_most("the size of the regular expression in bytes", text.len(), MAX_GRAMMAR_BYTES)
        }
        Grammar::Choice(choices) => {
            at_most("the number of choices", choices.len(), MAX_CHOICES)?;
            let bytes = choices.iter().map(String::len).sum();
            at_most("the size of the choices in bytes", bytes, MAX_GRAMMAR_BYTES)
        }
        Grammar::Gbnf(text) | Grammar::Lark(text) => {
            at_most("the size of the grammar in bytes", text.len(), MAX_GRAMMAR_BYTES)?;
            at_most("the number of rules", num_rules(text), MAX_RULES)?;
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

/// An error if `found` is above `maximum`.
pub(crate) fn at_most(quantity: &'static str, found: usize, maximum: usize) -> Result<(), Error> {
    if found > maximum { Err(Error::TooLarge { quantity, maximum }) } else { Ok(()) }
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
