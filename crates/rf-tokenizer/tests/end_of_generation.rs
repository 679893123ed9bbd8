//! The tokens that end a generation, by model family.

#![expect(clippy::unwrap_used, reason = "the vocabularies are sound, and the ids come from them")]

use rf_tokenizer::{DecodeOptions, Tokenizer, VocabConfig};

/// The special tokens of a family and the keys of its files.
struct Family {
    name: &'static str,
    pre: &'static str,
    tokens: &'static [&'static str],
    eos: &'static str,
    eot: Option<&'static str>,
    ends: &'static [&'static str],
}

const FAMILIES: &[Family] = &[
    Family {
        name: "qwen2, qwen3, qwen2moe, smollm3, ernie",
        pre: "qwen2",
        tokens: &["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>"],
        eos: "<|im_end|>",
        eot: None,
        ends: &["<|endoftext|>", "<|im_end|>", "<|fim_pad|>"],
    },
    Family {
        name: "gemma 2 and 3",
        pre: "gpt-2",
        tokens: &["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"],
        eos: "<eos>",
        eot: None,
        ends: &["<eos>", "<end_of_turn>"],
    },
    Family {
        name: "gemma 4",
        pre: "gemma4",
        tokens: &["<eos>", "<bos>", "<|turn>", "<turn|>", "<|tool_response>", "</s>"],
        eos: "<eos>",
        eot: None,
        ends: &["<eos>", "<turn|>", "<|tool_response>"],
    },
    Family {
        name: "gpt-oss",
        pre: "gpt-4o",
        tokens: &[
            "<|startoftext|>",
            "<|endoftext|>",
            "<|return|>",
            "<|constrain|>",
            "<|channel|>",
            "<|start|>",
            "<|end|>",
            "<|message|>",
            "<|call|>",
        ],
        eos: "<|return|>",
        eot: None,
        ends: &["<|endoftext|>", "<|return|>", "<|call|>"],
    },
    Family {
        name: "phi 3 and 4",
        pre: "gpt-4o",
        tokens: &["<|endoftext|>", "<|assistant|>", "<|user|>", "<|system|>", "<|end|>"],
        eos: "<|endoftext|>",
        eot: None,
        ends: &["<|endoftext|>", "<|end|>"],
    },
    Family {
        name: "glm4, glm4moe",
        pre: "glm4",
        tokens: &["<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|observation|>"],
        eos: "<|endoftext|>",
        eot: Some("<|user|>"),
        ends: &["<|endoftext|>", "<|user|>", "<|observation|>"],
    },
    Family {
        name: "llama 3",
        pre: "llama-bpe",
        tokens: &["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
        eos: "<|end_of_text|>",
        eot: None,
        ends: &["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
    },
    Family {
        name: "llama 4",
        pre: "llama4",
        tokens: &["<|begin_of_text|>", "<|end_of_text|>", "<|header_start|>", "<|eom|>", "<|eot|>"],
        eos: "<|end_of_text|>",
        eot: None,
        ends: &["<|end_of_text|>", "<|eom|>", "<|eot|>"],
    },
    Family {
        name: "exaone 4",
        pre: "exaone4",
        tokens: &["[BOS]", "[PAD]", "[|endofturn|]", "[|user|]"],
        eos: "[|endofturn|]",
        eot: None,
        // llama.cpp takes `[PAD]` for the padding of a gap, which ends a generation.
        ends: &["[PAD]", "[|endofturn|]"],
    },
    Family {
        name: "cohere2",
        pre: "command-r",
        tokens: &["<BOS_TOKEN>", "<EOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"],
        eos: "<EOS_TOKEN>",
        eot: None,
        ends: &["<EOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"],
    },
    Family {
        name: "granite, granitemoe",
        pre: "refact",
        tokens: &["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"],
        eos: "<|end_of_text|>",
        eot: None,
        ends: &["<|end_of_text|>"],
    },
    Family {
        name: "seed_oss",
        pre: "seed-coder",
        tokens: &["<seed:bos>", "<seed:pad>", "<seed:eos>"],
        eos: "<seed:eos>",
        eot: None,
        ends: &["<seed:eos>"],
    },
    Family {
        name: "hunyuan-dense",
        pre: "hunyuan-dense",
        tokens: &["<｜hy_begin▁of▁sentence｜>", "<｜hy_User｜>", "<｜hy_place▁holder▁no▁2｜>"],
        eos: "<｜hy_place▁holder▁no▁2｜>",
        eot: None,
        ends: &["<｜hy_place▁holder▁no▁2｜>"],
    },
    Family {
        name: "mistral3, minicpm",
        pre: "tekken",
        tokens: &["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
        eos: "</s>",
        eot: None,
        ends: &["</s>"],
    },
    Family {
        name: "olmo2, stablelm, starcoder2, gpt2, falcon",
        pre: "dbrx",
        tokens: &["<|endoftext|>", "<|user|>", "<|assistant|>"],
        eos: "<|endoftext|>",
        eot: None,
        ends: &["<|endoftext|>"],
    },
];

/// The special tokens of the family, then a few letters.
fn tokenizer(family: &Family) -> Tokenizer {
    let mut tokens: Vec<String> = family.tokens.iter().map(|&text| text.to_owned()).collect();
    let mut token_types = vec![3; tokens.len()];
    for letter in ('a'..='z').map(String::from).chain(["ab".to_owned()]) {
        tokens.push(letter);
        token_types.push(1);
    }
    let id = |text: &str| tokens.iter().position(|token| token == text).map(|id| id as u32);
    let (eos_token_id, eot_token_id) = (id(family.eos), family.eot.and_then(id));
    Tokenizer::new(
        VocabConfig::default()
            .with_model(if family.pre == "gemma4" { "gemma4" } else { "gpt2" })
            .with_pre(Some(family.pre.into()))
            .with_token_types(token_types)
            .with_bos_token_id(Some(0))
            .with_eos_token_id(eos_token_id)
            .with_eot_token_id(eot_token_id)
            .with_merges(vec!["a b".into()])
            .with_tokens(tokens),
    )
    .unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn each_family_ends_where_its_turns_end() {
    for family in FAMILIES {
        let tokenizer = tokenizer(family);
        let ends: Vec<&str> =
            tokenizer.eog_ids().iter().map(|&id| tokenizer.token(id).unwrap()).collect();
        assert_eq!(ends, family.ends, "{}", family.name);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn ends_are_not_printed() {
    for family in FAMILIES {
        let tokenizer = tokenizer(family);
        let text = tokenizer.decode(tokenizer.eog_ids(), DecodeOptions::default()).unwrap();
        assert_eq!(text, "", "{}", family.name);
    }
}

#[test]
fn the_default_ids_are_those_of_falcon_only() {
    let tokenizer = |eleventh: &str| {
        let mut tokens: Vec<String> = ('a'..='k').map(String::from).collect();
        tokens.extend([eleventh, "ab"].map(String::from));
        Tokenizer::new(
            VocabConfig::default()
                .with_model("gpt2")
                .with_pre(Some("llama-bpe".into()))
                .with_tokens(tokens)
                .with_merges(vec!["a b".into()]),
        )
        .unwrap()
    };
    let comma = tokenizer(",");
    assert_eq!((comma.bos(), comma.eos(), comma.adds_bos()), (None, None, false));
    assert!(!comma.is_eog(11));
    let falcon = tokenizer("<|endoftext|>");
    assert_eq!((falcon.bos(), falcon.eos(), falcon.adds_bos()), (Some(11), Some(11), true));
    assert!(falcon.is_eog(11));
}
