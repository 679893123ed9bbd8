//! Any JSON schema: no panic, bounded time and memory (libFuzzer's limits), tokens that the mask
//! allows are accepted, and a complete output is JSON.
//!
//! A zero byte ends the schema. The bytes after it select tokens.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_grammar::Grammar;
use rocmforge_fuzz::grammar::{COMPILER, parts, walk};
use serde::de::IgnoredAny;

fuzz_target!(|input: &[u8]| {
    let Some((text, choices)) = parts(input) else { return };
    let Ok(schema) = serde_json::from_str(text) else { return };
    let Ok(constraint) = COMPILER.compile(&Grammar::JsonSchema(schema)) else { return };
    if let Some(output) = walk(constraint, choices) {
        let json = serde_json::from_slice::<IgnoredAny>(&output);
        assert!(json.is_ok(), "{:?}", String::from_utf8_lossy(&output));
    }
});
