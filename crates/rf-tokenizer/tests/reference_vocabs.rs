//! Small vocabularies give the ids of the libraries that trained them: see `data/README.md`.

#![expect(clippy::unwrap_used, reason = "the data have the fields that are read")]

mod fixtures;

use rf_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use serde_json::Value;

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn wordpiece_matches_the_tokenizers_library() {
    let json = fixtures::json("wordpiece.json");
    for (key, lowercase) in [("uncased", true), ("cased", false)] {
        let config = fixtures::wordpiece().with_lowercase(Some(lowercase));
        let tokenizer = Tokenizer::new(config).unwrap();
        compare(key, &tokenizer, EncodeOptions::PROMPT, &json);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn wordpiece_decodes_words_with_single_spaces() {
    let tokenizer = Tokenizer::new(fixtures::wordpiece()).unwrap();
    let ids = tokenizer.encode("  The\nquick Cafés!", EncodeOptions::PROMPT);
    let text = tokenizer.decode(&ids, DecodeOptions::default()).unwrap();
    assert_eq!(text, "the quick cafes !");
    assert!(tokenizer.adds_bos() && tokenizer.adds_eos());
    let ids = tokenizer.encode("", EncodeOptions::PROMPT);
    assert_eq!(ids, [tokenizer.bos().unwrap(), tokenizer.sep().unwrap()]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn unigram_matches_the_sentencepiece_library() {
    let json = fixtures::json("unigram.json");
    for (key, prefix, merge) in
        [("merged", true, true), ("bare", false, true), ("kept", true, false)]
    {
        let config = fixtures::unigram()
            .with_add_space_prefix(Some(prefix))
            .with_remove_extra_whitespaces(Some(merge));
        let tokenizer = Tokenizer::new(config).unwrap();
        compare(key, &tokenizer, EncodeOptions::PLAIN, &json);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn unigram_ends_its_prompts() {
    let config = fixtures::unigram().with_remove_extra_whitespaces(Some(true));
    let tokenizer = Tokenizer::new(config).unwrap();
    let ids = tokenizer.encode(" Hello  world", EncodeOptions::PROMPT);
    assert_eq!(ids.last(), Some(&tokenizer.eos().unwrap()));
    assert!(!tokenizer.adds_bos());
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()).unwrap(), "Hello world");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn gemma_4_matches_the_tokenizers_library() {
    let json = fixtures::json("gemma4.json");
    let tokenizer = Tokenizer::new(fixtures::gemma4()).unwrap();
    compare("ids", &tokenizer, EncodeOptions::PLAIN, &json);
    for case in json["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let ids = tokenizer.encode(text, EncodeOptions::PLAIN);
        assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()).unwrap(), text);
    }
}

fn compare(key: &str, tokenizer: &Tokenizer, options: EncodeOptions, json: &Value) {
    let cases = json["cases"].as_array().unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<u32> = fixtures::ids(&case[key]);
        assert_eq!(tokenizer.encode(text, options), expected, "{key}: {text:?}");
    }
}
