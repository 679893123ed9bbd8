//! Models with sliding windows, whose pages are returned when the window has passed them.

use std::sync::mpsc::channel;

use rf_engine::scheduler::{Event, Request, Scheduler};
use rf_engine::{EngineOptions, Outputs, SequenceInput, Session};
use rf_kv::{CutCause, NotCut, PageGroup, PageSize};

use crate::support::{
    ENGINE, Events, PAGE_TOKENS, SCHEDULER, alone, ask, data, end, engine, greedy, prompt, sampled,
    sink, submit,
};

/// Models of layers with and without a window of 16 tokens, which is one page.
const MODELS: [&str; 2] = ["gemma4_e4b", "gptoss_mxfp4"];

const WINDOW: usize = 16;

/// Options with window pages for this many sequences.
fn few(sequences: usize) -> EngineOptions {
    ENGINE.with_sequences(sequences).with_kv_tokens(Some(4 * 160))
}

/// Options with so many sequences that layers with a window keep whole sequences, too.
fn whole() -> EngineOptions {
    few(1000)
}

fn feed(engine: &mut rf_engine::Engine, session: &mut Session, ids: &[u32]) -> Vec<u32> {
    let logits =
        engine.forward(&mut [SequenceInput { session, ids, outputs: Outputs::All }]).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn a_context_past_the_window_is_computed_as_a_whole_with_few_pages() {
    let ids = prompt(2, 160);
    for name in MODELS {
        let mut reference = engine(&data(name), whole());
        assert_eq!(reference.kv_stats_of(PageGroup::Window).total_pages, 0);
        let mut session = reference.session();
        let expected = feed(&mut reference, &mut session, &ids);
        for (batch_tokens, steps) in
            [(64, vec![160]), (7, vec![160]), (64, vec![100, 1, 1, 40, 18])]
        {
            let options = few(1).with_batch_tokens(batch_tokens);
            let mut engine = engine(&data(name), options);
            let most = PageSize::Tokens16.window_pages_for(WINDOW, 1, batch_tokens);
            assert_eq!(engine.kv_stats_of(PageGroup::Window).total_pages, most, "{name}");
            let (mut session, mut logits) = (engine.session(), Vec::new());
            for tokens in steps {
                let next = session.len();
                logits.extend(feed(&mut engine, &mut session, &ids[next..next + tokens]));
                let held = |group| engine.kv_stats_of(group).used_pages;
                assert_eq!(held(PageGroup::Full), session.len().div_ceil(PAGE_TOKENS));
                // The next token sees 15 others.
                assert!(held(PageGroup::Window) <= 2, "{name}: {}", held(PageGroup::Window));
            }
            assert!(logits == expected, "{name}, batches of {batch_tokens}");
        }
    }
}

#[test]
fn a_session_goes_back_as_far_as_its_window_and_else_starts_again() {
    for name in MODELS {
        let mut engine = engine(&data(name), few(4));
        let ids = prompt(5, 100);
        let mut session = engine.session();
        feed(&mut engine, &mut session, &ids);
        let fork = session.fork();
        assert_eq!(session.truncate(50), Err(NotCut { len_tokens: 50, cause: CutCause::Window }));
        assert_eq!(session.tokens(), ids);
        // The pages from position 80 on are still there, and position 95 sees those from 80 on.
        for (len, cached_tokens) in [(95, 95), (94, 0), (60, 0)] {
            let mut session = fork.fork();
            let other = [&ids[..len], &[7, 8, 9]].concat();
            let options = greedy(20);
            let outcome = engine.generate(&mut session, &other, &options, &mut |_| {
                std::ops::ControlFlow::Continue(())
            });
            let outcome = outcome.unwrap();
            assert_eq!(outcome.timings.cached_tokens, cached_tokens, "{name}, {len}");
            assert_eq!(outcome.ids, alone(&mut engine, &other, &options).ids, "{name}, {len}");
        }
        drop((session, fork));
        assert_eq!(engine.kv_stats_of(PageGroup::Window).used_pages, 0);
    }
}

#[test]
fn a_shifted_context_is_that_of_whole_sequences() {
    let options = greedy(150).with_context_shift(true);
    let ids = prompt(1, 60);
    let answer = |name: &str, engine_options: EngineOptions| {
        let engine_options = engine_options.with_context_tokens(Some(80));
        alone(&mut engine(&data(name), engine_options), &ids, &options).ids
    };
    for name in MODELS {
        assert_eq!(answer(name, few(1)), answer(name, whole()), "{name}");
    }
}

#[test]
fn forks_and_cached_prefixes_answer_as_each_alone() {
    for name in MODELS {
        let mut alone_engine = engine(&data(name), whole());
        let scheduler = Scheduler::start(engine(&data(name), few(8)), SCHEDULER).unwrap();
        let handle = scheduler.handle();
        let ids = prompt(3, 90);
        let (_, events) = submit(&handle, &ids, &sampled(11, 40), |r| r.num_choices = 5);
        for (answer, seed) in events.answers().unwrap().into_iter().zip(11..) {
            let expected = alone(&mut alone_engine, &ids, &sampled(seed, 40)).ids;
            assert_eq!(answer.ids, expected, "{name}, seed {seed}");
        }
        // 90 tokens: five full pages, of which the next token sees one through the window.
        let longer = [&ids[..], &prompt(8, 20)].concat();
        let answer = ask(&handle, &longer, &greedy(30));
        assert_eq!(answer.timings.cached_tokens, 80, "{name}");
        assert_eq!(answer.ids, alone(&mut alone_engine, &longer, &greedy(30)).ids, "{name}");
        end(scheduler);
    }
}

#[test]
fn sequences_share_few_windows_and_preempt_each_other() {
    for name in MODELS {
        let path = data(name);
        let mut alone_engine = engine(&path, whole());
        let requests: Vec<_> = (0..10).map(|seed| prompt(seed % 4, 10 + 9 * seed)).collect();
        let expected: Vec<Vec<u32>> =
            requests.iter().map(|ids| alone(&mut alone_engine, ids, &greedy(50)).ids).collect();
        for prefix_cache in [true, false] {
            // Windows of two sequences, and whole sequences for one and a half.
            let few = few(2).with_kv_tokens(Some(240)).with_batch_tokens(24);
            let options = SCHEDULER.with_max_batched_tokens(24).with_prefix_cache(prefix_cache);
            let scheduler = Scheduler::start(engine(&path, few), options).unwrap();
            let handle = scheduler.handle();
            let events: Vec<_> =
                requests.iter().map(|ids| submit(&handle, ids, &greedy(50), |_| ()).1).collect();
            for (events, expected) in events.into_iter().zip(&expected) {
                assert_eq!(events.answer().ids, *expected, "{name}");
            }
            end(scheduler);
        }
    }
}

/// Five choices begin in one step, and each needs a copy of the window page that they share. The
/// next request arrives before that step, when the free pages suffice for one of both.
#[test]
fn a_request_that_arrives_when_choices_begin_gets_pages_of_some() {
    for name in MODELS {
        let path = data(name);
        let few = few(2).with_batch_tokens(24);
        let options = SCHEDULER.with_max_batched_tokens(24);
        let engine = engine(&path, few);
        assert_eq!(engine.kv_stats_of(PageGroup::Window).total_pages, 7);
        let scheduler = Scheduler::start(engine, options).unwrap();
        let handle = scheduler.handle();
        let (sender, receiver) = channel();
        let (ids, next) = (prompt(3, 24), prompt(4, 40));
        let (events, first) = channel();
        let first = Events { receiver: first, num_choices: 5 };
        let mut request = Request::new(ids.clone(), sampled(5, 6));
        request.num_choices = 5;
        let (mut sender, mut events) = (Some(sender), sink(events));
        let (submitter, following) = (handle.clone(), next.clone());
        let submits = move |event: Event| {
            // The scheduler waits for the sink, and reads the request before the next step.
            if matches!(event, Event::Token { .. })
                && let Some(sender) = sender.take()
            {
                let (_, events) = submit(&submitter, &following, &greedy(6), |_| ());
                sender.send(events).unwrap();
            }
            events(event)
        };
        handle.submit(request, submits).unwrap();
        let second = receiver.recv().unwrap();
        let mut alone_engine = self::engine(&path, whole());
        for (answer, seed) in first.answers().unwrap().into_iter().zip(5..) {
            let expected = alone(&mut alone_engine, &ids, &sampled(seed, 6)).ids;
            assert_eq!(answer.ids, expected, "{name}, seed {seed}");
        }
        let expected = alone(&mut alone_engine, &next, &greedy(6)).ids;
        assert_eq!(second.answer().ids, expected, "{name}");
        // One choice of the first request keeps its pages in any case.
        assert!(end(scheduler).preemptions <= 4, "{name}");
    }
}
