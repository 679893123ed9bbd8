//! Malformed vocabularies and adversarial texts.

mod fixtures;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rf_tokenizer::{DecodeOptions, EncodeOptions, Error, Tokenizer, VocabConfig};

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn unknown_names_are_named() {
    let mut config = fixtures::demo();
    config.pre = Some("made-up".into());
    let error = Tokenizer::new(config).unwrap_err();
    assert!(matches!(&error, Error::UnknownPreTokenizer { pre } if pre == "made-up"));
    assert!(error.to_string().contains("update ROCmForge"), "{error}");

    let mut config = fixtures::demo();
    config.model = "rwkv".into();
    let error = Tokenizer::new(config).unwrap_err();
    assert!(error.to_string().contains("`rwkv`"), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn a_missing_pre_tokenizer_is_flagged() {
    let mut config = fixtures::demo();
    config.pre = None;
    let tokenizer = Tokenizer::new(config).unwrap();
    assert!(tokenizer.pre_is_default());
    // The generic expressions keep digits in threes.
    let ids = tokenizer.encode("a1234", EncodeOptions::PLAIN);
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()).unwrap(), "a1234");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn bad_vocabularies_are_errors() {
    let broken = |change: fn(&mut VocabConfig)| {
        let mut config = fixtures::demo();
        change(&mut config);
        Tokenizer::new(config).unwrap_err()
    };
    let error = broken(|c| c.tokens.clear());
    assert!(matches!(error, Error::EmptyVocabulary));
    let error = broken(|c| c.merges.clear());
    assert!(matches!(error, Error::MissingMerges));
    let error = broken(|c| c.tokens[9] = c.tokens[300].clone());
    assert!(matches!(error, Error::DuplicateToken { first: 9, second: 300, .. }));
    let error = broken(|c| c.token_types.truncate(4095));
    assert!(matches!(error, Error::ArrayTooShort { len: 4095, tokens: 4096, .. }));
    let error = broken(|c| {
        c.model = "gemma4".into();
        c.bos_token_id = None;
    });
    assert!(matches!(error, Error::MissingSpecialToken { .. }), "{error}");
    let error = broken(|c| {
        c.model = "t5".into();
        c.precompiled_charsmap = vec![1, 2, 3];
    });
    assert!(matches!(error, Error::MalformedCharsmap(_)), "{error}");
    let mut config = fixtures::wordpiece();
    config.tokens.truncate(50);
    config.separator_token_id = None;
    let error = Tokenizer::new(config).unwrap_err();
    assert!(error.to_string().contains("seperator_token_id"), "{error}");
}

#[test]
fn bad_ids_fall_back_to_the_defaults_and_are_named() {
    let mut config = fixtures::spm();
    config.bos_token_id = Some(u32::MAX);
    config.eot_token_id = Some(100_000);
    config.suppress_tokens = vec![5, 100_000];
    let tokenizer = Tokenizer::new(config).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eot()), (Some(1), None));
    assert_eq!(tokenizer.suppressed_ids(), [5]);
    let ignored =
        [("tokenizer.ggml.bos_token_id", u32::MAX), ("tokenizer.ggml.eot_token_id", 100_000)];
    assert_eq!(tokenizer.ignored_ids(), ignored);
    assert_eq!(Tokenizer::new(fixtures::spm()).unwrap().ignored_ids(), []);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn gpt_oss_ends_messages_without_ending_turns() {
    let mut config = fixtures::demo();
    for (id, text) in
        ["<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"].into_iter().enumerate()
    {
        config.tokens[4000 + id] = text.into();
        config.token_types[4000 + id] = 3;
    }
    let tokenizer = Tokenizer::new(config.clone()).unwrap();
    assert_eq!(tokenizer.eog_ids(), [0, 2, 4003, 4004]);
    let text = tokenizer.decode(&[4000, 4001, 4002, 4003], DecodeOptions::default()).unwrap();
    assert_eq!(text, "<|start|><|message|><|end|>");

    config.tokens[4003] = "<|other|>".into();
    assert_eq!(Tokenizer::new(config).unwrap().eog_ids(), [0, 2, 4002, 4004]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn merges_may_name_texts_that_are_no_tokens() {
    let config = VocabConfig::default()
        .with_model("gpt2")
        .with_pre(Some("gpt-2".into()))
        .with_tokens(["a", "b", "c", "abc"].map(String::from).into())
        .with_merges(["a b", "ab c", "x y", "nospace", "", " ", "a  b"].map(String::from).into());
    let tokenizer = Tokenizer::new(config).unwrap();
    assert_eq!(tokenizer.encode("abcab", EncodeOptions::PLAIN), [3, 0, 1]);
    // A byte without a token is dropped.
    assert_eq!(tokenizer.encode("a?b", EncodeOptions::PLAIN), [0, 1]);
}

/// Long repetitions, for each way to split and to merge. An algorithm of quadratic time would take
/// minutes.
#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn long_runs_finish() {
    let bpe = |pre: &str| {
        let mut config = fixtures::demo();
        config.pre = Some(pre.into());
        Tokenizer::new(config).unwrap()
    };
    let mut tokenizers = vec![
        ("spm", 1 << 20, Tokenizer::new(fixtures::spm()).unwrap()),
        ("qwen2", 1 << 20, bpe("qwen2")),
        ("wordpiece", 1 << 20, Tokenizer::new(fixtures::wordpiece()).unwrap()),
        ("unigram", 1 << 20, Tokenizer::new(fixtures::unigram()).unwrap()),
        ("endless charsmap", 1 << 17, Tokenizer::new(endless_charsmap()).unwrap()),
        ("gemma4", 1 << 17, Tokenizer::new(fixtures::gemma4()).unwrap()),
    ];
    for name in [
        "gpt-2",
        "gpt-4o",
        "deepseek-v3",
        "deepseek-llm",
        "jais-2",
        "tiny_aya",
        "superbpe",
        "afmoe",
        "exaone-moe",
        "poro-chat",
    ] {
        tokenizers.push((name, 1 << 17, bpe(name)));
    }
    for unit in [" ", "a", "1", "\n", "!", " \n", "é", "\u{3000}", "<|im_start|", "<|im_end|>"] {
        for (name, len, tokenizer) in &tokenizers {
            let text = unit.repeat(len / unit.len());
            let start = Instant::now();
            let ids = tokenizer.encode(&text, EncodeOptions::PROMPT);
            let elapsed = start.elapsed();
            // Unigram has no token for white space alone.
            assert!(!ids.is_empty() || unit.trim().is_empty(), "{name}, {unit:?}");
            assert!(elapsed < Duration::from_secs(30), "{name}, {unit:?}: {elapsed:?}");
        }
    }
}

/// A unigram vocabulary whose map has a cycle: each letter continues the key.
fn endless_charsmap() -> VocabConfig {
    let unit = |index: u32| index & 0xFF | 1 << 8;
    let mut map = 1024_u32.to_le_bytes().to_vec();
    map.extend((0..256).flat_map(|index| unit(index).to_le_bytes()));
    map.extend(b"x\0");
    fixtures::unigram().with_precompiled_charsmap(map)
}

/// Short strings over few letters, so that they collide.
fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        "[abĠ▁ <>|]{0,4}",
        Just("<|im_end|>".to_owned()),
        Just("<0xZZ>".to_owned()),
        Just("</s>".to_owned()),
        any::<String>(),
    ]
}

/// Units of any content behind a valid header, and short replacements.
fn charsmap() -> impl Strategy<Value = Vec<u8>> {
    let units = prop_oneof![any::<u32>(), 0_u32..0x4_0000];
    let units = prop::collection::vec(units, 1..512);
    let texts = prop::collection::vec(any::<u8>(), 0..40);
    prop::option::of((units, texts)).prop_map(|map| {
        let Some((units, texts)) = map else { return Vec::new() };
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(texts);
        bytes.push(0);
        bytes
    })
}

fn config() -> impl Strategy<Value = VocabConfig> {
    let model = prop_oneof![Just("gpt2"), Just("llama"), Just("gemma4"), Just("bert"), Just("t5")];
    let pre = prop::option::of(prop_oneof![
        Just("gpt-2"),
        Just("llama-bpe"),
        Just("whitespace"),
        Just("sarvam-moe"),
        Just("")
    ]);
    let id = || prop::option::of(0_u32..12);
    (
        (model, pre),
        prop::collection::hash_set(token(), 1..20),
        prop::collection::vec(any::<f32>(), 0..30),
        prop::collection::vec(-1..9, 0..30),
        prop::collection::vec("[abĠ▁ ]{0,5}", 0..20),
        (id(), id(), id(), prop::option::of(any::<bool>())),
        charsmap(),
    )
        .prop_map(
            |(
                (model, pre),
                tokens,
                scores,
                token_types,
                merges,
                (bos, eos, unk, flag),
                charsmap,
            )| {
                VocabConfig::default()
                    .with_model(model)
                    .with_pre(pre.map(str::to_owned))
                    .with_tokens(tokens.into_iter().collect())
                    .with_scores(scores)
                    .with_token_types(token_types)
                    .with_merges(merges)
                    .with_bos_token_id(bos)
                    .with_eos_token_id(eos)
                    .with_unknown_token_id(unk)
                    .with_separator_token_id(bos)
                    .with_precompiled_charsmap(charsmap)
                    .with_remove_extra_whitespaces(flag)
                    .with_lowercase(flag)
                    .with_add_bos_token(flag)
                    .with_add_space_prefix(flag)
                    .with_name(Some("phi-3".into()))
            },
        )
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn no_vocabulary_and_no_text_panics(config in config(), text in any::<Vec<u8>>(), words in "[ab <>|]{0,40}") {
        let Ok(tokenizer) = Tokenizer::new(config) else { return Ok(()) };
        for text in [text.as_slice(), words.as_bytes()] {
            let ids = tokenizer.encode_bytes(text, EncodeOptions::PROMPT);
            prop_assert!(ids.iter().all(|&id| id < tokenizer.vocab_size()));
            tokenizer.decode(&ids, DecodeOptions::default()).unwrap();
        }
        for id in 0..tokenizer.vocab_size() {
            tokenizer.piece(id).unwrap();
        }
    }
}
