//! Real vocabularies produce the same ids as llama.cpp.

mod fixtures;

use fixtures::from_gguf;
use rf_testing::shared;
use rf_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn every_line_of_every_vocabulary_matches() {
    let Some(folder) = shared("vocabs") else { return };
    let mut vocabularies = 0;
    let mut texts = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "gguf") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let tokenizer = Tokenizer::new(from_gguf(&path)).unwrap();
        let read = |ending: &str| std::fs::read_to_string(path.with_extension(ending)).unwrap();
        let (inputs, outputs) = (read("gguf.inp"), read("gguf.out"));
        // The separator follows each text, in some files not the last.
        let inputs = inputs.split("\n__ggml_vocab_test__\n").collect::<Vec<&str>>();
        let outputs: Vec<&str> = outputs.lines().collect();
        assert!([0, 1].contains(&(inputs.len() - outputs.len())), "{name}");
        for (text, expected) in inputs.iter().zip(&outputs) {
            let expected: Vec<u32> =
                expected.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let ids = tokenizer.encode(text, EncodeOptions::PLAIN);
            assert_eq!(ids, expected, "{name}: {text:?}");
            // WordPiece keeps neither case nor white space.
            if !name.contains("bert") {
                let back = tokenizer.decode(&ids, DecodeOptions::default()).unwrap();
                assert_eq!(back, *text, "{name}");
            }
            texts += 1;
        }
        vocabularies += 1;
    }
    println!("{vocabularies} vocabularies, {texts} texts");
    assert!(vocabularies > 0);
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn special_tokens_of_real_vocabularies() {
    let Some(path) = shared("vocabs/ggml-vocab-llama-bpe.gguf") else { return };
    let llama = Tokenizer::new(from_gguf(&path)).unwrap();
    assert_eq!(
        (llama.bos(), llama.eos(), llama.eot()),
        (Some(128_000), Some(128_001), Some(128_009))
    );
    assert_eq!(llama.eog_ids(), [128_001, 128_009]);
    let ids = llama.encode("<|eot_id|>a", EncodeOptions::PROMPT);
    assert_eq!(ids, [128_000, 128_009, 64]);

    let Some(path) = shared("vocabs/ggml-vocab-phi-3.gguf") else { return };
    let phi = Tokenizer::new(from_gguf(&path)).unwrap();
    // The white space after a special token is its own: the texts differ, the ids do not.
    let options = EncodeOptions::PLAIN.with_parse_special(true);
    let ids = phi.encode("<|user|>\nHi<|end|>\n<|assistant|>\n", options);
    assert_eq!(ids, phi.encode("<|user|>Hi<|end|><|assistant|>", options));
    assert!(phi.is_eog(phi.id_of("<|end|>").unwrap()));
}
