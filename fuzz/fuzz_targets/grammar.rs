//! Any grammar of GBNF or Lark, or any regular expression: no panic, bounded time and memory
//! (libFuzzer's limits), and tokens that the mask allows are accepted.
//!
//! A zero byte ends the grammar. The bytes after it select tokens.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_grammar::{Grammar, gbnf_to_lark};
use rocmforge_fuzz::grammar::{COMPILER, parts, walk};

fuzz_target!(|input: &[u8]| {
    let Some((text, choices)) = parts(input) else { return };
    let grammar = match text.strip_prefix('/') {
        Some(regex) => Grammar::Regex(regex.to_owned()),
        None => Grammar::of_text(text),
    };
    // Most inputs are no grammar. Compilation starts a thread, which takes longer than to see that.
    if matches!(grammar, Grammar::Gbnf(_)) && gbnf_to_lark(text).is_err() {
        return;
    }
    if let Ok(constraint) = COMPILER.compile(&grammar) {
        walk(constraint, choices);
    }
});
