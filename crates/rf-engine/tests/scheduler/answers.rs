//! The answers of concurrent requests are those of each one alone.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::channel;

use rf_engine::scheduler::{Event, Request, Scheduler, SchedulerOptions, SchedulerStats};
use rf_engine::{Engine, EngineOptions, GenerateOptions, StopReason};
use rf_tokenizer::EncodeOptions;

use crate::support::{
    ENGINE, PAGE_TOKENS, SCHEDULER, alone, ask, data, demo, end, engine, greedy, prompt, sampled,
    start, submit, tiny,
};

/// Prompts of 1 to `4 + 2 * count` tokens. Every third one begins like the others of its kind.
fn prompts(count: u32) -> Vec<Vec<u32>> {
    let make = |i: u32| {
        let mut ids = if i.is_multiple_of(3) { prompt(7, 40) } else { Vec::new() };
        ids.extend(prompt(i, 1 + i * 2));
        ids.truncate(130);
        ids
    };
    (0..count).map(make).collect()
}

/// Requests for up to `most_tokens` tokens.
fn requests(count: u32, most_tokens: usize) -> Vec<(Vec<u32>, GenerateOptions)> {
    let options = |i: usize| match i % 4 {
        0 => sampled(i as u64, 1 + i * 7 % most_tokens),
        _ => greedy(1 + i * 7 % most_tokens),
    };
    prompts(count).into_iter().enumerate().map(|(i, ids)| (ids, options(i))).collect()
}

/// Serves all requests twice, while others are cancelled, and compares the answers. Returns the
/// statistics, in which 32 or more requests are cancelled.
fn check(
    most_tokens: usize,
    engine_options: EngineOptions,
    options: SchedulerOptions,
) -> SchedulerStats {
    let path = &tiny();
    let mut alone_engine = engine(path, ENGINE);
    let requests = requests(64, most_tokens);
    let expected: Vec<Vec<u32>> =
        requests.iter().map(|(ids, options)| alone(&mut alone_engine, ids, options).ids).collect();
    let scheduler = Scheduler::start(engine(path, engine_options), options).unwrap();
    let handle = scheduler.handle();
    for round in 0..2 {
        let (mut running, mut cancelled) = (Vec::new(), Vec::new());
        for (index, (ids, options)) in requests.iter().enumerate() {
            running.push(submit(&handle, ids, options, |request| {
                request.priority = (index % 5 == 0).into();
            }));
            if index % 4 == 1 {
                cancelled.push(submit(&handle, ids, &greedy(100), |_| ()));
                // Another one breaks while it runs.
                let mut events_left = index / 4;
                let sink = move |_| match events_left.checked_sub(1) {
                    Some(left) => {
                        events_left = left;
                        ControlFlow::Continue(())
                    }
                    None => ControlFlow::Break(()),
                };
                handle.submit(Request::new(ids.clone(), greedy(100)), sink).unwrap();
            }
        }
        for (id, events) in cancelled {
            handle.cancel(id);
            let last = events.receiver.iter().last();
            assert!(matches!(last, Some(Event::Finished { .. })), "{last:?}");
        }
        for (index, ((_, events), expected)) in running.into_iter().zip(&expected).enumerate() {
            let answer = events.answer();
            assert_eq!(answer.end, Some(StopReason::Length));
            assert_eq!(answer.ids, *expected, "round {round}, request {index}");
        }
    }
    let stats = end(scheduler);
    assert_eq!(stats.finished.length + stats.finished.cancelled, 128 + 2 * 32);
    assert!(stats.finished.cancelled >= 32, "{stats:?}");
    stats
}

#[test]
fn with_room_for_all() {
    let stats = check(30, ENGINE, SCHEDULER);
    assert_eq!(stats.preemptions, 0);
    assert!(stats.prefix_cache_hits > 64 * 16, "{stats:?}");
    assert!(stats.prefix_cache_hits < stats.prefix_cache_queries, "{stats:?}");
    assert!(stats.steps < 1000, "requests share steps: {stats:?}");
}

#[test]
fn with_too_few_pages() {
    // Room for three of the longest, and far less than 64 sequences need.
    let small = ENGINE.with_kv_tokens(Some(3 * 160));
    let stats = check(90, small, SCHEDULER);
    assert!(stats.preemptions > 0, "{stats:?}");
    let stats = check(90, small, SCHEDULER.with_prefix_cache(false));
    assert!(stats.preemptions > 0, "{stats:?}");
    assert_eq!((stats.prefix_cache_queries, stats.prefix_cache_hits), (0, 0));
}

#[test]
fn with_long_answers_that_preempt_each_other() {
    let mut alone_engine = engine(&tiny(), ENGINE);
    let requests: Vec<_> = prompts(12).into_iter().map(|ids| (ids, greedy(110))).collect();
    let expected: Vec<Vec<u32>> =
        requests.iter().map(|(ids, options)| alone(&mut alone_engine, ids, options).ids).collect();
    // Room for one and a half of the longest.
    let small = ENGINE.with_kv_tokens(Some(240));
    for prefix_cache in [true, false] {
        let scheduler = start(small, SCHEDULER.with_prefix_cache(prefix_cache));
        let handle = scheduler.handle();
        let events: Vec<_> =
            requests.iter().map(|(ids, o)| submit(&handle, ids, o, |_| ()).1).collect();
        for (events, expected) in events.into_iter().zip(&expected) {
            assert_eq!(events.answer().ids, *expected);
        }
        let stats = end(scheduler);
        assert!(stats.preemptions >= 10, "{stats:?}");
        assert_eq!(stats.generation_tokens as usize, expected.concat().len());
    }
}

#[test]
fn with_few_tokens_and_sequences_per_step() {
    let options = SCHEDULER.with_max_num_seqs(5).with_max_batched_tokens(7);
    let stats = check(30, ENGINE, options);
    assert!(stats.step_tokens <= 7 * stats.steps, "{stats:?}");
}

/// Compares 64 requests on a small pool with each one alone.
fn check_model(path: &Path) {
    let mut alone_engine = engine(path, ENGINE);
    let requests = &requests(64, 12);
    // Few windows, too, where a model has them.
    let small = ENGINE.with_kv_tokens(Some(4 * 160)).with_sequences(3);
    let scheduler = Scheduler::start(engine(path, small), SCHEDULER).unwrap();
    let handle = scheduler.handle();
    let events: Vec<_> =
        requests.iter().map(|(ids, options)| submit(&handle, ids, options, |_| ()).1).collect();
    for (events, (ids, options)) in events.into_iter().zip(requests) {
        let expected = alone(&mut alone_engine, ids, options).ids;
        assert_eq!(events.answer().ids, expected, "{}", path.display());
    }
    end(scheduler);
}

/// Windows, two head sizes and shared caches; sinks and experts in MXFP4; experts; latent
/// attention; codebooks.
#[test]
fn of_other_models() {
    for name in ["gemma4_e4b", "gptoss_mxfp4", "glm4moe", "deepseek2_groups"] {
        check_model(&data(name));
    }
    for model in rf_testing::golden_models_in(&rf_testing::golden_folder().join("iq")) {
        check_model(&model.path());
    }
}

/// The models beside the project, in all formats.
#[test]
fn of_all_formats() {
    for folder in ["models", "golden/iq"] {
        let Some(folder) = rf_testing::shared(folder) else { return };
        let paths = folder.read_dir().unwrap().map(|file| file.unwrap().path());
        let models = paths.filter(|path| path.extension().is_some_and(|ext| ext == "gguf"));
        assert!(models.map(|path| check_model(&path)).count() > 10);
    }
}

#[test]
fn a_repeated_prompt_is_in_the_prefix_cache() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let ids = prompt(3, 100);
    let first = ask(&handle, &ids, &greedy(20));
    assert_eq!((first.timings.prompt_tokens, first.timings.cached_tokens), (100, 0));
    let steps = handle.stats().steps;
    let second = ask(&handle, &ids, &greedy(20));
    assert_eq!((second.timings.prompt_tokens, second.timings.cached_tokens), (4, 96));
    assert_eq!(second.ids, first.ids);
    assert_eq!(handle.stats().steps - steps, 20, "the rest of the prompt is one step");

    // The next turn of a conversation: the answer is in the cache, too.
    let mut turn = ids.clone();
    turn.extend(&first.ids);
    turn.extend(prompt(4, 9));
    let third = ask(&handle, &turn, &greedy(5));
    assert_eq!(third.timings.cached_tokens, (100 + 19) / PAGE_TOKENS * PAGE_TOKENS);
    assert_eq!(third.ids, alone(&mut engine(&tiny(), ENGINE), &turn, &greedy(5)).ids);

    let (_, without) = submit(&handle, &ids, &greedy(20), |r| r.use_prefix_cache = false);
    let without = without.answer();
    assert_eq!((without.timings.cached_tokens, without.ids), (0, first.ids));
    end(scheduler);
}

#[test]
fn requests_that_wait_find_the_prefix_of_those_before_them() {
    let options = SCHEDULER.with_max_batched_tokens(32).with_max_num_seqs(32);
    let scheduler = start(ENGINE, options);
    let handle = scheduler.handle();
    let shared = prompt(3, 96);
    let events: Vec<_> = (0..8)
        .map(|i| submit(&handle, &[&shared[..], &[i]].concat(), &greedy(4), |_| ()).1)
        .collect();
    let timings: Vec<_> = events.into_iter().map(|events| events.answer().timings).collect();
    assert!(timings[1..].iter().all(|t| t.cached_tokens == 96), "{timings:?}");
    end(scheduler);
}

#[test]
fn requests_that_arrive_together_compute_their_prefix_once() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    // This sink holds the engine until all have arrived.
    let (release, released) = channel::<()>();
    let hold = move |_| {
        assert!(released.recv().is_err(), "nothing is sent");
        ControlFlow::Continue(())
    };
    handle.submit(Request::new(vec![1], greedy(1)), hold).unwrap();
    let shared = prompt(3, 40);
    let requests: Vec<_> = (0..8).map(|i| [&shared[..], &[i]].concat()).collect();
    let submit = |ids: &Vec<u32>| submit(&handle, ids, &greedy(4), |_| ()).1;
    let events: Vec<_> = requests.iter().map(submit).collect();
    drop(release);
    let mut alone_engine = engine(&tiny(), ENGINE);
    for (index, (events, ids)) in events.into_iter().zip(&requests).enumerate() {
        let answer = events.answer();
        assert_eq!(answer.timings.cached_tokens, if index == 0 { 0 } else { 2 * PAGE_TOKENS });
        assert_eq!(answer.ids, alone(&mut alone_engine, ids, &greedy(4)).ids);
    }
    end(scheduler);
}

#[test]
fn text_is_that_of_a_request_alone() {
    let mut alone_engine = engine(&demo(), ENGINE);
    let scheduler = Scheduler::start(engine(&demo(), ENGINE), SCHEDULER).unwrap();
    let handle = scheduler.handle();
    let openings = ["Once upon a time", "The dog", "Lily é 日本", "A", "\n"];
    let mut requests = Vec::new();
    for opening in openings {
        let ids = alone_engine.model().tokenizer().encode(opening, EncodeOptions::PROMPT);
        let whole = alone(&mut alone_engine, &ids, &greedy(60)).text;
        // A stop string in the middle, one across tokens, and one that never comes.
        let middle: String = whole.chars().skip(40).take(6).collect();
        for stop in [vec![], vec![middle], vec!["never said".into()]] {
            requests.push((ids.clone(), greedy(60).with_stop(stop)));
        }
        requests.push((ids, greedy(100).with_ignore_eos(false)));
    }
    let compare = |engine: &mut Engine| {
        let events: Vec<_> =
            requests.iter().map(|(ids, o)| submit(&handle, ids, o, |_| ()).1).collect();
        for (events, (ids, options)) in events.into_iter().zip(&requests) {
            let (answer, expected) = (events.answer(), alone(engine, ids, options));
            assert_eq!((answer.text, answer.ids), (expected.text, expected.ids));
            assert_eq!(answer.end, Some(expected.stop_reason));
        }
    };
    compare(&mut alone_engine);
    let stats = end(scheduler);
    assert_eq!(stats.finished.stop_string, 5);
}
