//! Tests of the reference backend: its checks of batches, copies of pages, fused ops.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_graph::{
    Attention, Backend, BackendError, Batch, Fusions, GraphBuilder, KvLayer, KvLayout, KvType,
    Output, Program, Rope, RopeStyle, Span, Weight, fuse,
};
use rf_kv::{CopyPage, PageGroup, PageId};
use rf_oracle::ReferenceBackend;

const PAGES: [PageId; 4] = [PageId::new(0), PageId::new(1), PageId::new(2), PageId::new(3)];

fn span(tokens: std::ops::Range<usize>, past_tokens: usize, pages: &[PageId]) -> Span<'_> {
    Span { tokens, past_tokens, pages, ..Span::default() }
}

fn copy(from: PageId, to: PageId) -> CopyPage {
    CopyPage { group: PageGroup::Full, from, to }
}

/// A program of attention with head norms and a cache of two pages. With `adds_q` the output
/// includes q from before its norm.
fn program(fusions: Fusions, adds_q: bool) -> Program {
    let mut g = GraphBuilder::new();
    let mut table = |factor: f32| {
        let values: Vec<f32> = (0..80).map(|i| factor * (i % 7) as f32 - 1.0).collect();
        g.weight(Weight::f32("table", 10, 8, values))
    };
    let tables = [table(0.5), table(0.3), table(0.7)];
    let [q, k, v] = tables.map(|table| g.embed(table, 1.0));
    let norm = g.weight(Weight::f32("norm", 1, 8, [1.0, 1.5, 0.5, 1.0, 2.0, 1.0, 1.0, 0.25]));
    let rope = Rope {
        style: RopeStyle::Normal,
        head_dim: 8,
        inv_freq: [1.0, 0.1].into(),
        magnitude: 1.0,
        axes: None,
    };
    let (q_normalised, k) = (g.rms_norm(q, norm, 1e-5), g.rms_norm(k, norm, 1e-5));
    let (q_rotated, k) = (g.rope(q_normalised, &rope), g.rope(k, &rope));
    let attention = Attention { scale: 0.5, ..Attention::new(0, 1, 1, 8) };
    let mut y = g.attention(q_rotated, k, v, &attention);
    if adds_q {
        y = g.add(y, q);
    }
    let (graph, weights) = g.finish(y);
    let kv = KvLayout::new(vec![KvLayer::new(1, 8)], 16, 2, KvType::F32);
    Program { graph: fuse(graph, fusions), weights, kv, max_batch_tokens: 4, max_output_rows: 4 }
}

fn outputs(program: Program, ids: &[u32]) -> Vec<f32> {
    let mut executor = ReferenceBackend.compile(program, &mut |_| ()).unwrap();
    let mut out = vec![0.0; ids.len() * 8];
    let spans = [span(0..ids.len(), 0, &PAGES[..1])];
    executor
        .forward(
            &Batch { ids, spans: &spans, output_rows: &[], input: None },
            Output::rows(&mut out),
        )
        .unwrap();
    out
}

#[test]
fn the_fused_rope_does_not_change_its_inputs() {
    let fused = program(Fusions::ALL, true);
    let has_norms = |op: &rf_graph::Op| {
        let heads = match op {
            rf_graph::Op::Attention { append, .. } => append.as_ref(),
            _ => None,
        };
        heads.is_some_and(|heads| heads.qk_norm.is_some())
    };
    assert!(fused.graph.ops().iter().any(has_norms));
    assert_eq!(outputs(fused, &[1, 2, 3]), outputs(program(Fusions::NONE, true), &[1, 2, 3]));
}

#[test]
fn the_reference_rejects_invalid_calls_and_stays_usable() {
    let expected = outputs(program(Fusions::NONE, false), &[1, 2]);
    let mut executor =
        ReferenceBackend.compile(program(Fusions::NONE, false), &mut |_| ()).unwrap();
    let good = [span(0..2, 0, &PAGES[..1])];
    let mut out = vec![0.0; 16];
    for (ids, spans, room) in [
        (&[1, 10][..], &good[..], 16),
        (&[1; 5], &[span(0..5, 0, &PAGES[..1])], 40),
        (&[1, 2], &[span(0..2, 0, &PAGES[3..])], 16),
        (&[1, 2], &good, 15),
        (&[1, 2], &good, 17),
    ] {
        let batch = Batch { ids, spans, output_rows: &[], input: None };
        let error = executor.forward(&batch, Output::rows(&mut vec![0.0; room])).unwrap_err();
        assert!(matches!(error, BackendError::InvalidBatch(_)), "{error}");
    }
    let error = executor.copy_pages(&[copy(PAGES[0], PAGES[2])]).unwrap_err();
    assert!(matches!(error, BackendError::InvalidBatch(_)), "{error}");
    executor
        .forward(
            &Batch { ids: &[1, 2], spans: &good, output_rows: &[], input: None },
            Output::rows(&mut out),
        )
        .unwrap();
    assert_eq!(out, expected);
}

#[test]
fn a_copied_page_holds_the_same_keys_and_values() {
    let mut executor = ReferenceBackend.compile(program(Fusions::ALL, false), &mut |_| ()).unwrap();
    let mut forward = |ids: &[u32], past, pages: &[PageId], copies: &[CopyPage]| {
        executor.copy_pages(copies).unwrap();
        let mut out = vec![0.0; ids.len() * 8];
        let spans = [span(0..ids.len(), past, pages)];
        executor
            .forward(
                &Batch { ids, spans: &spans, output_rows: &[], input: None },
                Output::rows(&mut out),
            )
            .unwrap();
        out
    };
    forward(&[1, 2, 3], 0, &PAGES[..1], &[]);
    let original = forward(&[4], 3, &PAGES[..1], &[]);
    let copied = forward(&[4], 3, &PAGES[1..2], &[copy(PAGES[0], PAGES[1])]);
    assert_eq!(original, copied);
}
