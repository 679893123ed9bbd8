//! Encoding throughput and loading time, with the demo model's vocabulary and, if available, real
//! ones.

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use rf_testing::SplitMix64;
use rf_tokenizer::{EncodeOptions, Tokenizer, VocabConfig};

fn vocabularies() -> Vec<(&'static str, VocabConfig)> {
    let mut all = vec![("stories-7m", fixtures::demo())];
    for name in ["llama-bpe", "qwen2", "gpt-2", "deepseek-llm", "llama-spm"] {
        if let Some(path) = rf_testing::shared(&format!("vocabs/ggml-vocab-{name}.gguf")) {
            all.push((name, fixtures::from_gguf(&path)));
        }
    }
    all
}

/// 100 KiB of mixed text: prose with few repeats, code, numbers, two other scripts.
fn text() -> String {
    let mut text = String::new();
    let mut random = SplitMix64::new(1);
    while text.len() < 100 << 10 {
        for prompt in fixtures::demo_prompts() {
            text.push_str(&prompt.text);
        }
        for _ in 0..200 {
            let word = ["quantise", "Über", "rows[i] +=", "的模型", "слово", "0x"][random.below(6)];
            text.extend([" ", word, &random.below(1 << 20).to_string(), "\n"]);
        }
    }
    text
}

fn encode(c: &mut Criterion) {
    let text = text();
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Bytes(text.len() as u64));
    for (name, config) in vocabularies() {
        let tokenizer = Tokenizer::new(config).expect("the vocabulary is sound");
        group.bench_function(name, |b| {
            b.iter(|| tokenizer.encode(black_box(&text), EncodeOptions::PROMPT));
        });
    }
}

fn load(c: &mut Criterion) {
    let mut group = c.benchmark_group("load");
    group.sample_size(10);
    for (name, config) in vocabularies() {
        group.bench_function(name, |b| {
            b.iter_batched(|| config.clone(), Tokenizer::new, BatchSize::PerIteration);
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    encode(&mut criterion);
    load(&mut criterion);
    criterion.final_summary();
}
