//! A vocabulary, and a model that chooses among the allowed tokens at random.

use std::sync::{Arc, LazyLock};

use rf_engine::scheduler::Constraint;
use rf_grammar::GrammarCompiler;
use rf_testing::SplitMix64 as Random;
use rf_tokenizer::{DecodeOptions, EncodeOptions, StreamDecoder, Tokenizer, VocabConfig};

/// Markers that the vocabulary has as control tokens (true) or as text.
const MARKERS: [(&str, bool); 11] = [
    ("<|im_end|>", true),
    ("[TOOL_CALLS]", true),
    ("[ARGS]", true),
    ("<|tool_call>", true),
    ("<tool_call|>", true),
    ("<arg_value>", true),
    ("</arg_value>", true),
    ("｜DSML｜", true),
    ("<tool_call>", false),
    ("</tool_call>", false),
    ("</think>", false),
];

/// Bytes, some words of JSON, and markers.
pub(crate) static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let mut tokens: Vec<String> = (0..=255).map(|byte| stand_in(byte).to_string()).collect();
    let mut merges = Vec::new();
    for word in ["\":", "{\"", "\",", "},", "true", "null", "Ġ\"", "na", "name", "éÃ"] {
        let mut chars = word.chars();
        let mut merged = chars.next().unwrap().to_string();
        for c in chars {
            merges.push(format!("{merged} {c}"));
            merged.push(c);
            if !tokens.contains(&merged) {
                tokens.push(merged.clone());
            }
        }
    }
    merges.dedup();
    let mut token_types = vec![1; tokens.len()];
    tokens.push("</s>".to_owned());
    token_types.push(3);
    for (marker, is_control) in MARKERS {
        tokens.push(marker.to_owned());
        token_types.push(if is_control { 3 } else { 4 });
    }
    let config = VocabConfig::default()
        .with_model("gpt2")
        .with_pre(Some("gpt-2".to_owned()))
        .with_eos_token_id(tokens.iter().position(|token| token == "</s>").map(|id| id as u32))
        .with_tokens(tokens)
        .with_token_types(token_types)
        .with_merges(merges);
    Arc::new(Tokenizer::new(config).unwrap())
});

pub(crate) static COMPILER: LazyLock<GrammarCompiler> =
    LazyLock::new(|| GrammarCompiler::new(&TOKENIZER).unwrap());

/// GPT-2's character for a byte.
fn stand_in(byte: u8) -> char {
    let is_visible = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_visible {
        return char::from(byte);
    }
    let index = (0..byte).filter(|b| !matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)).count();
    char::from_u32(256 + index as u32).unwrap()
}

/// Texts that end free text.
const ENDS: [&str; 7] = [
    "\n</parameter>\n",
    "</｜DSML｜parameter>\n",
    "</arg_value>",
    "</think>",
    "[/THINK]",
    "<|end|>",
    "<channel|>",
];

/// The text of a random model of the small vocabulary.
pub(crate) fn sample(constraint: impl Constraint, random: &mut Random) -> String {
    RandomModel::new(&TOKENIZER).sample(constraint, random)
}

/// A model without weights.
pub(crate) struct RandomModel<'a> {
    tokenizer: &'a Tokenizer,
    /// Marks that close something.
    closing: Vec<u32>,
}

impl<'a> RandomModel<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer) -> Self {
        let closes = |id: &u32| {
            let piece = tokenizer.piece(*id).unwrap();
            tokenizer.is_eog(*id)
                || matches!(piece.as_slice(), b"\"" | b"}" | b"]" | b"<" | b"\n" | b"</think>")
        };
        Self { tokenizer, closing: (0..tokenizer.vocab_size()).filter(closes).collect() }
    }

    /// The text under a constraint, with the text of control tokens. Marks that close something are
    /// more probable the longer the text is, so that it ends.
    pub(crate) fn sample(&self, mut constraint: impl Constraint, random: &mut Random) -> String {
        let tokenizer = self.tokenizer;
        let options = DecodeOptions::default().with_continuation(true).with_render_special(true);
        let mut decoder = StreamDecoder::new(options);
        let mut text = String::new();
        // Tokens to come if they are allowed.
        let mut script: Vec<u32> = Vec::new();
        for length in 0..20_000 {
            let forced = constraint.forced();
            for &id in &forced {
                constraint.accept(id).unwrap();
                text += &decoder.push(tokenizer, id).unwrap();
            }
            if constraint.is_finished() {
                return text + &decoder.finish();
            }
            if !forced.is_empty() {
                continue;
            }
            let mask = constraint.allowed().unwrap();
            let allowed: Vec<u32> =
                (0..tokenizer.vocab_size()).filter(|id| mask.allows(*id)).collect();
            assert!(!allowed.is_empty(), "no token may follow {text:?}");
            let closing: Vec<u32> =
                self.closing.iter().filter(|id| mask.allows(**id)).copied().collect();
            let close = !closing.is_empty() && random.below(300) < 40 + length;
            let from = if close { &closing } else { &allowed };
            if script.is_empty() && allowed.len() > 150 && random.below(40) == 0 {
                let end = ENDS[random.below(ENDS.len())];
                let options = EncodeOptions::PLAIN.with_parse_special(true);
                script = tokenizer.encode(end, options);
                script.reverse();
            }
            let id = match script.pop().filter(|id| mask.allows(*id)) {
                Some(id) => id,
                None => from[random.below(from.len())],
            };
            if tokenizer.is_eog(id) {
                return text + &decoder.finish();
            }
            constraint.accept(id).unwrap();
            text += &decoder.push(tokenizer, id).unwrap();
        }
        panic!("the text does not end: {}…", text.chars().take(500).collect::<String>());
    }
}
