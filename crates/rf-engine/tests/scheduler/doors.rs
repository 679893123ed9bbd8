//! Both doors to an engine, [`Engine::generate`] and a scheduler: the same answers, and the same
//! sequences to continue from.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Event, Request, Scheduler, StepScheduler, SubmitError, TokenLogprob};
use rf_engine::{
    Engine, EngineOptions, Error, GenerateExtras, GenerateOptions, PromptProgress, Session,
    Speculation, StopReason, Timings,
};

use crate::constraints::{Fault, Phrases, phrases};
use crate::drafts::{engine, fixed};
use crate::limits::hold;
use crate::recurrent::shapes::QWEN35;
use crate::support::{
    ENGINE, SCHEDULER, alone, ask, data, end, greedy, prompt, sampled, start, submit, tiny,
    with_sampler,
};

/// A small context, and room for drafts.
const SMALL: EngineOptions = ENGINE
    .with_context_tokens(Some(64))
    .with_kv_tokens(Some(4 * 64))
    .with_sequences(2)
    .with_speculates(true);

const KINDS: [&str; 5] = ["dense", "window", "experts", "latent", "recurrent"];

fn load(kind: &str, options: EngineOptions) -> Engine {
    let file = match kind {
        "dense" => "smollm3",
        "window" => "gemma4_e4b",
        "experts" => "glm4moe",
        "latent" => "deepseek2_groups",
        _ => return QWEN35.engine(1, options),
    };
    engine(&data(file), options)
}

struct Case {
    name: &'static str,
    options: GenerateOptions,
    logprobs: Option<usize>,
    /// True if the output is constrained, and whether tokens are forced.
    constraint: Option<bool>,
    end: StopReason,
}

fn cases() -> Vec<Case> {
    // Few tokens are likely, so that every model repeats some.
    let few = (0..16).map(|id| (id, 50.0)).collect();
    let few = with_sampler(SamplerConfig::greedy().with_logit_bias(few), 27);
    let shifting = |max_tokens| few.clone().with_context_shift(true).with_max_tokens(max_tokens);
    let case = |name, options: &GenerateOptions, logprobs, constraint, end| {
        let options = options.clone();
        Case { name, options, logprobs, constraint, end }
    };
    let (length, complete) = (StopReason::Length, StopReason::Constraint);
    vec![
        case("text", &few, None, None, length),
        case("best token", &greedy(20), None, None, length),
        case("sampled", &sampled(5, 20), None, None, length),
        case("log probabilities", &few, Some(3), None, length),
        case("mask", &greedy(20), None, Some(false), complete),
        case("forced", &sampled(5, 20), None, Some(true), complete),
        case("mask and log probabilities", &greedy(20), Some(2), Some(true), complete),
        case("shift", &shifting(150), None, None, length),
        case("shift and log probabilities", &shifting(60), Some(1), None, length),
        case("full", &few.with_max_tokens(None), None, None, StopReason::ContextFull),
    ]
}

type Answer = (Vec<u32>, String, Vec<TokenLogprob>, StopReason);

/// The counts that do not depend on measured times.
fn counts(timings: &Timings) -> [usize; 5] {
    let Timings { prompt_tokens, cached_tokens, generated_tokens, .. } = *timings;
    let Timings { drafted_tokens, accepted_tokens, .. } = *timings;
    [prompt_tokens, cached_tokens, generated_tokens, drafted_tokens, accepted_tokens]
}

fn drafts(engine: &Engine, drafts: bool) -> Option<Speculation> {
    drafts.then(|| Speculation::ngram(engine, fixed(3)).unwrap())
}

fn generated(kind: &str, case: &Case, with_drafts: bool) -> (Answer, [usize; 5]) {
    let mut engine = load(kind, SMALL);
    let mut speculation = drafts(&engine, with_drafts);
    let extras = GenerateExtras::default()
        .with_constraint(
            case.constraint.map(|forces| Phrases::boxed(&phrases(), forces, Fault::None)),
        )
        .with_speculation(speculation.as_mut())
        .with_logprobs(case.logprobs);
    let (mut session, mut shown) = (engine.session(), String::new());
    let mut show = |text: &str| {
        shown += text;
        ControlFlow::Continue(())
    };
    let text = prompt(3, 12).repeat(3);
    let outcome = engine.generate_with(&mut session, &text, &case.options, extras, &mut show);
    let outcome = outcome.unwrap();
    assert_eq!(shown, outcome.text, "{kind}, {}", case.name);
    let counts = counts(&outcome.timings);
    ((outcome.ids, outcome.text, outcome.logprobs, outcome.stop_reason), counts)
}

fn scheduled(kind: &str, case: &Case, with_drafts: bool) -> (Answer, [usize; 5]) {
    let engine = load(kind, SMALL);
    let speculation = drafts(&engine, with_drafts);
    let scheduler = Scheduler::start_with_drafts(engine, speculation, SCHEDULER).unwrap();
    let text = prompt(3, 12).repeat(3);
    let (_, events) = submit(&scheduler.handle(), &text, &case.options, |request| {
        request.logprobs = case.logprobs;
        request.constraint =
            case.constraint.map(|forces| Phrases::boxed(&phrases(), forces, Fault::None));
    });
    let answer = events.answer();
    end(scheduler);
    ((answer.ids, answer.text, answer.logprobs, answer.end.unwrap()), counts(&answer.timings))
}

#[test]
fn both_doors_give_the_same_answers_with_and_without_drafts() {
    for kind in KINDS {
        let mut accepted = 0;
        for case in cases() {
            let what = format!("{kind}, {}", case.name);
            let (expected, plain_counts) = generated(kind, &case, false);
            assert_eq!(expected.3, case.end, "{what}");
            assert_eq!(expected.2.is_empty(), case.logprobs.is_none(), "{what}");
            assert_eq!(scheduled(kind, &case, false), (expected.clone(), plain_counts), "{what}");
            let (answer, counts) = generated(kind, &case, true);
            assert_eq!(answer, expected, "{what} with drafts");
            assert_eq!(scheduled(kind, &case, true), (expected, counts), "{what} with drafts");
            accepted += counts[4];
        }
        assert!(accepted > 0, "{kind}");
    }
}

#[test]
fn both_doors_give_the_same_choices() {
    let options = sampled(5, 20);
    let text = prompt(3, 12).repeat(3);
    for kind in KINDS {
        let change = |request: &mut Request| {
            request.num_choices = 3;
            request.logprobs = Some(1);
            request.constraint = Some(Phrases::boxed(&phrases(), true, Fault::None));
        };
        let scheduler = Scheduler::start(load(kind, SMALL), SCHEDULER).unwrap();
        let (_, events) = submit(&scheduler.handle(), &text, &options, change);
        let expected = events
            .answers()
            .unwrap()
            .into_iter()
            .map(|answer| (answer.ids, answer.text, answer.logprobs, answer.end.unwrap()));
        let expected: Vec<Answer> = expected.collect();
        end(scheduler);

        for with_drafts in [false, true] {
            let mut engine = load(kind, SMALL);
            let mut speculation = drafts(&engine, with_drafts);
            let (mut session, mut shown) = (engine.session(), vec![String::new(); 3]);
            let mut request = Request::new(text.clone(), options.clone());
            change(&mut request);
            let show = &mut |choice: usize, text: &str| {
                shown[choice] += text;
                ControlFlow::Continue(())
            };
            let outcomes =
                engine.generate_choices(&mut session, request, speculation.as_mut(), show).unwrap();
            let seeds: Vec<u64> = outcomes.iter().map(|outcome| outcome.seed).collect();
            assert_eq!(seeds, [5, 6, 7], "{kind}");
            let prompts = outcomes.iter().map(|outcome| outcome.timings.prompt_tokens);
            assert_eq!(prompts.collect::<Vec<_>>(), [text.len(); 3], "{kind}");
            let answers = outcomes
                .into_iter()
                .map(|outcome| (outcome.ids, outcome.text, outcome.logprobs, outcome.stop_reason));
            let answers: Vec<Answer> = answers.collect();
            assert_eq!(answers, expected, "{kind}, drafts: {with_drafts}");
            assert!(shown.iter().zip(&answers).all(|(shown, answer)| *shown == answer.1));
            // The session has the first choice, and no other pages are in use.
            assert!(session.tokens().starts_with(&text), "{kind}");
            let first = &session.tokens()[text.len()..];
            assert!(!first.is_empty() && answers[0].0.starts_with(first), "{kind}");
            drop(session);
            assert_eq!(engine.kv_stats().used_pages, 0, "{kind}");
        }
    }
}

#[test]
fn one_choice_ends_all_and_their_number_is_limited() {
    let mut engine = engine(&tiny(), ENGINE);
    let mut session = engine.session();
    let request =
        |num_choices| Request::new(prompt(5, 40), greedy(24)).with_num_choices(num_choices);
    let mut calls = 0;
    let stop = &mut |_, _: &str| {
        calls += 1;
        ControlFlow::Break(())
    };
    let outcomes = engine.generate_choices(&mut session, request(4), None, stop).unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.stop_reason == StopReason::Cancelled));
    for num_choices in [0, Request::MAX_CHOICES + 1] {
        let refused = engine.generate_choices(&mut session, request(num_choices), None, stop);
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    assert_eq!(calls, 1);
}

#[test]
fn contexts_of_many_requests_shift_while_they_preempt_each_other() {
    let options = greedy(100).with_context_shift(true);
    for kind in ["dense", "window", "recurrent"] {
        let mut alone_engine = load(kind, SMALL);
        let requests: Vec<_> = (0..6).map(|seed| prompt(seed % 4, 10 + 9 * seed)).collect();
        let expected: Vec<_> =
            requests.iter().map(|ids| alone(&mut alone_engine, ids, &options).ids).collect();
        // Room for one and a half sequences.
        let few = SMALL.with_kv_tokens(Some(96)).with_batch_tokens(24);
        let limits = SCHEDULER.with_max_batched_tokens(24);
        let scheduler = Scheduler::start(load(kind, few), limits).unwrap();
        let handle = scheduler.handle();
        let events: Vec<_> =
            requests.iter().map(|ids| submit(&handle, ids, &options, |_| ()).1).collect();
        for (events, expected) in events.into_iter().zip(expected) {
            let answer = events.answer();
            assert_eq!((answer.ids, answer.end), (expected, Some(StopReason::Length)), "{kind}");
        }
        assert!(end(scheduler).preemptions > 0, "{kind}");
    }
}

#[test]
fn a_session_continues_on_a_scheduler_as_on_its_engine() {
    for kind in KINDS {
        let scheduler = Scheduler::start(load(kind, ENGINE), SCHEDULER).unwrap();
        let handle = scheduler.handle();
        let mut engine = load(kind, ENGINE);
        let mut expected_session = engine.session();
        let mut session = handle.call(|engine| engine.session()).unwrap();
        let mut text = prompt(3, 20);
        for turn in 0..3 {
            let (_, events) = submit(&handle, &text, &greedy(10), |request| {
                request.session = Some(session);
                // What is cached is in the session.
                request.use_prefix_cache = false;
            });
            let answer = events.answer();
            let go_on = &mut |_: &str| ControlFlow::Continue(());
            let outcome = engine.generate(&mut expected_session, &text, &greedy(10), go_on);
            let outcome = outcome.unwrap();
            assert_eq!(answer.ids, outcome.ids, "{kind}, turn {turn}");
            assert_eq!(counts(&answer.timings), counts(&outcome.timings), "{kind}, turn {turn}");
            assert_eq!(answer.timings.cached_tokens > 0, turn > 0, "{kind}, turn {turn}");
            // The cache in a file continues as well.
            let computed = *answer.session.unwrap();
            assert_eq!(computed.tokens(), expected_session.tokens());
            let restored = handle.call(move |engine| {
                let mut bytes = Vec::new();
                engine.save(&computed, &mut bytes).unwrap();
                engine.restore(&bytes).unwrap()
            });
            session = restored.unwrap();
            text.extend(answer.ids);
            text.extend(prompt(turn, 7));
        }
        drop(session);
        end(scheduler);
    }
}

#[test]
fn a_session_that_waits_gives_its_pages_to_those_that_run() {
    // Room for one sequence of full length.
    let scheduler = start(ENGINE.with_kv_tokens(Some(160)), SCHEDULER);
    let handle = scheduler.handle();
    let text = prompt(3, 80);
    let computed = text.clone();
    let session = handle.call(move |engine| {
        let mut session = engine.session();
        engine.prefill(&mut session, &computed).unwrap();
        session
    });
    let release = hold(&handle);
    let long = prompt(4, 100);
    let (_, first) = submit(&handle, &long, &greedy(50), |_| ());
    let (_, second) =
        submit(&handle, &text, &greedy(20), |request| request.session = Some(session.unwrap()));
    drop(release);
    let mut alone_engine = engine(&tiny(), ENGINE);
    assert_eq!(first.answer().ids, alone(&mut alone_engine, &long, &greedy(50)).ids);
    let second = second.answer();
    assert_eq!(second.ids, alone(&mut alone_engine, &text, &greedy(20)).ids);
    drop(second);
    end(scheduler);
}

#[test]
fn calls_run_between_steps_and_return_to_their_caller() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let (_, events) = submit(&handle, &prompt(3, 20), &greedy(100), |_| ());
    events.wait_for_tokens(1);
    assert_eq!(handle.call(|engine| engine.context_tokens()).unwrap(), 160);
    let panicked = catch_unwind(AssertUnwindSafe(|| handle.call(|_| panic!("a bug in a call"))));
    let message = panicked.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(*message, "a bug in a call");
    // The request that ran meanwhile, and the next one, are not affected.
    let rest = events.receiver.iter().filter(|event| matches!(event, Event::Token { .. }));
    assert_eq!(rest.count(), 99);
    assert_eq!(ask(&handle, &[1, 2], &greedy(3)).ids.len(), 3);
    end(scheduler);
    assert_eq!(handle.call(|_| ()).unwrap_err(), SubmitError::ShuttingDown);
}

#[test]
fn several_choices_need_no_thread() {
    let mut engine = engine(&tiny(), ENGINE);
    let ids = prompt(5, 40);
    let expected: Vec<_> =
        (0..4).map(|i| alone(&mut engine, &ids, &sampled(11 + i, 24)).ids).collect();
    let mut steps = StepScheduler::new(&engine, SCHEDULER).unwrap();
    let request = Request::new(ids, sampled(11, 24)).with_num_choices(4);
    let first = steps.submit(&mut engine, request).unwrap();
    // Another request is cancelled by its receiver, and a third one by its caller.
    let gone = [(); 2].map(|()| Request::new(prompt(1, 9), greedy(50)));
    let gone = gone.map(|request| steps.submit(&mut engine, request).unwrap());
    let (mut answers, mut ends) = (vec![Vec::new(); 4], Vec::new());
    let mut num_steps = 0;
    while !steps.is_idle() {
        steps.step(&mut engine, None, &mut |id, event| {
            match event {
                Event::Token { choice, id: token, .. } if id == first => {
                    answers[choice].push(token);
                }
                Event::Token { .. } if id == gone[0] => return ControlFlow::Break(()),
                Event::Finished { reason, .. } if id != first => ends.push((id, reason)),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        num_steps += 1;
        if num_steps == 3 {
            steps.cancel(gone[1]);
        }
    }
    assert_eq!(answers, expected);
    assert_eq!(ends, gone.map(|id| (id, StopReason::Cancelled)));
    let stats = steps.stats(&engine);
    assert_eq!((stats.running, stats.waiting, stats.kv_pages_used), (0, 0, 0));
    assert_eq!((stats.finished.length, stats.finished.cancelled), (4, 2));
}

#[test]
fn a_prompt_tells_its_progress_and_stops_after_a_batch() {
    let options = ENGINE.with_batch_tokens(8);
    let mut engine = engine(&tiny(), options);
    let ids = prompt(1, 30);
    let expected = alone(&mut engine, &ids, &greedy(9)).ids;
    let mut session = engine.session();
    let mut generate = |session: &mut Session, most: usize| {
        let mut seen = Vec::new();
        let mut on_prompt = |progress: PromptProgress| {
            assert_eq!(progress.tokens, 30);
            seen.push((progress.cached_tokens, progress.done_tokens));
            if seen.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let extras = GenerateExtras::default().with_on_prompt(&mut on_prompt);
        let go_on = &mut |_: &str| ControlFlow::Continue(());
        let outcome = engine.generate_with(session, &ids, &greedy(9), extras, go_on).unwrap();
        (seen, outcome)
    };
    let (seen, outcome) = generate(&mut session, 2);
    assert_eq!(seen, [(0, 8), (0, 16)]);
    assert_eq!((outcome.stop_reason, outcome.ids.len()), (StopReason::Cancelled, 0));
    // The next generation computes the rest.
    assert_eq!(session.len(), 16);
    let (seen, outcome) = generate(&mut session, usize::MAX);
    assert_eq!((seen, outcome.ids), (vec![(16, 24)], expected));
}

#[test]
fn a_fault_of_a_constraint_is_the_error_of_a_generation() {
    let mut engine = engine(&tiny(), ENGINE);
    let mut session = engine.session();
    let ids = prompt(1, 20);
    let mut fails = |fault| {
        let constraint = Some(Phrases::boxed(&phrases(), false, fault));
        let extras = GenerateExtras::default().with_constraint(constraint);
        let go_on = &mut |_: &str| ControlFlow::Continue(());
        engine.generate_with(&mut session, &ids, &greedy(20), extras, go_on).unwrap_err()
    };
    assert!(matches!(fails(Fault::ErrorInAllowed), Error::Constraint(_)));
    assert!(matches!(fails(Fault::NothingAllowed), Error::Sampling(_)));
    let panicked = fails(Fault::PanicInAccept);
    assert!(matches!(&panicked, Error::Panicked(message) if message == "a bug in accept"));
    assert_eq!((session.len(), engine.kv_stats().used_pages), (0, 0));
    assert_eq!(alone(&mut engine, &ids, &greedy(5)).ids.len(), 5);
}
