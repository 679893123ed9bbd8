//! Selection of the largest logits on the device: equal to a selection from whole rows.

use rf_graph::{
    Backend, BackendError, Batch, Candidate, Executor, GraphBuilder, KvLayout, KvType, Output,
    Program, Span, Weight,
};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_kv::PageId;

const WIDTH: usize = 5003;

const PAGES: [PageId; 1] = [PageId::new(0)];

/// A program whose output for token `t` has equal values, for token 2 infinities and a NaN, which
/// weights cannot have, and for token 4 its largest values in a few threads of a workgroup.
fn program() -> Program {
    /// Elements times this exceed f32.
    const LARGE: f32 = 1e10;
    const SCALE: f32 = 1e30;
    let mut g = GraphBuilder::new();
    let special = |id: usize| match id {
        17 | 99 | 4000 => Some(LARGE),
        100..200 => Some(-LARGE),
        _ => None,
    };
    let value = |i: usize| {
        let (row, id) = (i / WIDTH, i % WIDTH);
        // Many values occur several times.
        let plain = ((i * 7919 + row) % 1009) as f32 - 500.0;
        match row {
            2 => special(id).unwrap_or(plain),
            4 if id % WIDTH.div_ceil(2) % 1024 < 300 => plain + 2000.0,
            _ => plain,
        }
    };
    // ∞ − ∞ is NaN.
    let other = |i: usize| if i == 2 * WIDTH + 99 { -LARGE } else { 0.0 };
    let mut rows = |values: Vec<f32>| {
        let table = g.weight(Weight::f32("table", 5, WIDTH, values));
        g.embed(table, SCALE)
    };
    let x = rows((0..5 * WIDTH).map(value).collect());
    let y = rows((0..5 * WIDTH).map(other).collect());
    let sum = g.add(x, y);
    let (graph, weights) = g.finish(sum);
    let kv = KvLayout::new(vec![], 16, 1, KvType::F16);
    Program { graph, weights, kv, max_batch_tokens: 16, max_output_rows: 16 }
}

fn largest(row: &[f32], k: usize) -> Vec<Candidate> {
    let logit = |x: f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
    let mut all: Vec<_> =
        (0..).zip(row).map(|(id, x)| Candidate { id, logit: logit(*x) }).collect();
    all.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
    all.truncate(k);
    all
}

#[test]
fn the_device_selects_the_largest_logits_of_the_whole_row() {
    let backend = match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => backend,
        Err(error) => return rf_testing::skip!("{error}"),
    };
    let mut executor = backend.compile(program(), &mut |_| ()).unwrap();
    let run = |executor: &mut dyn Executor, ids: &[u32], k: usize| {
        let spans = [Span { tokens: 0..ids.len(), pages: &PAGES, ..Span::default() }];
        let batch = Batch { ids, spans: &spans, output_rows: &[], input: None };
        let mut rows = vec![0.0; ids.len() * WIDTH];
        executor.forward(&batch, Output::rows(&mut rows)).unwrap();
        let mut best = vec![Candidate::default(); ids.len() * k];
        executor.forward(&batch, Output::top_k(k, &mut best)).unwrap();
        let is_nan = |row: &[f32]| row.iter().filter(|x| x.is_nan()).count();
        let tokens = ids.iter().zip(rows.chunks(WIDTH));
        assert!(tokens.clone().all(|(id, row)| is_nan(row) == usize::from(*id == 2)));
        let expected: Vec<_> = rows.chunks(WIDTH).flat_map(|row| largest(row, k)).collect();
        assert_eq!(best, expected, "{k} of {ids:?}");
    };
    for k in [1, 2, 40, 256] {
        run(executor.as_mut(), &[1], k);
        run(executor.as_mut(), &[2], k);
        run(executor.as_mut(), &[4], k);
        run(executor.as_mut(), &[3, 2, 1, 0, 0, 1, 2, 3, 1, 2], k);
    }

    let spans = [Span { tokens: 0..1, past_tokens: 0, pages: &PAGES, ..Span::default() }];
    let batch = Batch { ids: &[1], spans: &spans, output_rows: &[], input: None };
    for (k, room) in [(0, 0), (257, 257), (4, 3)] {
        let mut best = vec![Candidate::default(); room];
        let error = executor.forward(&batch, Output::top_k(k, &mut best)).unwrap_err();
        assert!(matches!(error, BackendError::InvalidBatch(_)), "{error}");
    }
}
