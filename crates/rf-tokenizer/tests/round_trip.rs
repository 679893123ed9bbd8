//! Encoding and decoding restore the text, at once and as a stream.

#![expect(clippy::unwrap_used, reason = "the fixtures are sound, and the ids come from them")]

mod fixtures;

use std::sync::LazyLock;

use proptest::prelude::*;
use rf_tokenizer::{DecodeOptions, EncodeOptions, Error, StreamDecoder, Tokenizer};

static BPE: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(fixtures::demo()).unwrap());
static SPM: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(fixtures::spm()).unwrap());

/// Random text with frequent white space, digits and special tokens.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        any::<String>(),
        "[ \\t\\r\\n\u{3000}]{1,8}",
        "[a-zA-Z' ]{1,12}",
        "[0-9½٣]{1,6}",
        "[!-/~-]{1,4}",
        Just("<|im_end|>".to_owned()),
        Just("▁".to_owned()),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn streamed(tokenizer: &Tokenizer, ids: &[u32], options: DecodeOptions) -> String {
    let mut decoder = StreamDecoder::new(options);
    let mut text = String::new();
    for &id in ids {
        text.push_str(&decoder.push(tokenizer, id).unwrap());
    }
    text + &decoder.finish()
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn bpe_keeps_text(text in any_text()) {
        let ids = BPE.encode(&text, EncodeOptions::PLAIN);
        prop_assert!(ids.iter().all(|&id| id < BPE.vocab_size()));
        prop_assert_eq!(BPE.decode(&ids, DecodeOptions::default()).unwrap(), text);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn bpe_keeps_special_tokens_when_rendered(text in any_text()) {
        let options = EncodeOptions::PLAIN.with_parse_special(true);
        let ids = BPE.encode(&text, options);
        let rendered = DecodeOptions::default().with_render_special(true);
        prop_assert_eq!(BPE.decode(&ids, rendered).unwrap(), text);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn bpe_keeps_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let ids = BPE.encode_bytes(&bytes, EncodeOptions::PLAIN);
        prop_assert_eq!(BPE.decode_bytes(&ids, DecodeOptions::default()).unwrap(), bytes);
    }

    #[test]
    fn spm_keeps_text(text in any_text()) {
        // U+2581 is how SPM writes a space, so it comes back as one.
        let expected = text.replace('▁', " ");
        let ids = SPM.encode(&text, EncodeOptions::PLAIN);
        prop_assert_eq!(SPM.decode(&ids, DecodeOptions::default()).unwrap(), expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn a_stream_gives_the_same_text(ids in prop::collection::vec(0_u32..272, 0..40)) {
        for tokenizer in [&*BPE, &*SPM] {
            for render_special in [false, true] {
                for continuation in [false, true] {
                    let options = DecodeOptions::default()
                        .with_render_special(render_special)
                        .with_continuation(continuation);
                    let batch = tokenizer.decode(&ids, options).unwrap();
                    prop_assert_eq!(streamed(tokenizer, &ids, options), batch);
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn a_stream_can_be_split_anywhere(text in any_text(), at in any::<prop::sample::Index>()) {
        let ids = BPE.encode(&text, EncodeOptions::PLAIN);
        let at = at.index(ids.len() + 1);
        let mut decoder = StreamDecoder::new(DecodeOptions::default());
        let mut prefix = String::new();
        for &id in &ids[..at] {
            prefix.push_str(&decoder.push(&BPE, id).unwrap());
        }
        // The stream returned no partial character and lost none.
        prop_assert!(text.starts_with(&prefix));
        for &id in &ids[at..] {
            prefix.push_str(&decoder.push(&BPE, id).unwrap());
        }
        prop_assert_eq!(prefix + &decoder.finish(), text);
    }
}

#[test]
fn a_character_is_shown_when_it_is_complete() {
    let ids: Vec<u32> =
        "🦙".bytes().map(|byte| SPM.id_of(&format!("<0x{byte:02X}>")).unwrap()).collect();
    let mut decoder = StreamDecoder::new(DecodeOptions::default());
    let shown: Vec<String> = ids.iter().map(|&id| decoder.push(&SPM, id).unwrap()).collect();
    assert_eq!(shown, ["", "", "", "🦙"]);
    assert_eq!(decoder.push(&SPM, ids[0]).unwrap(), "");
    assert_eq!(decoder.finish(), "\u{FFFD}");
    assert_eq!(decoder.finish(), "");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn chosen_control_tokens_are_rendered() {
    let token = |text: &str| BPE.id_of(text).unwrap();
    let ids = [token("<|im_start|>"), token("a"), token("<|im_end|>")];
    let mut decoder = StreamDecoder::new(DecodeOptions::default()).rendering([token("<|im_end|>")]);
    let text: String = ids.iter().map(|&id| decoder.push(&BPE, id).unwrap()).collect();
    assert_eq!(text, "a<|im_end|>");
}

#[test]
fn spm_takes_its_own_space_off_and_no_other() {
    let ids = SPM.encode("hello", EncodeOptions::PROMPT);
    assert_eq!(ids, [1, SPM.id_of("▁hello").unwrap()]);
    assert_eq!(SPM.decode(&ids, DecodeOptions::default()).unwrap(), "hello");
    let continuation = DecodeOptions::default().with_continuation(true);
    assert_eq!(SPM.decode(&ids, continuation).unwrap(), " hello");
    let spaced = SPM.encode("  hello", EncodeOptions::PLAIN);
    assert_eq!(SPM.decode(&spaced, DecodeOptions::default()).unwrap(), "  hello");
}

#[test]
fn spm_puts_a_space_behind_special_tokens() {
    let ids = SPM.encode("hello<|user|>hello", EncodeOptions::PLAIN);
    let hello = SPM.id_of("▁hello").unwrap();
    assert_eq!(ids, [hello, SPM.id_of("<|user|>").unwrap(), hello]);

    let mut config = fixtures::spm();
    config.add_space_prefix = Some(false);
    config.add_bos_token = Some(false);
    config.add_eos_token = Some(true);
    let bare = Tokenizer::new(config).unwrap();
    assert_eq!(bare.encode("hello", EncodeOptions::PROMPT), [bare.id_of("hello").unwrap(), 2]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn ids_out_of_range_are_errors() {
    let size = BPE.vocab_size();
    for id in [size, u32::MAX] {
        let error = BPE.decode(&[1, id], DecodeOptions::default()).unwrap_err();
        assert!(
            matches!(error, Error::TokenOutOfRange { id: bad, vocab_size } if bad == id && vocab_size == size)
        );
        assert!(BPE.piece(id).is_err());
        assert!(StreamDecoder::new(DecodeOptions::default()).push(&BPE, id).is_err());
        assert_eq!(BPE.token(id), None);
        assert!(!BPE.is_eog(id));
    }
}
