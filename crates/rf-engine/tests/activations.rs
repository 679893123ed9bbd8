//! Sums of squared activations: those of the reference on the CPU, whatever the batches.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::collections::BTreeMap;

use rf_engine::{ActivationSums, Activations, EngineOptions, Error, Model};
use rf_graph::{Backend, KvType};
use rf_oracle::ReferenceBackend;
use rf_testing::engine::{cpu, golden};
use rf_testing::prompt;

/// The sums of two texts of 40 tokens.
fn sums(
    model: &Model,
    backend: &dyn Backend,
    batch_tokens: usize,
) -> BTreeMap<String, ActivationSums> {
    let options = EngineOptions::default()
        .with_context_tokens(Some(40))
        .with_batch_tokens(batch_tokens)
        .with_kv_type(KvType::F32);
    let mut activations = Activations::load(model, backend, &options, &mut |_| ()).unwrap();
    for seed in [3, 17] {
        activations.add(&prompt(seed, 40)).unwrap();
    }
    let error = activations.add(&[0; 41]).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { .. }), "{error}");
    activations.sums().clone()
}

/// The largest difference of two sums, in units of the mean of the tensor.
fn difference(a: &ActivationSums, b: &ActivationSums) -> f64 {
    assert_eq!(a.rows, b.rows);
    let mean = a.squares.iter().sum::<f64>() / a.squares.len() as f64;
    let differences = a.squares.iter().zip(&b.squares).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f64::max) / mean
}

#[test]
fn sums_are_those_of_the_reference_in_batches_of_any_size() {
    for (name, tolerance) in [("smollm3", 1e-3), ("gemma4_e4b", 1e-3)] {
        let model = golden(name);
        let reference = sums(&model, &ReferenceBackend, 40);
        let (whole, parts) = (sums(&model, &cpu(2), 40), sums(&model, &cpu(2), 16));
        assert!(reference.keys().eq(whole.keys()) && whole.keys().eq(parts.keys()));
        for (tensor, expected) in &reference {
            assert!(tensor.starts_with("blk.") && tensor.ends_with(".weight"), "{tensor}");
            assert_eq!(expected.rows, [80], "{tensor}");
            let columns = model.gguf().required_tensor(tensor).unwrap().shape()[0];
            assert_eq!(expected.squares.len() as u64, columns, "{tensor}");
            let error = difference(expected, &whole[tensor]);
            assert!(error < tolerance, "{name}: {tensor} differs by {error}");
            assert!(difference(&whole[tensor], &parts[tensor]) < 1e-9, "{name}: {tensor}");
        }
    }
}

/// Each expert has its own sums, over the tokens that selected it.
#[test]
fn experts_have_sums_of_their_own() {
    let model = golden("glm4moe");
    let mut layers = model.config().layers.iter();
    let experts = layers.find_map(|layer| layer.experts.as_ref()).unwrap();
    let sums = sums(&model, &cpu(2), 40);
    let routed: Vec<_> = sums.iter().filter(|(name, _)| name.contains("_exps")).collect();
    assert!(!routed.is_empty() && routed.len() % 3 == 0);
    for (tensor, ActivationSums { squares, rows }) in routed {
        let shape = model.gguf().required_tensor(tensor).unwrap().shape();
        assert_eq!(rows.len() as u64, shape[2], "{tensor}");
        assert_eq!(squares.len() as u64, shape[0] * shape[2], "{tensor}");
        assert_eq!(rows.iter().sum::<u64>(), 80 * experts.experts_per_token as u64);
        for (squares, rows) in squares.chunks(shape[0] as usize).zip(rows) {
            assert_eq!(squares.iter().all(|square| *square == 0.0), *rows == 0, "{tensor}");
        }
    }
}
