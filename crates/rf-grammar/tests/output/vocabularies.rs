//! Vocabularies of real models: BPE with 128k and 152k tokens, SPM with byte tokens.

use std::sync::Arc;

use rf_engine::tokenizer_from_gguf;
use rf_gguf::Gguf;
use rf_grammar::{Grammar, GrammarCompiler};
use rf_testing::SplitMix64 as Random;
use serde_json::{Value, json};

use crate::sampling::RandomModel;

#[test]
fn real_vocabularies_write_valid_json() {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "size": {"enum": ["klein", "größer", "大"]},
        "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    }, "required": ["name", "size", "list"], "additionalProperties": false});
    let mut random = Random::new(5);
    for name in ["llama-bpe", "qwen2", "llama-spm", "phi-3", "gpt-2"] {
        let file = format!("vocabs/ggml-vocab-{name}.gguf");
        let Some(path) = rf_testing::shared(&file) else { continue };
        let tokenizer = Arc::new(tokenizer_from_gguf(&Gguf::open(&path).unwrap()).unwrap());
        let compiler = GrammarCompiler::new(&tokenizer).unwrap();
        let model = RandomModel::new(&tokenizer);
        for _ in 0..20 {
            let constraint = compiler.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
            let text = model.sample(constraint, &mut random);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(jsonschema::validate(&schema, &value).is_ok(), "{name}: {text}");
        }
    }
}
