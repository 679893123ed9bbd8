//! What a run says of itself: costs of ops, timelines, pages.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::collections::BTreeSet;
use std::time::Instant;

use rf_engine::{Engine, EngineOptions, Outputs, SequenceInput};
use rf_gguf::TensorInfo;
use rf_graph::TrackKind;

const TOKENS: usize = 40;

/// The demo model of rf-cli on two threads, with batches of 16 tokens.
fn engine() -> Engine {
    let options = EngineOptions::default()
        .with_context_tokens(Some(96))
        .with_batch_tokens(16)
        .with_page_tokens(16);
    rf_testing::engine::load(&rf_testing::demo_model(), 2, options)
}

/// A prompt in three batches.
fn run(engine: &mut Engine) {
    let ids: Vec<u32> = (0..TOKENS as u32).map(|i| 7 + i).collect();
    let mut session = engine.session();
    let feed = SequenceInput { session: &mut session, ids: &ids, outputs: Outputs::Last };
    engine.forward(&mut [feed]).unwrap();
}

#[test]
fn a_timeline_has_what_each_thread_did_in_order() {
    let mut engine = engine();
    assert!(!engine.record_timeline(1000), "no times are taken");
    assert!(engine.profile(true) && engine.record_timeline(1 << 20));
    let before = Instant::now();
    run(&mut engine);
    let after = Instant::now();

    let timelines = engine.timelines();
    let [timeline] = timelines.as_slice() else { panic!("{timelines:?}") };
    assert!(timeline.backend.starts_with("CPU (") && timeline.dropped_batches == 0);
    assert_eq!(timeline.tracks.len(), 2);
    for track in &timeline.tracks {
        assert_eq!(track.kind, TrackKind::Ops);
        for pair in track.events.windows(2) {
            assert!(pair[0].start + pair[0].duration <= pair[1].start, "{pair:?}");
        }
    }
    // A thread has no event of an op of which it got nothing, but somebody ran each op.
    let mut events: Vec<_> = timeline.tracks.iter().flat_map(|track| &track.events).collect();
    events.sort_by_key(|event| event.start);
    assert!(events.iter().all(|e| e.start >= before && e.start + e.duration <= after));
    let (first, last) = (events[0], events[events.len() - 1]);
    assert_eq!((first.name, first.batch, last.batch), ("embed", 0, 2));
    let mut ran: Vec<_> = events.iter().map(|event| (event.batch, event.name)).collect();
    ran.sort_unstable();
    ran.dedup();
    let names: BTreeSet<_> = engine.summaries()[0].ops.keys().copied().collect();
    assert_eq!(ran.iter().map(|(_, name)| *name).collect::<BTreeSet<_>>(), names);
    let details: Vec<&str> = events.iter().map(|event| &*event.detail).collect();
    assert!(details.contains(&"KV layer 1") && details.iter().any(|d| d.contains("blk.0.attn_q")));
    assert!(engine.profile(false) && engine.timelines().is_empty());
}

#[test]
fn a_full_timeline_keeps_the_first_batches_and_counts_the_others() {
    let mut engine = engine();
    assert!(engine.profile(true) && engine.record_timeline(1));
    run(&mut engine);
    let timeline = &engine.timelines()[0];
    assert_eq!(timeline.dropped_batches, 3);
    assert!(timeline.tracks.iter().all(|track| track.events.is_empty()));

    // Each of two threads has room for one event per op and its operand: at least one batch.
    let ops = engine.summaries()[0].op_count() as usize / 3;
    assert!(engine.record_timeline(2 * 2 * ops));
    run(&mut engine);
    let timeline = &engine.timelines()[0];
    let batches = timeline.tracks.iter().flat_map(|track| &track.events).map(|event| event.batch);
    let kept: BTreeSet<_> = batches.collect();
    assert_eq!(kept.len() as u64, 3 - timeline.dropped_batches);
    assert!(!kept.is_empty());
}

#[test]
fn ops_say_what_they_had_to_move_and_compute() {
    let mut engine = engine();
    assert!(engine.profile(true));
    run(&mut engine);
    let summary = &engine.summaries()[0];
    let operations: u64 = summary.ops.values().map(|op| op.cost.operations()).sum();
    let bytes: u64 = summary.ops.values().map(|op| op.cost.bytes).sum();
    // Two for each weight and token, but for the embedding, which is the output's matrix of the
    // last token alone.
    let config = engine.model().config();
    let embedding = (config.vocab_size * config.hidden_size) as u64;
    let tensors = engine.model().gguf().tensors();
    let weights: u64 = tensors.iter().map(TensorInfo::elements).sum();
    let products = 2 * (weights - embedding) * TOKENS as u64 + 2 * embedding;
    let more = operations as f64 / products as f64;
    assert!((1.0..1.2).contains(&more), "{more}: attention and norms are little beside products");
    // Each of three batches reads all weights but the embedding, the last one the output's too.
    let weights_bytes = engine.memory_need().held.weights_bytes;
    assert!(bytes > 2 * weights_bytes, "{bytes} {weights_bytes}");
}

#[test]
fn pages_of_the_cache_are_counted() {
    let mut engine = engine();
    run(&mut engine);
    let stats = engine.kv_stats();
    assert_eq!((stats.total_pages, stats.used_pages, stats.allocations), (6, 0, 3));
    // 8 layers of 2 heads of 64, keys and values, in f16.
    assert_eq!(engine.memory().kv_bytes, 8 * 2 * 2 * 64 * 2 * 96);
    assert_eq!(engine.memory_need().held, engine.memory());
}
