//! Tests of divided programs: the parts together compute what the whole program computes, up to the
//! rounding of sums.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::sync::Arc;
use std::time::Duration;

use rf_graph::tensor::{Divided, TensorBackend, divide};
use rf_graph::{
    Attention, Backend, Batch, DType, Executor, GraphBuilder, KvLayer, KvLayout, KvType, Op,
    Output, Program, Span, Weight, WeightId,
};
use rf_oracle::ReferenceBackend;
use rf_oracle::case::{Case, cases};

/// Models of two layers and more, with batches of sequences of several lengths.
fn models() -> Vec<Case> {
    cases().into_iter().filter(|case| case.name().starts_with("model/")).collect()
}

fn results(executor: &mut dyn Executor, case: &Case) -> Vec<f32> {
    let program = case.program();
    let value = program.graph.value(program.graph.output());
    let mut all = Vec::new();
    for batch in case.batches() {
        batch.with(|batch| {
            let mut out = vec![f32::NAN; batch.rows(value.rows) * value.width];
            executor.forward(batch, Output::rows(&mut out)).unwrap();
            all.extend(out);
        });
    }
    all
}

fn on_parts(case: &Case, shares: &[f32]) -> Vec<f32> {
    let parts: Vec<(&dyn Backend, f32)> =
        shares.iter().map(|share| (&ReferenceBackend as _, *share)).collect();
    let backend = TensorBackend::new(&parts).unwrap();
    let need = backend.memory_need(&case.program()).unwrap();
    let mut executor = backend.compile(case.program(), &mut |_| ()).unwrap();
    assert_eq!(executor.memory(), need.held, "{}", case.name());
    results(&mut *executor, case)
}

#[test]
fn parts_together_give_the_results_of_the_whole_program() {
    let mut divided_models = 0;
    for case in models() {
        let mut whole = ReferenceBackend.compile(case.program(), &mut |_| ()).unwrap();
        let expected = results(&mut *whole, &case);
        let energy: f64 = expected.iter().map(|x| f64::from(*x).powi(2)).sum();
        for shares in [&[1.0, 1.0][..], &[3.0, 1.0], &[1.0; 4]] {
            let actual = on_parts(&case, shares);
            assert_eq!(actual.len(), expected.len());
            let squares = actual.iter().zip(&expected).map(|(a, b)| f64::from(a - b).powi(2));
            let error = squares.sum::<f64>() / energy;
            assert!(error < 1e-9, "{} over {shares:?}: {error}", case.name());
            let division = divide(&case.program(), shares).division;
            eprintln!("{} over {shares:?}: {division}", case.name());
            divided_models += usize::from(division.sums > 0);
        }
    }
    assert!(divided_models > 20, "{divided_models}");
}

#[test]
fn a_part_has_its_share_of_heads_cache_and_columns() {
    let case = models().into_iter().find(|case| case.name() == "model/llama").unwrap();
    let program = case.program();
    let layers = program.graph.num_layers();
    let whole = &program.kv.layers;
    let Divided { parts, stages, division } = divide(&program, &[1.0, 1.0]);
    assert_eq!((division.sums, division.parts), (2 * layers, 2));
    for part in &parts {
        assert_eq!(part.kv.layers.len(), whole.len());
        let heads = part.kv.layers.iter().zip(whole);
        assert!(heads.clone().all(|(part, whole)| 2 * part.num_kv_heads == whole.num_kv_heads));
        assert_eq!(part.graph.num_layers(), layers);
    }
    let vocab_size = program.graph.value(program.graph.output()).width;
    let [outputs] = stages.as_slice() else { panic!("{stages:?}") };
    assert_eq!(
        outputs[0].columns,
        Some(vec![0..vocab_size.div_ceil(2), vocab_size.div_ceil(2)..vocab_size])
    );
    let bytes = |program: &Program| -> usize {
        let matrices = program.weights.iter().filter(|weight| weight.rows() > 1);
        matrices.map(Weight::size_bytes).sum()
    };
    // The embedding is whole on both parts.
    assert!(parts.iter().all(|part| bytes(part) < bytes(&program) * 3 / 4));
}

fn matrix(g: &mut GraphBuilder, name: &str, dtype: DType, rows: usize, columns: usize) -> WeightId {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i % 23) as f32 / 23.0 - 0.5).collect();
    let bytes = rf_quant::quantize_to_vec(dtype, &values).unwrap();
    g.weight(Weight::new(name, dtype, rows, columns, Arc::new(bytes)).unwrap())
}

/// Attention of some heads over an embedding, whose output matrix has blocks of 32.
fn attention(num_heads: usize, num_kv_heads: usize, head_dim: usize, dtype: DType) -> Program {
    let mut g = GraphBuilder::new();
    let width = 64;
    let table = matrix(&mut g, "table", DType::F32, 8, width);
    let x = g.embed(table, 1.0);
    let [q, k, v] = [num_heads, num_kv_heads, num_kv_heads].map(|heads| {
        let w = matrix(&mut g, "qkv", DType::F32, heads * head_dim, width);
        g.matmul(x, w)
    });
    let y = g.attention(q, k, v, &Attention::new(0, num_heads, num_kv_heads, head_dim));
    let w = matrix(&mut g, "out", dtype, width, num_heads * head_dim);
    let y = g.matmul(y, w);
    let y = g.add(x, y);
    let (graph, weights) = g.finish(y);
    let layers = vec![KvLayer::new(num_kv_heads, head_dim)];
    let kv = KvLayout::new(layers, 16, 4, KvType::F32);
    Program { graph, weights, kv, max_batch_tokens: 8, max_output_rows: 8 }
}

fn heads(program: &Program, shares: &[f32]) -> Vec<[usize; 2]> {
    let heads = |part: &Program| {
        let mut all = part.graph.ops().iter().filter_map(|op| match op {
            Op::Attention { attention: a, .. } => Some([a.num_heads, a.num_kv_heads]),
            _ => None,
        });
        all.next().unwrap()
    };
    divide(program, shares).parts.iter().map(heads).collect()
}

#[test]
fn heads_are_divided_where_kv_heads_and_blocks_begin() {
    let program = attention(8, 4, 16, DType::F32);
    assert_eq!(heads(&program, &[1.0, 1.0]), [[4, 2]; 2]);
    assert_eq!(heads(&program, &[3.0, 1.0]), [[6, 3], [2, 1]]);
    // Parts share the KV heads.
    assert_eq!(heads(&program, &[1.0; 8]), [[1, 1]; 8]);
    assert_eq!(heads(&attention(8, 1, 16, DType::F32), &[3.0, 1.0]), [[6, 1], [2, 1]]);
    // A block has the columns of two heads, and the queries of a KV head are in one.
    assert_eq!(heads(&attention(8, 4, 16, DType::Q8_0), &[1.0, 1.0]), [[4, 2]; 2]);
    // Blocks of two KV heads.
    assert_eq!(heads(&attention(6, 6, 16, DType::Q8_0), &[1.0, 2.0]), [[2, 2], [4, 4]]);
    // Three KV heads are not divided over two parts evenly, but one part has two of them.
    assert_eq!(heads(&attention(3, 3, 32, DType::Q8_0), &[1.0, 1.0]), [[2, 2], [1, 1]]);
}

#[test]
fn what_is_not_divided_has_a_reason() {
    let division = divide(&attention(9, 3, 16, DType::F32), &[1.0; 4]).division;
    let reason = "9 heads with 3 KV heads for 4 parts";
    let whole = division.whole.iter().find(|whole| whole.reason == reason).unwrap();
    assert_eq!(whole.tensors, ["qkv", "out"]);
    assert_eq!((division.sums, division.divided_bytes), (0, 0));
}

#[test]
fn an_executor_without_the_other_parts_is_an_error() {
    let part = divide(&attention(8, 4, 16, DType::F32), &[1.0, 1.0]).parts.remove(0);
    let mut executor = ReferenceBackend.compile(part, &mut |_| ()).unwrap();
    let spans = [Span { tokens: 0..1, pages: &[rf_kv::PageId::new(0)], ..Span::default() }];
    let batch = Batch { ids: &[1], spans: &spans, output_rows: &[], input: None };
    let error = executor.forward(&batch, Output::rows(&mut [0.0; 64])).unwrap_err();
    assert!(error.to_string().contains("without the others"), "{error}");
}

/// A backend whose executors cannot sum over parts.
struct Alone;

impl Backend for Alone {
    fn name(&self) -> &'static str {
        "alone"
    }

    fn description(&self) -> String {
        self.name().to_owned()
    }

    fn fusions(&self) -> rf_graph::Fusions {
        rf_graph::Fusions::NONE
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        None
    }

    fn memory_need(
        &self,
        program: &Program,
    ) -> Result<rf_graph::MemoryNeed, rf_graph::BackendError> {
        ReferenceBackend.memory_need(program)
    }

    fn compile(
        &self,
        _program: Program,
        _progress: &mut dyn FnMut(rf_graph::Progress),
    ) -> Result<Box<dyn Executor>, rf_graph::BackendError> {
        Ok(Box::new(AloneExecutor))
    }
}

struct AloneExecutor;

impl Executor for AloneExecutor {
    fn forward(&mut self, _: &Batch<'_>, _: Output<'_>) -> Result<(), rf_graph::BackendError> {
        Ok(())
    }

    fn copy_pages(&mut self, _: &[rf_kv::CopyPage]) -> Result<(), rf_graph::BackendError> {
        Ok(())
    }

    fn memory(&self) -> rf_graph::MemoryUse {
        rf_graph::MemoryUse::default()
    }
}

#[test]
fn a_backend_that_cannot_sum_over_parts_says_so() {
    let parts: [(&dyn Backend, f32); 2] = [(&ReferenceBackend, 1.0), (&Alone, 1.0)];
    let backend = TensorBackend::new(&parts).unwrap().with_limit(Duration::from_mins(1));
    let error = backend.compile(attention(8, 4, 16, DType::F32), &mut |_| ()).err().unwrap();
    assert!(error.to_string().contains("no sums over parts"), "{error}");
}
