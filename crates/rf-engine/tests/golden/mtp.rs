//! The block for further tokens (MTP) of golden models, in the stages of its program.

use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_engine::{Speculation, SpeculationOptions};
use rf_graph::{Backend, Batch, Executor, Input, KvLayout, KvType, Output, Program, Span, fuse};
use rf_kv::PageId;
use rf_model::{Head, ModelConfig, MtpStage};
use rf_oracle::ReferenceBackend;
use rf_testing::{GoldenModel, golden_models, golden_models_in, shared};

use crate::models::{TinyModel, greedy_with, load};

const PAGE_TOKENS: usize = 16;

/// The program of a model with its block.
fn compile(model: &TinyModel, backend: &dyn Backend, tokens: usize) -> Box<dyn Executor> {
    let file = model.open();
    let config = file.config();
    let context_tokens = model.0.context_tokens();
    let head = Head::LogitsAndMtp;
    let (graph, weights) = rf_model::build(file.gguf(), config, context_tokens, head).unwrap();
    let layers = config.kv_layers_with_mtp();
    let mut kv = KvLayout::new(layers, PAGE_TOKENS, tokens.div_ceil(PAGE_TOKENS), KvType::F32);
    (kv.states, kv.num_pages.states) = (config.states(), 1);
    let graph = fuse(graph, backend.fusions());
    let (max_batch_tokens, max_output_rows) = (tokens, tokens);
    let program = Program { graph, weights, kv, max_batch_tokens, max_output_rows };
    backend.compile(program, &mut |_| ()).unwrap()
}

/// The logits of the block at every position of a text, in batches of at most `chunk` tokens.
fn block_logits(
    executor: &mut dyn Executor,
    config: &ModelConfig,
    ids: &[u32],
    chunk: usize,
) -> Vec<f32> {
    let (width, vocab_size) = (config.hidden_size, config.vocab_size);
    let pages = ids.len().div_ceil(PAGE_TOKENS) as u32;
    let pages: Vec<PageId> = (0..pages).map(PageId::new).collect();
    let (mut last, mut logits) = (vec![0.0; width], Vec::new());
    let mut past_tokens = 0;
    for ids in ids.chunks(chunk) {
        let tokens = ids.len();
        let rows: Vec<usize> = (0..tokens).collect();
        let span = Span {
            tokens: 0..tokens,
            past_tokens,
            pages: &pages,
            state: Some(PageId::new(0)),
            ..Span::default()
        };
        let batch = Batch { ids, spans: &[span], output_rows: &rows, input: None };
        let mut states = vec![0.0; tokens * width];
        let output = Output::rows(&mut states).of_stage(MtpStage::Trunk.index());
        executor.forward(&batch, output).unwrap();
        let before = [&last, &states[..(tokens - 1) * width]].concat();
        last = states.split_off((tokens - 1) * width);
        let mut block = vec![0.0; tokens * (width + vocab_size)];
        let batch = Batch { input: Some(Input::Rows(&before)), ..batch };
        let output = Output::rows(&mut block).of_stage(MtpStage::Block.index());
        executor.forward(&batch, output).unwrap();
        logits.extend_from_slice(&block[tokens * width..]);
        past_tokens += tokens;
    }
    logits
}

/// Checks the logits of a block on a backend, of a prompt and of single tokens.
pub(crate) fn check(model: &TinyModel, backend: &dyn Backend, what: &str) {
    let ids_of_text = model.ids();
    let mut executor = compile(model, backend, ids_of_text.len());
    let (name, file) = (model.name(), model.open());
    let config = file.config();
    for chunk in [ids_of_text.len(), 7, 1] {
        let logits = block_logits(&mut *executor, config, &ids_of_text, chunk);
        let bound = model.bound(&logits, backend.rounds_operands_to_f16() && chunk > 1);
        let (ours, _) = model.at_positions(&logits);
        let stored = model.0.mtp_logits().unwrap();
        assert_eq!(ours.len(), stored.len(), "{name}");
        let errors = ours.iter().zip(&stored).map(|(a, b)| (a - b).abs());
        let error = errors.max_by(f32::total_cmp).unwrap();
        eprintln!("{name:12} MTP on {what} in batches of {chunk:3}: {error:.1e}");
        assert!(error < bound, "{name} on {what}: off by {error}, bound {bound}");
        let top = model.0.mtp_top1();
        for (position, (row, top)) in logits.chunks(config.vocab_size).zip(top).enumerate() {
            let largest = row.iter().copied().max_by(f32::total_cmp).unwrap();
            let below = largest - row[top as usize];
            assert!(below < bound, "{name} on {what}: position {position}, {below} below");
        }
    }
}

/// Greedy ids with drafts of the block, for which both models are rarely right: their weights are
/// random.
pub(crate) fn check_greedy(model: &TinyModel, backend: &dyn Backend) {
    let expected = model.0.greedy();
    let options = model.options().with_speculates(true).with_mtp(true);
    let mut engine = load(&model.0.path(), backend, options);
    for tokens in [1, 3] {
        let lengths = SpeculationOptions::default()
            .with_max_draft_tokens(tokens)
            .with_min_draft_tokens(tokens);
        let mut speculation = Speculation::mtp(&engine, lengths).unwrap();
        let text = model.ids();
        let found = greedy_with(&mut engine, &text, expected.len(), Some(&mut speculation));
        assert_eq!(found.ids, expected, "{}", model.name());
        assert!(found.timings.drafted_tokens >= tokens * (expected.len() - 1 - tokens));
    }
}

fn check_all(models: Vec<GoldenModel>) -> Vec<String> {
    let mut checked = Vec::new();
    for model in models.into_iter().map(TinyModel) {
        if model.0.mtp_logits().is_none() {
            assert!(model.open().config().mtp.is_none(), "{}", model.name());
            continue;
        }
        check(&model, &ReferenceBackend, "the reference");
        for isa in Isa::available() {
            let options = CpuOptions::default().with_threads(2).with_isa(isa);
            let backend = CpuBackend::new(options).unwrap();
            check(&model, &backend, &isa.to_string());
            check_greedy(&model, &backend);
        }
        checked.push(model.name().to_owned());
    }
    checked.sort_unstable();
    checked
}

#[test]
fn blocks_for_further_tokens_match_on_every_isa() {
    assert_eq!(check_all(golden_models()), ["glm4moe", "qwen35_mtp"]);
    let Some(folder) = shared("golden/arch") else { return };
    assert_eq!(check_all(golden_models_in(&folder)), ["glm4moe", "qwen35_mtp"]);
}
