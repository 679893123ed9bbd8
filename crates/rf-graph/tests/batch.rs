//! Tests of batch checks: an invalid batch is an error, and the executor stays usable.

use rf_graph::{BackendError, Batch, BatchLimits, Input, Media, Span};
use rf_kv::{PageCounts, PageId};

const PAGES: [PageId; 4] = [PageId::new(0), PageId::new(1), PageId::new(2), PageId::new(3)];

fn limits(input_width: Option<usize>) -> BatchLimits {
    BatchLimits {
        vocab_size: 10,
        media_width: Some(3),
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
    Span { tokens, past_tokens, pages, ..Span::default() }
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

#[test]
fn positions_and_media_are_checked_against_the_tokens_of_their_span() {
    let rejection = |positions, media: Option<&[f32]>| {
        let media = media.map(|rows| Media { rows, non_causal: false });
        let spans = [Span { positions, media, ..span(0..2, 5, &PAGES) }];
        rejection(&[1, 2], &spans, &[]).unwrap_or_default()
    };
    assert_eq!(rejection(Some(&[[5, 6, 7, 0], [5, 0, 1, 2]]), Some(&[0.0; 6])), "");
    // A row may have more elements than this part of a program reads.
    assert_eq!(rejection(None, Some(&[0.0; 12])), "");
    assert_eq!(rejection(Some(&[[0; 4]]), None), "1 positions of 2 tokens");
    let far = rejection(Some(&[[0; 4], [0, 8, 0, 0]]), None);
    assert_eq!(far, "position 8 in a sequence of 7 tokens");
    for rows in [&[0.0; 4][..], &[0.0; 7], &[]] {
        let rejection = rejection(None, Some(rows));
        assert!(rejection.contains("values of media, expected 2 rows of 3"), "{rejection}");
    }
    let limits = BatchLimits { media_width: None, ..limits(None) };
    let media = Some(Media { rows: &[0.0; 3], non_causal: false });
    let spans = [Span { media, ..span(0..1, 0, &PAGES) }];
    let batch = Batch { ids: &[1], spans: &spans, output_rows: &[], input: None };
    let error = batch.check(&limits, 0).unwrap_err().to_string();
    assert!(error.contains("media, which the program does not take"), "{error}");
}
