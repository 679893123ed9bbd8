//! Checkpoints of recurrent states in the prefix cache.

use std::ops::ControlFlow;

use rf_engine::EngineOptions;
use rf_engine::scheduler::Scheduler;
use rf_graph::Backend;

use crate::recurrent::shapes::{LFM2, QWEN35, SHAPES, threads_of_cpu};
use crate::support::{ENGINE, SCHEDULER, alone, ask, end, greedy, prompt};

#[test]
fn a_later_turn_goes_on_from_the_nearest_checkpoint() {
    check_turns(&threads_of_cpu(2));
}

#[test]
fn a_session_goes_on_from_a_checkpoint_where_it_is_cut() {
    check_a_session(&threads_of_cpu(2));
}

/// Options with states for some sequences and for checkpoints.
pub(crate) fn with_checkpoints(checkpoints: usize) -> EngineOptions {
    let kv_tokens = Some(64 * 512);
    ENGINE
        .with_context_tokens(Some(512))
        .with_kv_tokens(kv_tokens)
        .with_sequences(3)
        .with_checkpoints(checkpoints)
}

pub(crate) fn check_turns(backend: &dyn Backend) {
    for shape in SHAPES {
        let mut alone_engine = shape.engine_on(backend, with_checkpoints(0));
        let engine = shape.engine_on(backend, with_checkpoints(8));
        let scheduler = Scheduler::start(engine, SCHEDULER).unwrap();
        let handle = scheduler.handle();
        let mut asks = |text: &[u32], cached_tokens: usize| {
            let answer = ask(&handle, text, &greedy(20));
            let expected = alone(&mut alone_engine, text, &greedy(20)).ids;
            assert_eq!(answer.ids, expected, "{}", shape.architecture);
            assert_eq!(answer.timings.cached_tokens, cached_tokens, "{}", shape.architecture);
            answer.ids
        };
        let first = prompt(1, 100);
        let answer = asks(&first, 0);
        // The last token of the answer is not computed, so its last full page ends at 112.
        let second = [&first[..], &answer, &prompt(2, 30)].concat();
        let answer = asks(&second, 112);
        asks(&[&second[..], &answer, &prompt(3, 11)].concat(), 160);
        // Another last message, and another answer.
        asks(&[&first[..], &prompt(4, 25)].concat(), 96);
        asks(&second, 144);
        // Texts that begin alike: the second one shows where, and the third one begins there.
        let system = prompt(5, 60);
        let text = |seed| [&system[..], &prompt(seed, 40)].concat();
        asks(&text(6), 0);
        asks(&text(7), 0);
        asks(&text(8), 48);
        end(scheduler);
    }
}

pub(crate) fn check_a_session(backend: &dyn Backend) {
    for shape in SHAPES {
        let mut alone_engine = shape.engine_on(backend, with_checkpoints(0));
        let options = with_checkpoints(3).with_sequences(1);
        let mut engine = shape.engine_on(backend, options);
        let mut session = engine.session();
        let text = prompt(1, 100);
        for (len, more, cached_tokens) in [(100, 0, 0), (100, 9, 96), (98, 5, 96), (40, 0, 0)] {
            let text = [&text[..len], &prompt(9, more)].concat();
            let outcome = engine
                .generate(&mut session, &text, &greedy(8), &mut |_| ControlFlow::Continue(()))
                .unwrap();
            assert_eq!(outcome.timings.cached_tokens, cached_tokens, "{}", shape.architecture);
            assert_eq!(outcome.ids, alone(&mut alone_engine, &text, &greedy(8)).ids);
        }
    }
}

#[test]
fn a_turn_after_a_long_history_computes_what_is_new_and_at_most_a_page() {
    let options = with_checkpoints(8).with_context_tokens(Some(4200)).with_batch_tokens(512);
    let mut engine = QWEN35.engine(2, options);
    let history = prompt(1, 4000);
    let mut session = engine.session();
    let go_on = &mut |_: &str| ControlFlow::Continue(());
    engine.generate(&mut session, &history, &greedy(1), go_on).unwrap();
    // Another conversation in between, and a turn that begins like the first one.
    session.reset();
    engine.generate(&mut session, &prompt(2, 300), &greedy(1), go_on).unwrap();
    let next = [&history[..], &prompt(3, 40)].concat();
    let outcome = engine.generate(&mut session, &next, &greedy(1), go_on).unwrap();
    let computed = outcome.timings.prompt_tokens;
    assert!((40..=40 + 16).contains(&computed), "{computed}");
}

#[test]
fn a_prompt_is_computed_again_without_checkpoints() {
    let scheduler = Scheduler::start(LFM2.engine(2, ENGINE.with_sequences(4)), SCHEDULER).unwrap();
    let handle = scheduler.handle();
    let ids = prompt(4, 70);
    let first = ask(&handle, &ids, &greedy(10));
    let second = ask(&handle, &ids, &greedy(10));
    assert_eq!(first.ids, second.ids);
    assert_eq!(second.timings.cached_tokens, 0);
    end(scheduler);
}
