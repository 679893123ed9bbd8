//! A vocabulary for grammars, and outputs that fit them.

use std::sync::{Arc, LazyLock};

use rf_grammar::{Constraint, GrammarCompiler, GrammarConstraint, Tokenizer};
use rf_tokenizer::VocabConfig;

/// The end of an output.
const END: u32 = 0;
/// The most tokens of an output.
const MAX_TOKENS: usize = 24;

/// The compiler for [`TOKENIZER`].
pub static COMPILER: LazyLock<GrammarCompiler> =
    LazyLock::new(|| GrammarCompiler::new(&TOKENIZER).expect("the vocabulary fits the matcher"));

/// Tokens of one and of several characters.
static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let mut tokens = vec!["</s>".to_owned()];
    // GPT-2's stand-ins of all bytes.
    let visible = ('!'..='~').chain('¡'..='¬').chain('®'..='ÿ');
    tokens.extend(visible.chain('\u{100}'..='\u{143}').map(String::from));
    tokens
        .extend(["{\"", "\":", "\",", "\"}", "ab", "true", "null", "00", "\\\""].map(String::from));
    let token_types = (0..tokens.len()).map(|id| if id == 0 { 3 } else { 1 }).collect();
    let config = VocabConfig::default()
        .with_model("gpt2")
        .with_tokens(tokens)
        .with_token_types(token_types)
        .with_merges(vec!["a b".to_owned()])
        .with_eos_token_id(Some(END));
    Arc::new(Tokenizer::new(config).expect("the vocabulary is valid"))
});

/// A text, and the bytes after the first zero byte.
pub fn parts(input: &[u8]) -> Option<(&str, &[u8])> {
    let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let (text, choices) = input.split_at(end);
    Some((str::from_utf8(text).ok()?, choices.get(1..).unwrap_or_default()))
}

/// Makes an output that fits a constraint: each byte of `choices` selects one of the tokens that
/// are allowed. Returns the output if it is complete.
///
/// # Panics
///
/// If the constraint does not accept what it allows.
pub fn walk(mut constraint: GrammarConstraint, choices: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    for &choice in choices.iter().take(MAX_TOKENS) {
        if constraint.is_finished() {
            return Some(output);
        }
        let forced = constraint.forced();
        let next = if forced.is_empty() {
            let Ok(mask) = constraint.allowed() else { return None };
            let vocab_size = TOKENIZER.vocab_size();
            let allowed: Vec<u32> = (0..vocab_size).filter(|&id| mask.allows(id)).collect();
            assert!(!allowed.is_empty(), "no token is allowed");
            vec![allowed[usize::from(choice) % allowed.len()]]
        } else {
            forced
        };
        for id in next {
            if let Err(error) = constraint.accept(id) {
                assert!(constraint.gave_up(), "{error}");
                return None;
            }
            if id == END {
                return Some(output);
            }
            output.extend(TOKENIZER.piece(id).expect("the id is in range"));
        }
    }
    None
}
