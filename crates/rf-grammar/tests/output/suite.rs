//! The [JSON Schema Test Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite).

use std::path::Path;
use std::{env, fs};

use rf_engine::scheduler::Constraint;
use rf_grammar::Grammar;
use rf_tokenizer::EncodeOptions;
use serde::Deserialize;
use serde_json::Value;

use crate::sampling::{COMPILER, TOKENIZER};

/// A schema of the suite, and values with their validity.
#[derive(Deserialize)]
struct Group {
    description: String,
    schema: Value,
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    description: String,
    data: Value,
    valid: bool,
}

#[derive(Debug, Default)]
struct Counts {
    schemas: usize,
    refused_schemas: usize,
    valid_values: usize,
    accepted_values: usize,
    invalid_values: usize,
}

/// A schema is compiled or refused. What its constraint accepts is valid, but for `oneOf`, which is
/// read as `anyOf`.
#[test]
fn no_accepted_value_of_the_published_suite_is_invalid() {
    let Some(folder) = env::var_os("ROCFORGE_JSON_SCHEMA_SUITE") else {
        rf_testing::skip!("ROCFORGE_JSON_SCHEMA_SUITE names no JSON Schema Test Suite");
        return;
    };
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(Path::new(&folder).join("tests/draft2020-12")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let groups: Vec<Group> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let file = path.file_stem().unwrap().to_string_lossy();
            for group in groups {
                check(&file, &group, &mut counts, &mut wrong);
            }
        }
    }
    eprintln!("{counts:?}");
    let others: Vec<&String> = wrong.iter().filter(|case| !case.starts_with("oneOf: ")).collect();
    eprintln!("{} invalid values of oneOf are accepted", wrong.len() - others.len());
    assert!(others.is_empty(), "invalid values are accepted: {others:#?}");
    assert!(counts.accepted_values > counts.valid_values * 9 / 10);
}

fn check(file: &str, group: &Group, counts: &mut Counts, wrong: &mut Vec<String>) {
    counts.schemas += 1;
    let Ok(constraint) = COMPILER.compile(&Grammar::JsonSchema(group.schema.clone())) else {
        counts.refused_schemas += 1;
        return;
    };
    for case in &group.tests {
        let accepted = accepts(&mut *constraint.fork(), &case.data.to_string());
        if case.valid {
            counts.valid_values += 1;
            counts.accepted_values += usize::from(accepted);
        } else {
            counts.invalid_values += 1;
            if accepted {
                wrong.push(format!("{file}: {}: {}", group.description, case.description));
            }
        }
    }
}

/// Returns true if the constraint accepts the text, byte by byte.
fn accepts(constraint: &mut dyn Constraint, text: &str) -> bool {
    for byte in text.bytes() {
        let id = TOKENIZER.encode_bytes(&[byte], EncodeOptions::PLAIN)[0];
        let allowed = constraint.allowed().is_ok_and(|mask| mask.allows(id));
        if !allowed || constraint.accept(id).is_err() {
            return false;
        }
    }
    let is_end = |id: &u32| TOKENIZER.is_eog(*id);
    let end = (0..TOKENIZER.vocab_size()).find(is_end).unwrap();
    constraint.is_finished() || constraint.allowed().is_ok_and(|mask| mask.allows(end))
}
