//! Models whose layers have recurrent states: made of random numbers, because no file of such a
//! model is small.

pub(crate) mod shapes;

use std::ops::ControlFlow;

use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::Scheduler;
use rf_engine::{
    Engine, EngineOptions, Error, GenerateOptions, Model, Outputs, SequenceInput, Session,
    Speculation, SpeculationOptions,
};
use rf_graph::{Backend, Layout};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_kv::{CutCause, NotCut, PageGroup};
use rf_testing::HybridBackend;

use crate::checkpoints::{self, with_checkpoints};
use crate::drafts::{add, compare, fixed, prompts};
use crate::support::{
    ENGINE, PAGE_TOKENS, SCHEDULER, alone, ask, end, greedy, prompt, sampled, submit, tiny,
    with_sampler,
};
use crate::{host_states, saved};
use shapes::{HIDDEN, QWEN35, SHAPES, Shape, threads_of_cpu};

fn feed(engine: &mut Engine, session: &mut Session, ids: &[u32]) -> Vec<u32> {
    let logits =
        engine.forward(&mut [SequenceInput { session, ids, outputs: Outputs::All }]).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn logits_do_not_depend_on_threads_chunks_or_neighbours() {
    let ids = prompt(3, 90);
    for shape in SHAPES {
        let mut whole = shape.engine(1, ENGINE);
        let mut session = whole.session();
        let expected = feed(&mut whole, &mut session, &ids);
        for (threads, batch_tokens) in [(1, 64), (3, 1), (2, 7), (3, 512)] {
            let mut engine = shape.engine(threads, ENGINE.with_batch_tokens(batch_tokens));
            let mut session = engine.session();
            let actual = feed(&mut engine, &mut session, &ids);
            assert!(actual == expected, "{} {threads} {batch_tokens}", shape.architecture);
        }
        // Two sequences in one batch, the second of which takes over the states of a third.
        let (mut first, mut second) = (whole.session(), whole.session());
        drop(session);
        let mut logits = Vec::new();
        for (a, b) in [(0..40, 0..1), (40..41, 1..60), (41..90, 60..90)] {
            let feeds = &mut [
                SequenceInput { session: &mut first, ids: &ids[a.clone()], outputs: Outputs::All },
                SequenceInput { session: &mut second, ids: &ids[b], outputs: Outputs::None },
            ];
            logits.extend(whole.forward(feeds).unwrap().iter().map(|logit| logit.to_bits()));
        }
        assert!(logits == expected, "{}", shape.architecture);
    }
}

#[test]
fn a_sequence_goes_on_forks_and_starts_again_where_it_is_cut() {
    check_forks_and_cuts(&threads_of_cpu(2));
}

#[test]
fn answers_are_those_of_each_alone_with_few_states() {
    check_answers_with_few_states(&threads_of_cpu(2));
}

/// One test for the GPU: while a stream captures, no other thread may wait for the device.
#[test]
fn states_on_a_gpu_follow_their_sequences() {
    let backend = match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => backend,
        Err(error) => return rf_testing::skip!("{error}"),
    };
    check_forks_and_cuts(&backend);
    check_answers_with_few_states(&backend);
    checkpoints::check_turns(&backend);
    checkpoints::check_a_session(&backend);
    host_states::check_on_gpu(&backend);
    check_states_after_chunks(&backend, 1e-4);
    check_drafts_of_a_scheduler(&backend);
    let cpu = threads_of_cpu(2);
    for shape in SHAPES {
        saved::check(&|| shape.engine_on(&backend, saved::OPTIONS), shape.architecture);
        let ids = prompt(3, 90);
        let expected = shape.logits_on(&cpu, &ids);
        for layers in 1..=shape.layers as usize {
            let layout = Layout { layers, expert_layers: 0 };
            let actual = shape.logits_on(&HybridBackend::new(&cpu, &backend, layout), &ids);
            let error: f32 = actual.iter().zip(&expected).map(|(a, b)| (a - b) * (a - b)).sum();
            let energy: f32 = expected.iter().map(|x| x * x).sum();
            assert!(error < 1e-6 * energy, "{} {layers}: {error}", shape.architecture);
        }
    }
}

fn check_forks_and_cuts(backend: &dyn Backend) {
    for shape in SHAPES {
        let mut engine = shape.engine_on(backend, ENGINE);
        let ids = prompt(5, 60);
        let mut session = engine.session();
        feed(&mut engine, &mut session, &ids);
        assert_eq!(session.truncate(50), Err(NotCut { len_tokens: 50, cause: CutCause::State }));
        assert_eq!(
            (session.tokens(), engine.kv_stats_of(PageGroup::State).used_pages),
            (&ids[..], 1)
        );
        let texts = [[&ids[..], &[7, 8]].concat(), [&ids[..], &[9]].concat(), ids[..55].to_vec()];
        let expected: Vec<_> =
            texts.iter().map(|text| alone(&mut engine, text, &greedy(20)).ids).collect();
        for ((text, expected), cached_tokens) in texts.iter().zip(expected).zip([60, 60, 0]) {
            let mut fork = session.fork();
            let outcome =
                engine.generate(&mut fork, text, &greedy(20), &mut |_| ControlFlow::Continue(()));
            let outcome = outcome.unwrap();
            assert_eq!(outcome.timings.cached_tokens, cached_tokens, "{}", shape.architecture);
            assert_eq!(outcome.ids, expected, "{}", shape.architecture);
        }
        assert_eq!(engine.kv_stats_of(PageGroup::State).used_pages, 1);
    }
}

fn check_answers_with_few_states(backend: &dyn Backend) {
    for shape in SHAPES {
        let mut alone_engine = shape.engine_on(backend, ENGINE);
        for (sequences, prefix_cache) in [(64, true), (3, true), (2, false)] {
            let engine = shape.engine_on(backend, ENGINE.with_sequences(sequences));
            let options = SCHEDULER.with_max_batched_tokens(24).with_prefix_cache(prefix_cache);
            let scheduler = Scheduler::start(engine, options).unwrap();
            let handle = scheduler.handle();
            // Texts that begin alike, some with several answers.
            let requests: Vec<_> = (0..6_u32)
                .map(|i| (prompt(i % 2, 20 + 9 * i), 1 + (i % 3) as usize, u64::from(i)))
                .collect();
            let events: Vec<_> = requests
                .iter()
                .map(|(ids, choices, seed)| {
                    let change = |r: &mut rf_engine::scheduler::Request| r.num_choices = *choices;
                    submit(&handle, ids, &sampled(*seed, 15), change).1
                })
                .collect();
            for (events, (ids, _, seed)) in events.into_iter().zip(&requests) {
                for (choice, answer) in (0..).zip(events.answers().unwrap()) {
                    let expected = alone(&mut alone_engine, ids, &sampled(seed + choice, 15)).ids;
                    assert_eq!(answer.ids, expected, "{} {sequences}", shape.architecture);
                }
            }
            end(scheduler);
        }
    }
}

#[test]
fn a_sequence_whose_batch_fails_starts_again() {
    for shape in SHAPES {
        let mut engine = shape.engine(2, ENGINE.with_sequences(1));
        let ids = prompt(6, 40);
        let mut first = engine.session();
        feed(&mut engine, &mut first, &ids);
        // There is no second state, so the batch of both fails before it is computed.
        let mut second = engine.session();
        let feeds = &mut [
            SequenceInput { session: &mut first, ids: &[1], outputs: Outputs::Last },
            SequenceInput { session: &mut second, ids: &[1], outputs: Outputs::Last },
        ];
        let error = engine.forward(feeds).unwrap_err();
        assert!(matches!(error, Error::OutOfPages(_)), "{error:?}");
        assert_eq!((first.len(), second.len()), (0, 0));
        let again = feed(&mut engine, &mut first, &ids);
        first.reset();
        assert_eq!(again, feed(&mut engine, &mut second, &ids));
    }
}

#[test]
fn the_memory_plan_counts_a_state_for_each_sequence() {
    let backend = threads_of_cpu(1);
    for (shape, floats) in SHAPES.into_iter().zip(STATE_FLOATS) {
        let held = |sequences| {
            let options = ENGINE.with_sequences(sequences);
            let engine = shape.engine(1, options);
            let need = shape.model().memory_need(&backend, &options).unwrap();
            assert_eq!((need, need.held), (engine.memory_need(), engine.memory()));
            need.held.states_bytes
        };
        assert_eq!(held(1), 4 * floats, "{}", shape.architecture);
        assert_eq!(held(5), 5 * held(1));
    }
}

/// f32 elements of the states of a sequence, by shape: rows of whole tiles of 32 columns.
const STATE_FLOATS: [u64; 5] = [
    3 * 2 * HIDDEN,
    2 * (3 * 160 + 4 * 16 * 32),
    2 * (3 * 96 + 2 * 16 * 32),
    2 * (3 * 160 + 4 * 16 * 32),
    2 * (3 * 128 + 2 * 16 * 64),
];

#[test]
fn two_cpus_give_the_bits_of_one_wherever_the_cut_is() {
    let (first, second) = (threads_of_cpu(1), threads_of_cpu(2));
    for shape in SHAPES {
        let ids = prompt(3, 90);
        let expected = shape.logits_on(&second, &ids);
        let options = ENGINE.with_sequences(3);
        let states_bytes = shape.engine_on(&first, options).memory().states_bytes;
        for layers in 1..=shape.layers as usize {
            let layout = Layout { layers, expert_layers: 0 };
            let hybrid = HybridBackend::new(&first, &second, layout);
            assert!(shape.logits_on(&hybrid, &ids) == expected, "{} {layers}", shape.architecture);
            let engine = shape.engine_on(&hybrid, options);
            assert_eq!(engine.memory(), engine.memory_need().held);
            assert_eq!(engine.memory().states_bytes, states_bytes);
        }
    }
    let layout = Layout { layers: 1, expert_layers: 0 };
    check_forks_and_cuts(&HybridBackend::new(&first, &second, layout));
}

/// Room for two sequences and the states before a draft.
const DRAFTS: EngineOptions = ENGINE.with_sequences(2).with_speculates(true);

/// Draws of three tokens, so that every model repeats some parts, and goes on otherwise after
/// others.
fn few_tokens(max_tokens: usize) -> GenerateOptions {
    let logit_bias = (0..3).map(|id| (id, 50.0)).collect();
    let flat = SamplerConfig::default().with_temperature(3.0).with_top_k(0).with_top_p(1.0);
    with_sampler(flat.with_logit_bias(logit_bias).with_min_p(0.0).with_seed(7), max_tokens)
}

#[test]
fn drafts_need_room_for_states() {
    let backend = threads_of_cpu(1);
    let tiny = Engine::load(Model::open(tiny()).unwrap(), &backend, ENGINE, &mut |_| ()).unwrap();
    let options = SpeculationOptions::default();
    for shape in SHAPES {
        let engine = || shape.engine(1, ENGINE.with_sequences(1));
        let ngram = Speculation::ngram(&engine(), options).err();
        let draft_model = Speculation::draft_model(&tiny, engine(), options).err();
        for error in [ngram, draft_model] {
            assert!(matches!(error, Some(Error::NoDraftStates)), "{error:?}");
        }
    }
}

/// The states after a draft of which some tokens were accepted are those after these tokens: the
/// following tokens and logits have the bits of a generation without drafts.
#[test]
fn drafts_of_the_text_do_not_change_answers() {
    for shape in SHAPES {
        let mut engine = shape.engine(1, DRAFTS);
        for lengths in [fixed(1), fixed(5), SpeculationOptions::default()] {
            let mut sums = (0, 0);
            for (seed, prompt) in (0..).zip(prompts()) {
                for options in [greedy(40), few_tokens(40), sampled(seed, 20)] {
                    let mut speculation = Speculation::ngram(&engine, lengths).unwrap();
                    add(&mut sums, &compare(&mut engine, &mut speculation, &prompt, &options));
                }
            }
            let (drafted, accepted) = sums;
            let name = shape.architecture;
            assert!(accepted > 0 && accepted < drafted, "{name}, {lengths:?}: {sums:?}");
        }
        assert_eq!(engine.kv_stats_of(PageGroup::State).used_pages, 0);
        assert_eq!(engine.kv_stats().used_pages, 0);
    }
}

#[test]
fn a_recurrent_model_drafts_and_is_drafted_for() {
    let backend = threads_of_cpu(1);
    let mut tiny =
        Engine::load(Model::open(tiny()).unwrap(), &backend, DRAFTS, &mut |_| ()).unwrap();
    for shape in SHAPES {
        let engine = || shape.engine(1, DRAFTS);
        let mut target = engine();
        // The model itself is always right.
        let mut same = Speculation::draft_model(&target, engine(), fixed(4)).unwrap();
        // Another one is mostly wrong.
        let mut other = Speculation::draft_model(&tiny, engine(), fixed(3)).unwrap();
        for prompt in prompts().into_iter().step_by(2) {
            let timings = compare(&mut target, &mut same, &prompt, &greedy(31)).timings;
            assert!(timings.drafted_tokens >= 20, "{timings:?}");
            assert_eq!(timings.accepted_tokens, timings.drafted_tokens);
            compare(&mut tiny, &mut other, &prompt, &greedy(20));
            compare(&mut target, &mut same, &prompt, &sampled(7, 20));
        }
    }
}

#[test]
fn every_end_of_a_drafted_answer_is_the_same() {
    let mut engine = QWEN35.engine(1, DRAFTS.with_context_tokens(Some(64)));
    let repeated = prompt(3, 12).repeat(3);
    let mut sums = (0, 0);
    for max_tokens in (0..10).chain([27, 28, 29, 60]) {
        for context_shift in [false, true] {
            let options = few_tokens(max_tokens).with_context_shift(context_shift);
            let mut speculation = Speculation::ngram(&engine, fixed(6)).unwrap();
            add(&mut sums, &compare(&mut engine, &mut speculation, &repeated, &options));
        }
    }
    assert!(sums.1 > 0 && sums.1 < sums.0, "{sums:?}");
}

#[test]
fn a_drafted_request_keeps_its_checkpoints() {
    check_drafts_of_a_scheduler(&threads_of_cpu(2));
}

fn check_drafts_of_a_scheduler(backend: &dyn Backend) {
    for shape in SHAPES {
        let mut alone_engine = shape.engine_on(backend, with_checkpoints(0));
        let options = with_checkpoints(8).with_speculates(true);
        let engine = shape.engine_on(backend, options);
        let speculation = Speculation::ngram(&engine, fixed(5)).unwrap();
        let scheduler = Scheduler::start_with_drafts(engine, Some(speculation), SCHEDULER).unwrap();
        let handle = scheduler.handle();
        let mut sums = (0, 0);
        for prompt in prompts() {
            let options = few_tokens(40);
            let expected = alone(&mut alone_engine, &prompt, &options).ids;
            let answer = ask(&handle, &prompt, &options);
            assert_eq!(answer.ids, expected, "{}", shape.architecture);
            sums.0 += answer.timings.drafted_tokens;
            sums.1 += answer.timings.accepted_tokens;
            // The next turn begins at the last page boundary of the answer, or before a draft that
            // ended there.
            let next = [&prompt[..], &answer.ids, &[3, 4, 5]].concat();
            let answer = ask(&handle, &next, &greedy(4));
            let expected = alone(&mut alone_engine, &next, &greedy(4)).ids;
            assert_eq!(answer.ids, expected, "{}", shape.architecture);
            let last = (next.len() - 4) / PAGE_TOKENS * PAGE_TOKENS;
            let cached_tokens = answer.timings.cached_tokens;
            assert!(cached_tokens + PAGE_TOKENS >= last, "{cached_tokens} of {last}");
        }
        assert!(sums.1 > 0 && sums.1 < sums.0, "{}: {sums:?}", shape.architecture);
        end(scheduler);
    }
}

/// The recurrent states after a prompt that is computed in batches of some tokens.
fn states_after(shape: &Shape, backend: &dyn Backend, batch_tokens: usize) -> Vec<f32> {
    let options = ENGINE.with_context_tokens(Some(512)).with_batch_tokens(batch_tokens);
    let mut engine = shape.engine_on(backend, options);
    let mut session = engine.session();
    engine.prefill(&mut session, &prompt(3, 300)).unwrap();
    saved::states(&engine, &session)
}

fn check_states_after_chunks(backend: &dyn Backend, bound: f32) {
    for shape in SHAPES {
        let whole = states_after(&shape, backend, 512);
        let largest = whole.iter().map(|x| x.abs()).fold(0.0, f32::max);
        assert!(largest > 0.0);
        for batch_tokens in [1, 7, 64, 200] {
            let chunks = states_after(&shape, backend, batch_tokens);
            assert_eq!(chunks.len(), whole.len());
            let errors = chunks.iter().zip(&whole).map(|(a, b)| (a - b).abs());
            let error = errors.max_by(f32::total_cmp).unwrap() / largest;
            assert!(error <= bound, "{} in chunks of {batch_tokens}: {error}", shape.architecture);
        }
    }
}

#[test]
fn the_states_after_a_prompt_do_not_depend_on_its_chunks() {
    check_states_after_chunks(&threads_of_cpu(2), 0.0);
}
