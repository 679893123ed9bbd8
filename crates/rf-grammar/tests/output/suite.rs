//! The [JSON Schema Test Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite).

use std::collections::BTreeMap;
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

#[derive(Debug, Default, PartialEq)]
struct Counts {
    schemas: usize,
    refused_schemas: usize,
    valid_values: usize,
    accepted_values: usize,
    /// The valid values that are not accepted, by the file of the suite.
    others: BTreeMap<String, usize>,
    invalid_values: usize,
}

/// The valid values that are not accepted: integers with a fraction of 0 (`1.0`), properties in
/// another order, texts that do not fit their `format`, and a vocabulary without validation.
const OTHERS: [(&str, usize); 6] =
    [("allOf", 2), ("const", 5), ("enum", 4), ("format", 10), ("type", 1), ("vocabulary", 1)];

/// A schema is compiled or refused. What its constraint accepts is valid.
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
    assert!(wrong.is_empty(), "invalid values are accepted: {wrong:#?}");
    let august_2026 = Counts {
        schemas: 383,
        refused_schemas: 217,
        valid_values: 418,
        accepted_values: 395,
        others: OTHERS.map(|(file, count)| (file.to_owned(), count)).into(),
        invalid_values: 221,
    };
    if counts.schemas == august_2026.schemas {
        assert_eq!(counts, august_2026);
    } else {
        assert!(counts.accepted_values > counts.valid_values * 9 / 10);
    }
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
            if accepted {
                counts.accepted_values += 1;
            } else {
                *counts.others.entry(file.to_owned()).or_default() += 1;
            }
        } else {
            counts.invalid_values += 1;
            if accepted {
                wrong.push(format!("{file}: {}: {}", group.description, case.description));
            }
        }
    }
}

/// Returns true if the constraint accepts the text: forced tokens as they are, else byte by byte.
fn accepts(constraint: &mut dyn Constraint, text: &str) -> bool {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let mut ids = constraint.forced();
        if ids.is_empty() {
            ids = TOKENIZER.encode_bytes(&rest[..1], EncodeOptions::PLAIN);
            if !constraint.allowed().is_ok_and(|mask| mask.allows(ids[0])) {
                return false;
            }
        }
        for id in ids {
            // The end may be forced, too.
            let piece = TOKENIZER.piece(id).unwrap();
            match rest.strip_prefix(piece.as_slice()) {
                Some(after) => rest = after,
                None => return rest.is_empty() && TOKENIZER.is_eog(id),
            }
            if constraint.accept(id).is_err() {
                return false;
            }
        }
    }
    let is_end = |id: &u32| TOKENIZER.is_eog(*id);
    let end = (0..TOKENIZER.vocab_size()).find(is_end).unwrap();
    constraint.is_finished() || constraint.allowed().is_ok_and(|mask| mask.allows(end))
}
