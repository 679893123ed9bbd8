//! Every supported architecture against the logits, embeddings or scores of its golden models, on
//! the reference backend.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::{Path, PathBuf};

use rf_gguf::Gguf;
use rf_graph::{
    Backend, Batch, Executor, Input, KvLayout, KvType, Output, Program, ReferenceBackend, Span,
};
use rf_kv::PageId;
use rf_model::{
    Head, ModelConfig, MtpStage, Pooling, build, golden_models, supported_architectures,
};
use serde_json::Value;

/// The golden models outside of the repository.
fn folder() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/arch");
    path.is_dir().then_some(path)
}

fn index(folder: &Path) -> Vec<Value> {
    let index = std::fs::read(folder.join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let list = |name: &str| index[name].as_array().unwrap().clone();
    [list("models"), list("embeddings")].concat()
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}

/// Calls `run` with a model on the reference backend, and a batch of a text whose output is
/// requested at some positions.
fn with_batch<R>(
    (gguf, head, context): (&Gguf, Head, usize),
    ids: &[u32],
    positions: &[usize],
    run: impl FnOnce(&mut dyn Executor, Batch<'_>) -> R,
) -> R {
    let config = ModelConfig::from_gguf(gguf).unwrap();
    let (graph, weights) = build(gguf, &config, context, head).unwrap();
    let pages: Vec<PageId> = (0..ids.len().div_ceil(16)).map(|i| PageId::new(i as u32)).collect();
    let layers = match head {
        Head::LogitsAndMtp => config.kv_layers_with_mtp(),
        _ => config.kv_layers(),
    };
    let mut kv = KvLayout::new(layers, 16, pages.len(), KvType::F32);
    (kv.states, kv.num_pages.states) = (config.states(), 1);
    let (max_batch_tokens, max_output_rows) = (ids.len(), positions.len());
    let program = Program { graph, weights, kv, max_batch_tokens, max_output_rows };
    let mut executor = ReferenceBackend.compile(program, &mut |_| ()).unwrap();
    let span = Span {
        tokens: 0..ids.len(),
        past_tokens: 0,
        pages: &pages,
        window_pages: &[],
        state: Some(PageId::new(0)),
    };
    run(&mut *executor, Batch { ids, spans: &[span], output_rows: positions, input: None })
}

/// Rows of the output at some positions of a text, in one batch.
fn rows(gguf: &Gguf, head: Head, ids: &[u32], context: usize, positions: &[usize]) -> Vec<f32> {
    let config = ModelConfig::from_gguf(gguf).unwrap();
    let (graph, _) = build(gguf, &config, context, head).unwrap();
    let width = graph.value(graph.output()).width;
    with_batch((gguf, head, context), ids, positions, |executor, batch| {
        let mut out = vec![0.0; positions.len() * width];
        executor.forward(&batch, Output::rows(&mut out)).unwrap();
        out
    })
}

/// What the golden file of a model stores: logits of some positions, or the embedding or scores of
/// the whole text.
fn output(gguf: &Gguf, model: &Value) -> (Vec<f32>, String) {
    let ids: Vec<u32> = numbers(&model["ids"]).into_iter().map(|id| id as u32).collect();
    let rows = |head, positions: &[usize]| {
        let context_tokens = model["n_ctx"].as_u64().unwrap() as usize;
        rows(gguf, head, &ids, context_tokens.min(most_context(gguf)), positions)
    };
    let Some(stored) = model["embedding"].as_str() else {
        let stored = model["logits"].as_str().unwrap();
        return (rows(Head::Logits, &numbers(&model["positions"])), stored.to_owned());
    };
    let config = ModelConfig::from_gguf(gguf).unwrap();
    let pooling = config.pooling.unwrap();
    assert_eq!(pooling.name(), model["pooling"].as_str().unwrap());
    let (all, last): (Vec<usize>, _) = ((0..ids.len()).collect(), ids.len() - 1);
    let output = match pooling {
        Pooling::Cls => normalized(&rows(Head::State, &[0])),
        Pooling::Last => normalized(&rows(Head::State, &[last])),
        Pooling::Mean => {
            // The length of a sum and of a mean is 1 after normalisation.
            let states = rows(Head::State, &all);
            let mut sum = vec![0.0; config.hidden_size];
            states.chunks_exact(sum.len()).for_each(|row| {
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            });
            normalized(&sum)
        }
        Pooling::Rank if config.is_encoder => rows(Head::Scores, &[0]),
        Pooling::Rank => softmax(&rows(Head::Scores, &[last])),
    };
    (output, stored.to_owned())
}

fn most_context(gguf: &Gguf) -> usize {
    ModelConfig::from_gguf(gguf).unwrap().max_context_length.unwrap_or(usize::MAX)
}

fn normalized(x: &[f32]) -> Vec<f32> {
    let length = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    x.iter().map(|x| (f64::from(*x) / length) as f32).collect()
}

fn softmax(x: &[f32]) -> Vec<f32> {
    let sum: f32 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / sum).collect()
}

/// Largest difference from the stored numbers.
fn error(folder: &Path, model: &Value) -> f32 {
    let gguf = Gguf::open(folder.join(model["file"].as_str().unwrap())).unwrap();
    let (ours, stored) = output(&gguf, model);
    largest_difference(ours, &folder.join(stored))
}

fn largest_difference(ours: Vec<f32>, stored: &Path) -> f32 {
    let stored = std::fs::read(stored).unwrap();
    let stored = stored.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
    assert_eq!(ours.len(), stored.len());
    ours.into_iter().zip(stored).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn every_supported_architecture_has_golden_models() {
    for architecture in supported_architectures() {
        assert!(!golden_models(architecture).is_empty(), "{architecture}");
    }
}

#[test]
fn every_architecture_matches_its_golden_models() {
    let Some(folder) = folder() else {
        eprintln!("skipped: shared/golden/arch is not beside the project");
        return;
    };
    let models = index(&folder);
    let mut failures = Vec::new();
    for architecture in supported_architectures() {
        for name in golden_models(architecture) {
            let model = models.iter().find(|model| model["name"] == *name);
            let model = model.unwrap_or_else(|| panic!("the index has no {name}"));
            assert_eq!(model["architecture"], architecture, "{name}");
            let bound = model["bound"].as_f64().unwrap_or(2e-3) as f32;
            let error = error(&folder, model);
            eprintln!("{name:24} off by {error:.1e}, bound {bound:.1e}");
            if error > bound || error.is_nan() {
                failures.push(format!("{name}: off by {error}, bound {bound}"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    // Every model of a supported architecture is named by its family.
    for model in &models {
        let architecture = model["architecture"].as_str().unwrap();
        let name = model["name"].as_str().unwrap();
        let known = golden_models(architecture);
        assert!(
            known.is_empty() || known.contains(&name),
            "{name} of {architecture} is not checked"
        );
    }
}

/// The logits of the MTP block and of the model at every position, in the three stages of a batch.
fn mtp_logits(gguf: &Gguf, ids: &[u32], context: usize) -> (Vec<f32>, Vec<f32>) {
    let config = ModelConfig::from_gguf(gguf).unwrap();
    let (tokens, width, vocab_size) = (ids.len(), config.hidden_size, config.vocab_size);
    let all: Vec<usize> = (0..tokens).collect();
    with_batch((gguf, Head::LogitsAndMtp, context), ids, &all, |executor, batch| {
        let mut states = vec![0.0; tokens * width];
        let output = Output::rows(&mut states).of_stage(MtpStage::Trunk.index());
        executor.forward(&batch, output).unwrap();
        let mut before = vec![0.0; width];
        before.extend_from_slice(&states[..states.len() - width]);
        let input = Batch { input: Some(Input::Rows(&before)), ..batch };
        let mut block = vec![0.0; tokens * (width + vocab_size)];
        let output = Output::rows(&mut block).of_stage(MtpStage::Block.index());
        executor.forward(&input, output).unwrap();
        let input = Batch { input: Some(Input::Rows(&states)), ..batch };
        let mut logits = vec![0.0; tokens * vocab_size];
        let output = Output::rows(&mut logits).of_stage(MtpStage::Logits.index());
        executor.forward(&input, output).unwrap();
        (block.split_off(tokens * width), logits)
    })
}

#[test]
fn mtp_blocks_match_their_golden_models() {
    let Some(folder) = folder() else {
        eprintln!("skipped: shared/golden/arch is not beside the project");
        return;
    };
    let mut checked = Vec::new();
    for model in index(&folder) {
        let Some(stored) = model["mtp_logits"].as_str() else { continue };
        let name = model["name"].as_str().unwrap();
        let gguf = Gguf::open(folder.join(model["file"].as_str().unwrap())).unwrap();
        let ids: Vec<u32> = numbers(&model["ids"]).into_iter().map(|id| id as u32).collect();
        let context = model["n_ctx"].as_u64().unwrap() as usize;
        let (block, logits) = mtp_logits(&gguf, &ids, context);
        let vocab_size = block.len() / ids.len();
        let top = |row: &[f32]| (0..vocab_size).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        let found: Vec<usize> = block.chunks(vocab_size).map(top).collect();
        assert_eq!(found, numbers(&model["mtp_top1"]), "{name}");
        let positions = numbers(&model["positions"]);
        let at = |p: &usize| block[p * vocab_size..][..vocab_size].to_vec();
        let error =
            largest_difference(positions.iter().flat_map(at).collect(), &folder.join(stored));
        let bound = model["bound"].as_f64().unwrap() as f32;
        eprintln!("{name:24} off by {error:.1e}, bound {bound:.1e}");
        assert!(error <= bound, "{name}: off by {error}");
        // The stages change nothing else.
        let whole = rows(&gguf, Head::Logits, &ids, context, &positions);
        let at = |p: &usize| logits[p * vocab_size..][..vocab_size].to_vec();
        let staged: Vec<f32> = positions.iter().flat_map(at).collect();
        assert!(whole == staged, "{name}");
        checked.push(name.to_owned());
    }
    assert_eq!(checked, ["qwen35_mtp", "glm4moe"]);
}
