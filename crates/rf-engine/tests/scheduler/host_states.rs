//! Checkpoints of recurrent states in host memory, where the device has room for few of them.

use rf_engine::scheduler::Scheduler;
use rf_engine::{Engine, EngineOptions, Speculation};
use rf_graph::Backend;
use rf_oracle::ReferenceBackend;

use crate::drafts::fixed;
use crate::recurrent::shapes::{LFM2, QWEN35, SHAPES, Shape, WITH_MTP, threads_of_cpu};
use crate::support::{ENGINE, SCHEDULER, alone, ask, end, greedy, prompt};

/// Pages for one sequence and a checkpoint, and room for more in host memory.
const FEW: EngineOptions = ENGINE
    .with_context_tokens(Some(512))
    .with_kv_tokens(Some(64 * 512))
    .with_sequences(1)
    .with_checkpoints(1)
    .with_host_cache_bytes(1 << 30)
    .with_always_reads_back(true);

/// Three conversations in turns, each of which the others drive out of the device. Returns the
/// cached tokens of each turn, and the statistics of the states.
fn turns(shape: &Shape, engine: Engine, drafts: Option<Speculation>) -> (Vec<usize>, u64) {
    let plain = FEW.with_checkpoints(0).with_host_cache_bytes(0).with_mtp(false);
    let mut alone_engine = shape.engine(2, plain);
    let scheduler = Scheduler::start_with_drafts(engine, drafts, SCHEDULER).unwrap();
    let handle = scheduler.handle();
    let mut texts: Vec<Vec<u32>> = (1..4).map(|seed| prompt(seed, 100)).collect();
    let (mut cached, mut computed) = (Vec::new(), 0);
    for turn in 0..3 {
        for text in &mut texts {
            let answer = ask(&handle, text, &greedy(20));
            let expected = alone(&mut alone_engine, text, &greedy(20)).ids;
            assert_eq!(answer.ids, expected, "{} in turn {turn}", shape.architecture);
            cached.push(answer.timings.cached_tokens);
            computed += answer.timings.prompt_tokens;
            text.extend(&answer.ids);
            text.extend(prompt(7 + turn, 30));
        }
    }
    let stats = end(scheduler);
    assert_eq!(stats.prompt_tokens, (cached.iter().sum::<usize>() + computed) as u64);
    (cached, stats.host.loads)
}

/// The tokens that each turn finds: none at first, and then those up to the last page boundary of
/// the answer before.
const FOUND: [usize; 9] = [0, 0, 0, 112, 112, 112, 160, 160, 160];

fn check(backend: &dyn Backend) {
    for shape in SHAPES {
        let engine = |options| shape.engine_on(backend, options);
        let (cached, loads) = turns(&shape, engine(FEW), None);
        assert_eq!((&cached[..], loads), (&FOUND[..], 6), "{}", shape.architecture);
    }
}

#[test]
fn a_turn_goes_on_from_states_that_only_host_memory_has() {
    check(&threads_of_cpu(2));
    // Without host memory, the others have driven it out. Without any pages for checkpoints, all
    // of them are in host memory.
    let engine = |options| QWEN35.engine(2, options);
    let without = FEW.with_host_cache_bytes(0);
    assert_eq!(turns(&QWEN35, engine(without), None), (vec![0; 9], 0));
    let none = FEW.with_checkpoints(0);
    assert_eq!(turns(&QWEN35, engine(none), None), (FOUND.to_vec(), 6));
    // With pages for all, none of them leaves the device.
    let all = FEW.with_checkpoints(64);
    assert_eq!(turns(&QWEN35, engine(all), None), (FOUND.to_vec(), 0));
}

/// One test for the GPU: while a stream captures, no other thread may wait for the device.
pub(crate) fn check_on_gpu(backend: &dyn Backend) {
    check(backend);
}

#[test]
fn drafts_go_on_from_stored_states_too() {
    let options = FEW.with_speculates(true);
    let engine = QWEN35.engine(2, options);
    let speculation = Speculation::ngram(&engine, fixed(3)).unwrap();
    let (cached, loads) = turns(&QWEN35, engine, Some(speculation));
    assert!(cached[3..].iter().all(|tokens| *tokens >= 96) && loads > 0, "{cached:?}");
    let shape = &WITH_MTP[2];
    let engine = shape.engine(2, options.with_mtp(true));
    let speculation = Speculation::mtp(&engine, fixed(3)).unwrap();
    let (cached, loads) = turns(shape, engine, Some(speculation));
    assert!(cached[3..].iter().all(|tokens| *tokens >= 96) && loads > 0, "{cached:?}");
}

#[test]
fn the_least_recently_used_states_make_room_within_the_budget() {
    let state_bytes = QWEN35.engine(1, ENGINE).memory().states_bytes / 64;
    // Two states fit, and a part of a third one.
    let host_cache_bytes = 2 * state_bytes + state_bytes / 2;
    let options = FEW.with_checkpoints(0).with_host_cache_bytes(host_cache_bytes);
    let mut engine = QWEN35.engine(2, options);
    let ask = |engine: &mut Engine, seed| {
        // The prompt ends at a page boundary but for one token, so that one state is kept.
        alone(engine, &prompt(seed, 97), &greedy(2)).timings.cached_tokens
    };
    assert_eq!([1, 2, 1, 2].map(|seed| ask(&mut engine, seed)), [0, 0, 96, 96]);
    assert_eq!([3, 2, 1].map(|seed| ask(&mut engine, seed)), [0, 96, 0]);
    let stats = engine.prefix_cache_stats().host;
    let bytes = stats.bytes;
    assert_eq!((stats.states, stats.loads), (2, 3));
    assert!(bytes <= host_cache_bytes && bytes >= 2 * (state_bytes - 64), "{bytes}");
}

#[test]
fn a_backend_that_reads_no_pages_has_no_host_states() {
    let mut engine = LFM2.engine_on(&ReferenceBackend, FEW.with_checkpoints(0));
    let text = prompt(3, 40);
    let first = alone(&mut engine, &text, &greedy(5));
    alone(&mut engine, &prompt(4, 40), &greedy(5));
    let second = alone(&mut engine, &text, &greedy(5));
    assert_eq!(first.ids, second.ids);
    let stats = engine.prefix_cache_stats().host;
    assert_eq!((second.timings.cached_tokens, stats.pages, stats.bytes), (0, 0, 0));
}
