//! Any vocabulary and text: no panic, ids in range, streamed text equal to decoded text.
//!
//! The first byte of the input selects the family. Tokens and merges (one per line) and the text
//! follow, separated by zero bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_tokenizer::{DecodeOptions, EncodeOptions, StreamDecoder, Tokenizer, VocabConfig};

fuzz_target!(|input: &[u8]| {
    let Some((&family, rest)) = input.split_first() else { return };
    let mut parts = rest.splitn(3, |&byte| byte == 0);
    let mut lines = || -> Vec<String> {
        let part = String::from_utf8_lossy(parts.next().unwrap_or_default());
        part.split('\n').map(str::to_owned).collect()
    };
    let (tokens, merges) = (lines(), lines());
    let text = parts.next().unwrap_or_default();

    let (model, pre) = [
        ("llama", "default"),
        ("gpt2", "gpt-2"),
        ("gpt2", "llama-bpe"),
        ("gpt2", "deepseek-llm"),
        ("gpt2", "tiny_aya"),
        ("gpt2", "whitespace"),
        ("gemma4", ""),
        ("bert", ""),
        ("t5", ""),
    ][usize::from(family) % 9];
    let config = VocabConfig::default()
        .with_model(model)
        .with_pre(Some(pre.to_owned()))
        .with_scores((0..tokens.len()).map(|id| (id as f32 * 7.0) % 5.0).collect())
        .with_token_types((0..tokens.len()).map(|id| (id % 7) as i32).collect())
        .with_tokens(tokens)
        .with_merges(merges)
        .with_separator_token_id(Some(0))
        .with_bos_token_id(Some(0));
    if let Ok(tokenizer) = Tokenizer::new(config) {
        let ids = tokenizer.encode_bytes(text, EncodeOptions::PROMPT);
        let options =
            DecodeOptions::default().with_render_special(true).with_continuation(family & 8 != 0);
        let whole = tokenizer.decode(&ids, options).expect("the ids are in range");
        let mut decoder = StreamDecoder::new(options);
        let mut streamed = String::new();
        for &id in &ids {
            streamed.push_str(&decoder.push(&tokenizer, id).expect("the id is in range"));
        }
        assert_eq!(streamed + &decoder.finish(), whole);
    }
});
