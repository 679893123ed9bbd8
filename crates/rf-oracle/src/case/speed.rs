//! The timed cases: shapes of real models, and of matmuls in general.
//!
//! rf-bench times all of them and `rf-cli selftest` a few; [`measure_peak`](super::measure_peak)
//! times the compute-bound ones.

use rf_graph::{KvType, OperandFormat};
use rf_quant::DType;

use super::attention::{attention, kv_append};
use super::definition::Case;
use super::embed::embed;
use super::experts::route_of;
use super::matmul::matmul;
use super::rows::{layer_norm, rms_norm, rope_of_heads, scale};
use super::schedule::Schedule;

/// Heads of an attention layer: `[num_heads, num_kv_heads, head_dim]`.
pub type Heads = [usize; 3];

/// Heads of the layers of Llama 2 7B, Llama 3.2 1B, Llama 3 8B and Qwen2.5 0.5B.
const HEADS: [Heads; 4] = [[32, 32, 128], [32, 8, 64], [32, 8, 128], [14, 2, 64]];

/// The heads of Llama 3 8B, for cases where the heads do not matter.
pub const USUAL_HEADS: Heads = HEADS[2];

/// Dense matmuls: `[tokens, rows, columns]`.
const DENSE: [[usize; 3]; 8] = [
    [512, 512, 512],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [1, 4096, 4096],
    [32, 128, 4096],
    [128, 128, 1024],
    [32, 32, 768],
];

/// Dense matmuls of several shapes, then every format with 4096 × 4096 weights and 1 to 512 tokens.
pub fn matmuls() -> Vec<Case> {
    let mut shapes: Vec<(DType, [usize; 3])> = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        shapes.extend(DENSE.map(|shape| (dtype, shape)));
    }
    for dtype in DType::ALL {
        for tokens in [1, 4, 8, 512] {
            let shape = (dtype, [tokens, 4096, 4096]);
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
    }
    let case = |(dtype, [tokens, rows, columns]): (DType, [usize; 3])| {
        matmul(dtype, rows, columns, Schedule::single(tokens))
    };
    shapes.into_iter().map(case).collect()
}

/// Matmuls that are bound by arithmetic on every device: in floating point, and in int8.
pub(super) fn compute_bound() -> [Case; 2] {
    [DType::F16, DType::Q8_0].map(|dtype| matmul(dtype, 8192, 4096, Schedule::single(2048)))
}

/// Attention of prompts, then of single tokens at a depth.
pub fn attentions() -> Vec<Case> {
    let mut cases = Vec::new();
    for heads in HEADS {
        for tokens in [32, 64, 128, 256, 512] {
            cases.push(attention(KvType::F16, heads, Schedule::single(tokens)));
        }
    }
    for heads in HEADS {
        let usual = &[KvType::F16, KvType::Q8_0][..];
        for &kv in if heads == USUAL_HEADS { &KvType::ALL[..] } else { usual } {
            for past_tokens in [512, 4096] {
                cases.push(attention(kv, heads, Schedule::at_depth(past_tokens, 1)));
            }
        }
    }
    cases
}

/// All rows of a table of 4096 × 4096 elements, in every format.
pub fn embeds() -> Vec<Case> {
    DType::ALL.into_iter().map(|dtype| embed(dtype, 4096, 4096)).collect()
}

/// Keys and values of all layers of a model, in an f16 cache.
pub fn kv_appends(layers: [usize; 3]) -> Vec<Case> {
    let case = |tokens| kv_append(KvType::F16, layers, Schedule::single(tokens));
    [1, 16, 64, 256].into_iter().map(case).collect()
}

/// One short row: the op whose chains show the cost of a launch.
pub fn launch() -> Case {
    scale(64, Schedule::single(1))
}

/// The cases whose speed `rf-cli selftest` reports with the conformance cases of an op and a
/// format.
pub fn selftest(op: &str, format: Option<OperandFormat>) -> Vec<Case> {
    match (op, format) {
        ("matmul", Some(OperandFormat::Weight(dtype))) => [(1, 4096), (1, 11008), (512, 4096)]
            .map(|(tokens, rows)| matmul(dtype, rows, 4096, Schedule::single(tokens)))
            .into(),
        ("attention", Some(OperandFormat::Cache(kv))) => {
            vec![attention(kv, USUAL_HEADS, Schedule::at_depth(4096, 1))]
        }
        ("rms_norm", None) => vec![rms_norm(4096, Schedule::single(1))],
        ("layer_norm", None) => vec![layer_norm(4096, Schedule::single(1))],
        ("rope", None) => vec![rope_of_heads(32, Schedule::single(1))],
        ("route", None) => vec![route_of(128, Schedule::single(1))],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{CaseShape, Numbers};
    use crate::conformance::{Deviation, check};
    use crate::reference::ReferenceBackend;
    use rf_graph::{Backend, OpCost, Output, Program};

    #[test]
    fn a_matmul_moves_its_matrix_and_rows_once() {
        let cost = |dtype, tokens| matmul(dtype, 4096, 4096, Schedule::single(tokens)).cost();
        // 524288 blocks of 18 bytes; 8 rows of 4096 floats in, 8 out; 8 · 2²⁴ multiply-adds.
        let expected = OpCost {
            bytes: 524_288 * 18 + 2 * 131_072,
            f32_operations: 0,
            int8_operations: 268_435_456,
        };
        assert_eq!(cost(DType::Q4_0, 8), expected);
        // 64 MiB of weights; 16 KiB in and out.
        let expected = OpCost {
            bytes: 67_108_864 + 2 * 16_384,
            f32_operations: 33_554_432,
            int8_operations: 0,
        };
        assert_eq!(cost(DType::F32, 1), expected);
    }

    #[test]
    fn decode_reads_the_whole_cache_and_prefill_half_of_all_pairs() {
        let decode = attention(KvType::F16, USUAL_HEADS, Schedule::at_depth(4096, 1)).cost();
        // 4097 tokens of 8 heads of 128, keys and values, 2 bytes each; a query of 32 · 128 floats
        // in and out.
        assert_eq!(decode.bytes, 4097 * 4096 + 2 * 16_384);
        assert_eq!(decode.f32_operations, 4 * 4096 * 4097);
        let prefill = attention(KvType::F16, USUAL_HEADS, Schedule::single(512)).cost();
        // 512 · 513 / 2 pairs.
        assert_eq!(prefill.f32_operations, 4 * 4096 * 131_328);
    }

    #[test]
    fn appending_costs_the_keys_and_values_of_all_layers() {
        let cost = kv_append(KvType::F16, [3, 2, 32], Schedule::single(40)).cost();
        // Per layer and token 2 · 64 floats read and as many f16 written.
        assert_eq!(cost, OpCost { bytes: 3 * 40 * 128 * (4 + 2), ..OpCost::default() });
    }

    /// Small cases of every builder that has copies.
    fn small() -> Vec<Case> {
        let mut cases = vec![
            embed(DType::Q4_0, 40, 96),
            rms_norm(80, Schedule::single(3)),
            layer_norm(80, Schedule::single(3)),
            rope_of_heads(2, Schedule::single(3)),
            route_of(16, Schedule::single(3)),
            scale(64, Schedule::single(1)),
            kv_append(KvType::Q8_0, [3, 2, 32], Schedule::single(40)),
        ];
        for dtype in [DType::F16, DType::Q4K] {
            cases.push(matmul(dtype, 64, 256, Schedule::single(4)));
        }
        for kv in KvType::ALL {
            cases.push(attention(kv, [4, 2, 32], Schedule::single(40)));
            cases.push(attention(kv, [4, 2, 32], Schedule::at_depth(600, 1)));
        }
        cases
    }

    #[test]
    fn timed_cases_conform_like_the_others() {
        for case in small() {
            check(&ReferenceBackend, &case).unwrap();
        }
    }

    #[test]
    fn each_copy_of_a_timed_program_is_the_op_itself() {
        for case in small() {
            let timed = case.timed_program(2);
            let count = |program: &Program| {
                program.graph.ops().iter().filter(|op| op.name() == case.op()).count()
            };
            let once = case.program();
            assert_eq!(count(&timed), 2 * count(&once), "{case:?}");
            if matches!(case.shape(), CaseShape::Row { .. }) {
                // Copies of ops on rows read each other.
                continue;
            }
            let expected = outputs(&case, once);
            let deviation = Deviation::between(&outputs(&case, timed), &expected);
            assert_eq!(deviation, Deviation::default(), "{case:?}");
        }
    }

    fn outputs(case: &Case, program: Program) -> Vec<Vec<f32>> {
        let width = program.graph.value(program.graph.output()).width;
        let mut executor = ReferenceBackend.compile(program, &mut |_| ()).unwrap();
        let outputs = case.batches().iter().map(|batch| {
            let rows: Vec<usize> = (0..batch.tokens()).collect();
            let mut out = vec![f32::NAN; rows.len() * width];
            batch
                .with_output_rows(&rows, |batch| executor.forward(batch, Output::rows(&mut out)))
                .unwrap();
            out
        });
        outputs.collect()
    }

    #[test]
    fn repeated_values_are_a_few_random_rows() {
        let case = matmul(DType::F32, 4096, 4096, Schedule::single(1));
        let program = case.timed_program(1);
        let weight = &program.weights[1];
        let row = 4 * 4096;
        let (first, again) = (&weight.bytes()[..row], &weight.bytes()[64 * row..65 * row]);
        assert_eq!(first, again);
        assert_ne!(first, &weight.bytes()[row..2 * row]);
        let mut numbers = Numbers::new("a name");
        assert!((0..64).all(|_| numbers.normal().abs() < 4.0));
    }
}
