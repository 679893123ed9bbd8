//! Tests of batch checks: an invalid batch is an error, and the executor stays usable.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_graph::{
    Attention, Backend, BackendError, Batch, BatchLimits, Fusions, GraphBuilder, Input, KvLayer,
    KvLayout, KvType, Output, Program, ReferenceBackend, Rope, RopeStyle, Span, Weight, fuse,
};
use rf_kv::{CopyPage, PageCounts, PageGroup, PageId};

const PAGES: [PageId; 4] = [PageId::new(0), PageId::new(1), PageId::new(2), PageId::new(3)];

fn limits(input_width: Option<usize>) -> BatchLimits {
    BatchLimits {
        vocab_size: 10,
        input_widths: vec![input_width],
        max_batch_tokens: 20,
        max_output_rows: 3,
        page_tokens: 16,
        num_pages: PageCounts::full(4),
    }
}

/// The reason why the limits reject a batch; `None` if the batch is valid.
fn rejection(ids: &[u32], spans: &[Span<'_>], output_rows: &[usize]) -> Option<String> {
    match (Batch { ids, spans, output_rows, input: None }).check(&limits(None), 0) {
        Ok(()) => None,
        Err(BackendError::InvalidBatch(what)) => Some(what),
        Err(other) => panic!("{other}"),
    }
}

fn span(tokens: std::ops::Range<usize>, past_tokens: usize, pages: &[PageId]) -> Span<'_> {
    Span { tokens, past_tokens, pages, window_pages: &[], state: None }
}

fn copy(from: PageId, to: PageId) -> CopyPage {
    CopyPage { group: PageGroup::Full, from, to }
}

#[test]
fn window_pages_are_checked_where_a_program_has_them() {
    let num_pages = PageCounts { window: 2, ..PageCounts::full(4) };
    let limits = BatchLimits { num_pages, ..limits(None) };
    let rejection = |spans: &[Span<'_>]| {
        let ids = [0; 2];
        let batch = Batch { ids: &ids[..spans.len()], spans, output_rows: &[], input: None };
        batch.check(&limits, 0).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let with = |tokens, window_pages| Span { window_pages, ..span(tokens, 16, &PAGES[..2]) };
    assert_eq!(rejection(&[with(0..1, &PAGES[..2])]), "");
    assert!(rejection(&[with(0..1, &PAGES[..1])]).contains("1 tokens after 16 in 16 slots"));
    assert!(rejection(&[with(0..1, &PAGES[1..3])]).contains("page 2 of 2"));
    // A page of one group is not that of the other, and pages that are not written may be equal.
    let (same, swapped) = ([PAGES[1]; 2], [PAGES[1], PAGES[0]]);
    let other = Span { pages: &PAGES[2..], ..with(1..2, &swapped) };
    assert_eq!(rejection(&[with(0..1, &same), other.clone()]), "");
    let twice = rejection(&[with(0..1, &swapped), other]);
    assert!(twice.contains("page 0 would be written twice"), "{twice}");
}

#[test]
fn each_sequence_has_states_of_its_own_where_a_program_has_states() {
    let num_pages = PageCounts { states: 2, ..PageCounts::full(4) };
    let limits = BatchLimits { num_pages, ..limits(None) };
    let rejection = |states: [Option<PageId>; 2]| {
        let [a, b] = states;
        let spans = [
            Span { state: a, ..span(0..1, 0, &PAGES[..1]) },
            Span { state: b, ..span(1..2, 0, &PAGES[1..]) },
        ];
        let batch = Batch { ids: &[1, 2], spans: &spans, output_rows: &[], input: None };
        batch.check(&limits, 0).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let [first, second, third] = [0, 1, 2].map(|page| Some(PAGES[page]));
    assert_eq!(rejection([second, first]), "");
    assert!(rejection([first, None]).contains("without recurrent states"));
    assert!(rejection([first, first]).contains("state 0 would be written twice"));
    assert!(rejection([third, first]).contains("state 2 of 2"));
}

#[test]
fn batches_at_the_limits_are_valid() {
    assert_eq!(rejection(&[9; 20], &[span(0..20, 12, &PAGES[..2])], &[0, 1, 19]), None);
    assert_eq!(rejection(&[0], &[span(0..1, 63, &PAGES)], &[]), None);
    // Two sequences share a page that no span writes.
    let (a, b) = ([PAGES[0], PAGES[1]], [PAGES[0], PAGES[2]]);
    assert_eq!(rejection(&[1, 2], &[span(0..1, 16, &a), span(1..2, 20, &b)], &[1]), None);
}

#[test]
fn a_batch_has_input_if_and_only_if_the_program_does() {
    let spans = [span(0..2, 0, &PAGES)];
    let rejection = |input: Option<&[f32]>, input_width| {
        let input = input.map(Input::Rows);
        let batch = Batch { ids: &[1, 2], spans: &spans, output_rows: &[], input };
        batch.check(&limits(input_width), 0).err().map(|error| error.to_string())
    };
    let rows = [0.0; 6];
    assert_eq!(rejection(Some(&rows), Some(3)), None);
    for (input, width) in [(Some(&rows[..]), Some(4)), (None, Some(3)), (Some(&rows), None)] {
        let rejection = rejection(input, width).unwrap();
        assert!(rejection.contains("values of input"), "{rejection}");
    }
}

#[test]
fn each_invalid_batch_is_rejected_with_its_reason() {
    let one = [span(0..1, 0, &PAGES)];
    let cases: [(&str, Option<String>); 14] = [
        ("0 tokens", rejection(&[], &[], &[])),
        ("21 tokens", rejection(&[0; 21], &[span(0..21, 0, &PAGES)], &[])),
        ("4 output rows", rejection(&[0; 5], &[span(0..5, 0, &PAGES)], &[0, 1, 2, 3])),
        ("token id 10", rejection(&[10], &one, &[])),
        ("token id 4294967295", rejection(&[u32::MAX], &one, &[])),
        ("not ascending", rejection(&[0], &one, &[1])),
        ("not ascending", rejection(&[0; 3], &[span(0..3, 0, &PAGES)], &[2, 1])),
        ("not ascending", rejection(&[0; 3], &[span(0..3, 0, &PAGES)], &[1, 1])),
        ("spans cover 1 of 2", rejection(&[0; 2], &one, &[])),
        (
            "where 1 was next",
            rejection(&[0; 3], &[span(0..1, 0, &PAGES), span(2..3, 0, &PAGES)], &[]),
        ),
        ("where 1 was next", rejection(&[0], &[span(0..1, 0, &PAGES), span(1..1, 0, &PAGES)], &[])),
        ("17 tokens after 0 in 16 slots", rejection(&[0; 17], &[span(0..17, 0, &PAGES[..1])], &[])),
        ("page 4 of 4", rejection(&[0], &[span(0..1, 0, &[PageId::new(4)])], &[])),
        ("slots", rejection(&[0], &[span(0..1, usize::MAX, &PAGES)], &[])),
    ];
    for (expected, rejection) in cases {
        let rejection = rejection.unwrap_or_default();
        assert!(rejection.contains(expected), "{expected}: {rejection}");
    }
}

#[test]
fn a_page_written_by_two_spans_is_rejected() {
    let spans = [span(0..1, 0, &PAGES[..1]), span(1..2, 1, &PAGES[..1])];
    assert!(rejection(&[0, 0], &spans, &[]).unwrap().contains("page 0 would be written twice"));
    let twice = [PAGES[1], PAGES[1]];
    let rejection = rejection(&[0; 20], &[span(0..20, 0, &twice)], &[]);
    assert!(rejection.unwrap().contains("page 1 would be written twice"));
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
    let rope =
        Rope { style: RopeStyle::Normal, head_dim: 8, inv_freq: [1.0, 0.1].into(), magnitude: 1.0 };
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
