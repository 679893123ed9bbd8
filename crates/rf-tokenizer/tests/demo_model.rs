//! Compares the demo model's tokenizer with ids of llama.cpp.

mod fixtures;

use rf_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn prompts_have_the_reference_ids() {
    let tokenizer = Tokenizer::new(fixtures::demo()).unwrap();
    for prompt in fixtures::demo_prompts() {
        // The reference of the long text has only its first thousand ids.
        let ids = tokenizer.encode(&prompt.text, EncodeOptions::PROMPT);
        assert_eq!(ids[..prompt.ids.len().min(ids.len())], prompt.ids, "{:?}", prompt.text);
        let rendered = DecodeOptions::default().with_render_special(true);
        assert_eq!(tokenizer.decode(&ids, rendered).unwrap(), prompt.text);
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn a_story_and_a_turn_both_end_the_generation() {
    let tokenizer = Tokenizer::new(fixtures::demo()).unwrap();
    assert_eq!(tokenizer.eog_ids(), [0, 2]);
    assert_eq!(tokenizer.token(2), Some("<|im_end|>"));
    assert!(tokenizer.is_eog(0) && tokenizer.is_eog(2) && !tokenizer.is_eog(1));
    assert!(!tokenizer.adds_bos() && !tokenizer.adds_eos() && !tokenizer.pre_is_default());
}
