//! Drafts from the model's own block for further tokens (MTP).

use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Request, Scheduler};
use rf_engine::{Engine, EngineOptions, Error, Model, Speculation, SpeculationOptions};
use rf_graph::{Backend, Layout};
use rf_kv::PageGroup;
use rf_testing::HybridBackend;

use crate::drafts::{add, compare, fixed, prompts};
use crate::recurrent::shapes::{WITH_MTP, threads_of_cpu};
use crate::support::{
    ENGINE, SCHEDULER, alone, ask, data, end, greedy, prompt, sampled, submit, tiny, with_sampler,
};

const MTP: EngineOptions = ENGINE.with_sequences(2).with_speculates(true).with_mtp(true);

#[test]
fn drafts_of_the_block_do_not_change_answers() {
    for shape in WITH_MTP {
        let mut engine = shape.engine(1, MTP);
        let penalties = SamplerConfig::greedy().with_repeat_penalty(1.2);
        for lengths in [fixed(1), fixed(4), SpeculationOptions::default()] {
            let mut sums = (0, 0);
            let mut speculation = Speculation::mtp(&engine, lengths).unwrap();
            for (seed, prompt) in (0..).zip(prompts()) {
                for options in [greedy(40), with_sampler(penalties.clone(), 20), sampled(seed, 20)]
                {
                    add(&mut sums, &compare(&mut engine, &mut speculation, &prompt, &options));
                }
            }
            let (drafted, accepted) = sums;
            let name = shape.architecture;
            assert!(accepted > 0 && accepted < drafted, "{name}, {lengths:?}: {sums:?}");
        }
        let used = PageGroup::ALL.map(|group| engine.kv_stats_of(group).used_pages);
        assert_eq!(used, [0; 3]);
    }
}

/// The engine without the block computes the same bits, and holds less.
#[test]
fn the_block_is_a_part_of_the_program_and_the_memory_plan_only_where_it_is_wanted() {
    let backend = threads_of_cpu(1);
    for shape in WITH_MTP {
        let model = shape.model();
        let without = MTP.with_mtp(false);
        let needs = [MTP, without].map(|options| {
            let need = model.memory_need(&backend, &options).unwrap();
            let engine = shape.engine_on(&backend, options);
            assert_eq!((need, need.held), (engine.memory_need(), engine.memory()));
            need.held
        });
        let layers = model.config().kv_layers().len() as u64;
        // Layers that are like the block have as many pages.
        assert_eq!(needs[0].kv_bytes * layers, needs[1].kv_bytes * (layers + 1));
        assert_eq!(needs[0].states_bytes, needs[1].states_bytes);
        assert!(needs[0].weights_bytes > needs[1].weights_bytes);
        let text = prompt(3, 90);
        let answers = [MTP, without].map(|options| {
            alone(&mut shape.engine_on(&backend, options), &text, &sampled(3, 30)).ids
        });
        assert_eq!(answers[0], answers[1]);
    }
}

#[test]
fn what_has_no_block_is_refused() {
    let backend = threads_of_cpu(1);
    let load = |options| {
        Engine::load(Model::open(tiny()).unwrap(), &backend, options, &mut |_| ()).map(drop)
    };
    let error = load(MTP).unwrap_err();
    assert!(matches!(error, Error::Model(rf_model::Error::NoMtpBlock { .. })), "{error:?}");
    let engine = WITH_MTP[0].engine(1, ENGINE);
    let error = Speculation::mtp(&engine, SpeculationOptions::default()).err();
    assert!(matches!(error, Some(Error::NoMtp)), "{error:?}");
    let engine = WITH_MTP[2].engine(1, MTP.with_sequences(1).with_speculates(false));
    let error = Speculation::mtp(&engine, SpeculationOptions::default()).err();
    assert!(matches!(error, Some(Error::NoDraftStates)), "{error:?}");
}

#[test]
fn two_backends_give_the_drafts_and_answers_of_one_wherever_the_cut_is() {
    let (first, second) = (threads_of_cpu(1), threads_of_cpu(2));
    let run = |model: Model, backend: &dyn Backend| {
        let mut engine = Engine::load(model, backend, MTP, &mut |_| ()).unwrap();
        assert_eq!(engine.memory(), engine.memory_need().held);
        let mut speculation = Speculation::mtp(&engine, fixed(3)).unwrap();
        let outcome = compare(&mut engine, &mut speculation, &prompt(3, 50), &greedy(40));
        (outcome.ids, outcome.timings.drafted_tokens, outcome.timings.accepted_tokens)
    };
    for shape in WITH_MTP {
        let expected = run(shape.model(), &second);
        assert!(expected.2 > 0);
        for layers in 1..=shape.layers as usize {
            let layout = Layout { layers, expert_layers: 0 };
            let answer = run(shape.model(), &HybridBackend::new(&first, &second, layout));
            assert_eq!(answer, expected, "{} {layers}", shape.architecture);
        }
    }
    // A dense layer, two layers with experts, and a block with experts.
    let model = || Model::open(data("glm4moe")).unwrap();
    let expected = run(model(), &second);
    for (layers, expert_layers) in [(1, 0), (3, 0), (0, 2), (0, 3), (0, usize::MAX), (1, 3)] {
        let layout = Layout { layers, expert_layers };
        let answer = run(model(), &HybridBackend::new(&first, &second, layout));
        assert_eq!(answer, expected, "{layout:?}");
    }
}

/// Requests that begin alike, have several choices, end early and are preempted: the answers are
/// those of each alone, and some tokens are drafted.
#[test]
fn requests_with_drafts_of_the_block_get_the_answers_of_each_alone() {
    for shape in WITH_MTP {
        for (sequences, checkpoints, kv_tokens, prefix_cache) in
            [(8, 4, 64 * 160, true), (3, 0, 3 * 160, true), (2, 0, 2 * 160, false)]
        {
            let options = MTP
                .with_sequences(sequences)
                .with_checkpoints(checkpoints)
                .with_kv_tokens(Some(kv_tokens));
            let mut alone_engine = shape.engine(2, MTP.with_mtp(false));
            let engine = shape.engine(2, options);
            let speculation = Speculation::mtp(&engine, fixed(3)).unwrap();
            let limits = SCHEDULER.with_max_batched_tokens(24).with_prefix_cache(prefix_cache);
            let scheduler =
                Scheduler::start_with_drafts(engine, Some(speculation), limits).unwrap();
            let handle = scheduler.handle();
            let mut sums = (0, 0);
            for round in 0..2 {
                let requests: Vec<_> = (0..5_u32)
                    .map(|i| (prompt(i % 2, 20 + 9 * i), 1 + (i % 3) as usize, u64::from(i)))
                    .collect();
                let events: Vec<_> = requests
                    .iter()
                    .map(|(ids, choices, seed)| {
                        let change = |request: &mut Request| request.num_choices = *choices;
                        submit(&handle, ids, &sampled(seed + round, 15), change).1
                    })
                    .collect();
                for (events, (ids, _, seed)) in events.into_iter().zip(&requests) {
                    for (choice, answer) in (0..).zip(events.answers().unwrap()) {
                        let seed = seed + round + choice;
                        let expected = alone(&mut alone_engine, ids, &sampled(seed, 15)).ids;
                        assert_eq!(answer.ids, expected, "{} {sequences}", shape.architecture);
                    }
                }
                // One alone, whose next turn begins in the prefix cache.
                let text = prompt(7, 50);
                let answer = ask(&handle, &text, &greedy(40));
                assert_eq!(answer.ids, alone(&mut alone_engine, &text, &greedy(40)).ids);
                let next = [&text[..], &answer.ids, &[3, 4]].concat();
                let answer = ask(&handle, &next, &greedy(30));
                assert_eq!(answer.ids, alone(&mut alone_engine, &next, &greedy(30)).ids);
                sums.0 += answer.timings.drafted_tokens;
                sums.1 += answer.timings.accepted_tokens;
            }
            assert!(sums.1 > 0 && sums.1 < sums.0, "{}: {sums:?}", shape.architecture);
            end(scheduler);
        }
    }
}
