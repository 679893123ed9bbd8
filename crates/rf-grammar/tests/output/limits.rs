//! Large grammars are compiled or refused, on the stack of a test, and their constraints are used
//! and dropped there.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rf_engine::scheduler::Constraint;
use rf_grammar::{Error, Grammar, limits};
use rf_tokenizer::EncodeOptions;
use serde_json::{Map, Value, json};

use crate::sampling::{COMPILER, TOKENIZER};

/// No test waits longer for a refusal. Without the limits it would take minutes, or the memory.
const HANG: Duration = Duration::from_mins(1);

/// Compiles a grammar, and uses and drops its constraint.
fn compile(grammar: &Grammar) -> Result<(), Error> {
    let mut constraint = COMPILER.compile(grammar)?;
    let mut fork = constraint.fork();
    fork.allowed().unwrap();
    fork.forced();
    constraint.allowed().unwrap();
    Ok(())
}

/// The limit that a grammar is above.
fn limit(grammar: &Grammar) -> &'static str {
    let started = Instant::now();
    let result = compile(grammar);
    assert!(started.elapsed() < HANG, "{:?}", started.elapsed());
    match result {
        Err(Error::TooLarge { quantity, .. }) => quantity,
        other => panic!("{other:?}"),
    }
}

/// Definitions that refer to each other in a row.
fn chain(length: usize, link: impl Fn(&Value) -> Value) -> Grammar {
    let mut definitions = Map::new();
    for index in 0..length {
        let next = json!({ "$ref": format!("#/$defs/d{}", index + 1) });
        definitions.insert(format!("d{index}"), link(&next));
    }
    definitions.insert(format!("d{length}"), json!({ "type": "integer" }));
    Grammar::JsonSchema(json!({ "$defs": definitions, "$ref": "#/$defs/d0" }))
}

fn object(next: &Value) -> Value {
    json!({ "type": "object", "properties": { "a": next }, "required": ["a"] })
}

fn nullable(next: &Value) -> Value {
    json!({ "anyOf": [next, { "type": "null" }] })
}

/// Rules that refer to each other in a row.
fn rules(length: usize, separator: &str, root: &str, name: &str) -> Grammar {
    let mut text = format!("{root}{separator} {name}0\n");
    for index in 0..length {
        writeln!(text, "{name}{index}{separator} {name}{}", index + 1).unwrap();
    }
    writeln!(text, "{name}{length}{separator} \"a\"").unwrap();
    Grammar::of_text(&text)
}

fn properties(count: usize) -> Grammar {
    let properties: Map<_, _> =
        (0..count).map(|i| (format!("p{i}"), json!({ "type": "integer" }))).collect();
    Grammar::JsonSchema(json!({ "type": "object", "properties": properties }))
}

#[test]
fn deep_grammars_compile_up_to_the_limit() {
    for link in [object, nullable, Value::clone] {
        compile(&chain(limits::MAX_SCHEMA_DEPTH / 2 - 2, link)).unwrap();
        assert_eq!(limit(&chain(1001, link)), "the depth of the schema, through its references,");
    }
    compile(&chain(limits::MAX_SCHEMA_DEPTH - 2, Value::clone)).unwrap();
    for (separator, root, name) in [("::=", "root ", "r"), (":", "start", "r"), (":", "start", "R")]
    {
        compile(&rules(limits::MAX_RULES - 2, separator, root, name)).unwrap();
        let above = rules(limits::MAX_RULES, separator, root, name);
        assert_eq!(limit(&above), "the number of rules");
    }
}

#[test]
fn wide_grammars_compile_up_to_the_limit() {
    compile(&properties(limits::MAX_OPTIONAL_PROPERTIES)).unwrap();
    for count in [limits::MAX_OPTIONAL_PROPERTIES + 1, 6800] {
        assert_eq!(limit(&properties(count)), "the number of optional properties of an object");
    }
    // As many properties as the parameters of 200 tools have.
    let object = |index: usize| {
        let kinds = [
            json!({ "type": "string", "maxLength": 80 }),
            json!({ "type": "integer", "minimum": 0 }),
            json!({ "enum": [format!("a{index}"), "b"] }),
            json!({ "type": "array", "items": { "type": "number" } }),
        ];
        let fields: Map<_, _> =
            (0..20).map(|i| (format!("f{i}"), kinds[i % kinds.len()].clone())).collect();
        json!({ "type": "object", "properties": fields, "required": ["f0", "f1", "f2"] })
    };
    let objects: Vec<_> = (0..200).map(object).collect();
    compile(&Grammar::JsonSchema(json!({ "anyOf": objects }))).unwrap();
    let choices = |count: usize| Grammar::Choice((0..count).map(|i| format!("no. {i}")).collect());
    compile(&choices(limits::MAX_CHOICES)).unwrap();
    assert_eq!(limit(&choices(limits::MAX_CHOICES + 1)), "the number of choices");
    let patterns = |count: usize| {
        let patterns: Map<_, _> =
            (0..count).map(|i| (format!("^p{i}$"), json!({ "type": "integer" }))).collect();
        Grammar::JsonSchema(json!({ "type": "object", "patternProperties": patterns }))
    };
    compile(&patterns(limits::MAX_PATTERN_PROPERTIES)).unwrap();
    let multiple = |schema: Value| Grammar::JsonSchema(schema);
    compile(&multiple(json!({ "multipleOf": limits::MAX_MULTIPLES - 1 }))).unwrap();
    let sum = "the sum of multipleOf";
    assert_eq!(limit(&multiple(json!({ "multipleOf": 2_147_483_648_u32 }))), sum);
    let many: Vec<_> = (1000..1100).map(|i| json!({ "multipleOf": i })).collect();
    assert_eq!(limit(&multiple(json!({ "anyOf": many }))), sum);
    let merged = json!({ "allOf": [{ "multipleOf": 997 }, { "multipleOf": 991 }] });
    assert_eq!(limit(&multiple(merged)), "the product of merged multipleOf");
    assert_eq!(limit(&patterns(499)), "the number of patternProperties");
}

#[test]
fn a_grammar_with_many_symbols_is_refused_in_time() {
    let started = Instant::now();
    // About as many texts as fit, all with the same first character.
    let texts: Vec<_> = (0..25_000).map(|i| format!("\"c{i}\"")).collect();
    let error = compile(&Grammar::Gbnf(format!("root ::= {}", texts.join("|")))).unwrap_err();
    assert!(error.to_string().contains("too large for the matcher"), "{error}");
    assert!(started.elapsed() < HANG, "{:?}", started.elapsed());
}

#[test]
fn a_schema_within_lark_has_limits() {
    let Grammar::JsonSchema(schema) = chain(1001, object) else { unreachable!("it is a schema") };
    let lark = Grammar::Lark(format!("start: %json {schema}"));
    assert_eq!(limit(&lark), "the depth of the schema, through its references,");
}

#[test]
fn large_texts_are_not_read() {
    let text = "x".repeat(limits::MAX_GRAMMAR_BYTES + 1);
    for grammar in [
        Grammar::Regex(text.clone()),
        Grammar::Choice(vec![text.clone()]),
        Grammar::Lark(text.clone()),
        Grammar::Gbnf(text.clone()),
        Grammar::JsonSchema(json!({ "description": text })),
    ] {
        assert!(limit(&grammar).contains("in bytes"));
    }
}

/// Writes `text` byte by byte, until the constraint gives up. Returns the number of bytes, and the
/// longest time for one of them.
fn write(grammar: &str, text: impl Iterator<Item = u8>) -> (usize, Duration) {
    let mut constraint = COMPILER.compile(&Grammar::of_text(grammar)).unwrap();
    let (mut count, mut longest) = (0, Duration::ZERO);
    for byte in text {
        let started = Instant::now();
        let id = TOKENIZER.encode_bytes(&[byte], EncodeOptions::PLAIN)[0];
        let written = constraint.allowed().and_then(|mask| {
            assert!(mask.allows(id), "{} is not allowed", char::from(byte));
            constraint.accept(id)
        });
        longest = longest.max(started.elapsed());
        if let Err(error) = written {
            assert!(constraint.gave_up(), "{error}");
            break;
        }
        count += 1;
    }
    (count, longest)
}

#[test]
fn an_ambiguous_grammar_gives_up_instead_of_taking_long() {
    let letters = || b"abc de".iter().copied().cycle().take(3000);
    for grammar in [
        "root ::= s\ns ::= s s | [a-z ] | \"\"",
        "root ::= (line \"\\n\"?)+\nline ::= [^\\n]+",
        "root ::= s\ns ::= s s s | s s | [a-z ]",
    ] {
        let (count, longest) = write(grammar, letters());
        assert!((50..3000).contains(&count), "{grammar}: {count}");
        assert!(longest < HANG, "{grammar}: {longest:?}");
    }
    let (count, _) = write("root ::= ([a-z ]+ \"\\n\")+", letters());
    assert_eq!(count, 3000);
}

#[test]
fn choices_of_a_request_share_their_time() {
    let grammar = Grammar::of_text("root ::= s\ns ::= s s | [a-z ] | \"\"");
    let mut first = COMPILER.compile(&grammar).unwrap();
    let mut second = first.fork();
    let id = TOKENIZER.id_of("a").unwrap();
    for _ in 0..3000 {
        if first.allowed().and_then(|_| first.accept(id)).is_err() {
            break;
        }
    }
    assert!(first.gave_up());
    // At once: its text is empty.
    second.allowed().unwrap_err();
    assert!(second.gave_up());
    COMPILER.compile(&grammar).unwrap().allowed().unwrap();
}

/// The matcher negates such an integer, which overflowed, and recursed without end.
#[test]
fn the_least_integers_are_refused() {
    for integer in [i64::MIN, i64::MIN + 1] {
        let schema = json!({ "anyOf": [{ "const": [{ "a": integer }] }, { "type": "object" }] });
        let lark = format!("start: %json {schema}");
        for grammar in [Grammar::JsonSchema(schema), Grammar::Lark(lark)] {
            let refused = compile(&grammar);
            assert!(matches!(refused, Err(Error::Schema { .. })), "{refused:?}");
        }
    }
    compile(&Grammar::JsonSchema(json!({ "const": i64::MIN + 1024 }))).unwrap();
    compile(&Grammar::JsonSchema(json!({ "const": i64::MAX }))).unwrap();
}
