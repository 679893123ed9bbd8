//! Speculative decoding: drafts change the speed, and neither text nor distribution.

use std::ops::ControlFlow;
use std::path::Path;

use rf_engine::sampling::{DryConfig, MirostatConfig, MirostatVersion, SamplerConfig};
use rf_engine::scheduler::Scheduler;
use rf_engine::{
    EncodeOptions, Engine, EngineOptions, Error, GenerateExtras, GenerateOptions,
    GenerationOutcome, Model, Outputs, Pooling, SequenceInput, Session, Speculation,
    SpeculationOptions, StopReason,
};

use crate::constraints::{Fault, Phrases};
use crate::support::{
    ENGINE, SCHEDULER, alone, ask, data, demo, end, greedy, prompt, sampled, start, submit, tiny,
    with_sampler,
};

/// A model on one thread: many short generations, for which threads are no help.
pub(crate) fn engine(path: &Path, options: EngineOptions) -> Engine {
    rf_testing::engine::load(path, 1, options)
}

/// Drafts of this length, so that what is drafted does not depend on measured times.
pub(crate) fn fixed(tokens: usize) -> SpeculationOptions {
    SpeculationOptions::default().with_max_draft_tokens(tokens).with_min_draft_tokens(tokens)
}

pub(crate) fn generate(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[u32],
    options: &GenerateOptions,
    extras: GenerateExtras<'_>,
) -> GenerationOutcome {
    let on_text = &mut |_: &str| ControlFlow::Continue(());
    engine.generate_with(session, prompt, options, extras, on_text).unwrap()
}

/// Generates with and without drafts, checks that the results are the same, and returns the one
/// with drafts.
pub(crate) fn compare(
    engine: &mut Engine,
    speculation: &mut Speculation,
    prompt: &[u32],
    options: &GenerateOptions,
) -> GenerationOutcome {
    let (mut session, mut other) = (engine.session(), engine.session());
    let expected = generate(engine, &mut session, prompt, options, GenerateExtras::default());
    let extras = GenerateExtras::default().with_speculation(speculation);
    let outcome = generate(engine, &mut other, prompt, options, extras);
    assert_eq!(outcome.ids, expected.ids, "{prompt:?}");
    assert_eq!(outcome.text, expected.text);
    assert_eq!(outcome.stop_reason, expected.stop_reason);
    // A recurrent model has not computed the accepted tokens of a rejected draft again.
    let is_recurrent = engine.model().config().is_recurrent();
    assert!(session.tokens().starts_with(other.tokens()));
    assert!(is_recurrent || session.len() == other.len());
    // The cache holds what the tokens say: the next logits have the same bits.
    if session.len() < engine.context_tokens() {
        let ids = [session.tokens(), &[7]].concat();
        let [a, b] = [&mut session, &mut other].map(|session| {
            let ids = &ids[session.len()..];
            let feed = SequenceInput { session, ids, outputs: Outputs::Last };
            let logits = engine.forward(&mut [feed]).unwrap();
            logits.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert!(a == b, "{prompt:?}");
    }
    outcome
}

/// Arbitrary tokens, a text that repeats, and one that repeats with changes.
pub(crate) fn prompts() -> Vec<Vec<u32>> {
    let part = prompt(3, 20);
    let mut changed = part.repeat(3);
    changed[25] = 99;
    changed[48] = 98;
    let mut prompts = vec![part.repeat(4), changed, vec![5; 12], [1, 2].repeat(9), vec![8]];
    prompts.extend((0..3).map(|seed| prompt(seed, 30 + seed)));
    prompts
}

/// Adds up drafted and accepted tokens.
pub(crate) fn add(sums: &mut (usize, usize), outcome: &GenerationOutcome) {
    sums.0 += outcome.timings.drafted_tokens;
    sums.1 += outcome.timings.accepted_tokens;
}

#[test]
fn greedy_ids_are_those_without_drafts() {
    let options = ENGINE.with_kv_tokens(Some(4 * 160)).with_sequences(2);
    // Models with and without windows, which drafts of 9 tokens and pages of 16 pass.
    let adaptive = SpeculationOptions::default();
    // Few tokens are likely, so that every model repeats some.
    let few = (0..16).map(|id| (id, 50.0)).collect();
    let few = with_sampler(SamplerConfig::greedy().with_logit_bias(few), 40);
    for (name, lengths) in [
        ("smollm3", &[fixed(9), adaptive][..]),
        ("gemma4_e4b", &[fixed(9)]),
        ("gptoss_mxfp4", &[fixed(9)]),
        ("glm4moe", &[fixed(2)]),
        ("deepseek2_groups", &[fixed(2)]),
    ] {
        let mut engine = engine(&data(name), options);
        for &length in lengths {
            let mut sums = (0, 0);
            for prompt in prompts() {
                for options in [&greedy(40), &few] {
                    let mut speculation = Speculation::ngram(&engine, length).unwrap();
                    add(&mut sums, &compare(&mut engine, &mut speculation, &prompt, options));
                }
            }
            let (drafted, accepted) = sums;
            assert!(accepted > 0 && accepted < drafted, "{name}, {length:?}: {sums:?}");
        }
    }
}

#[test]
fn a_story_that_is_repeated_is_drafted_from_its_text() {
    let mut engine = engine(&demo(), ENGINE.with_context_tokens(Some(400)));
    let ids = |text: &str| engine.model().tokenizer().encode(text, EncodeOptions::PROMPT);
    let story = "Once upon a time, there was a fox named Ivy. Ivy lost her key in the garden. ";
    let prompts = [ids(story), ids(&story.repeat(3)), ids(&format!("{story}\n{story}Once upon"))];
    let mut sums = (0, 0);
    for prompt in prompts {
        let mut speculation = Speculation::ngram(&engine, fixed(5)).unwrap();
        add(&mut sums, &compare(&mut engine, &mut speculation, &prompt, &greedy(100)));
    }
    assert!(sums.1 > 0 && sums.1 < sums.0, "{sums:?}");
}

#[test]
fn seeds_give_the_same_text_with_every_sampler() {
    let mut engine = engine(&tiny(), ENGINE);
    let base = || sampled(1, 0).sampler;
    let mirostat = |version| MirostatConfig::new(version).with_tau(3.0).with_eta(0.2);
    let dry = DryConfig::default().with_multiplier(1.0);
    let samplers = [
        base(),
        base().with_temperature(0.3).with_top_k(0),
        base().with_repeat_penalty(1.3).with_presence_penalty(0.5),
        base().with_dry(dry).with_temperature(0.5),
        base().with_mirostat(mirostat(MirostatVersion::V2)),
        base().with_mirostat(mirostat(MirostatVersion::V1)),
        base().with_xtc_probability(0.5).with_dynatemp_range(0.3),
        SamplerConfig::greedy().with_frequency_penalty(0.8),
        base().with_logit_bias((0..500).map(|id| (id, -9.0)).collect()),
    ];
    let mut sums = (0, 0);
    for sampler in samplers {
        for (seed, prompt) in (0..).zip(prompts()).step_by(2) {
            let sampler = sampler.clone().with_seed(seed);
            let mut speculation = Speculation::ngram(&engine, fixed(4)).unwrap();
            let options = with_sampler(sampler, 30);
            add(&mut sums, &compare(&mut engine, &mut speculation, &prompt, &options));
        }
    }
    assert!(sums.1 > 0 && sums.1 < sums.0, "{sums:?}");
}

#[test]
fn every_end_is_the_same() {
    let part = prompt(3, 12);
    let repeated = part.repeat(3);
    let small = ENGINE.with_context_tokens(Some(64));
    let mut engine = engine(&tiny(), small);
    let base = greedy(20);
    let until = |max_tokens| base.clone().with_max_tokens(max_tokens);
    let mut with = |options: &GenerateOptions, expected| {
        let mut speculation = Speculation::ngram(&engine, fixed(6)).unwrap();
        let outcome = compare(&mut engine, &mut speculation, &repeated, options);
        assert_eq!(outcome.stop_reason, expected);
        outcome
    };
    let whole = with(&base, StopReason::Length);
    for count in 0..8 {
        with(&until(Some(count)), StopReason::Length);
    }
    with(&until(None), StopReason::ContextFull);
    let shifting = until(Some(150)).with_context_shift(true);
    let shifted = with(&shifting, StopReason::Length);
    assert!(shifted.timings.accepted_tokens > 0);
    // Every generated token ends a generation once.
    for end in &whole.ids {
        let stop = vec![text_of(&engine, *end)];
        let options = base.clone().with_stop(stop);
        let mut speculation = Speculation::ngram(&engine, fixed(6)).unwrap();
        compare(&mut engine, &mut speculation, &repeated, &options);
    }
    // The model's own end, in the middle of a draft.
    let eog = engine.model().tokenizer().eog_ids()[0];
    let ends = [&[1, 2, 3, eog, 4][..], &part, &[1, 2, 3, eog, 4], &part, &[1, 2, 3]].concat();
    let sampler = SamplerConfig::greedy().with_logit_bias(vec![(eog, 1e6)]);
    let options = base.clone().with_sampler(sampler).with_ignore_eos(false);
    let mut speculation = Speculation::ngram(&engine, fixed(6)).unwrap();
    let outcome = compare(&mut engine, &mut speculation, &ends, &options);
    assert_eq!(outcome.stop_reason, StopReason::Eog);
}

fn text_of(engine: &Engine, id: u32) -> String {
    String::from_utf8_lossy(&engine.model().tokenizer().piece(id).unwrap()).into_owned()
}

#[test]
fn a_stopped_answer_leaves_the_tokens_that_were_shown() {
    let mut engine = engine(&tiny(), ENGINE);
    let repeated = prompt(3, 12).repeat(3);
    let mut speculation = Speculation::ngram(&engine, fixed(6)).unwrap();
    let mut pieces = 0;
    let mut cancel = |_: &str| {
        pieces += 1;
        if pieces == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut session = engine.session();
    let extras = GenerateExtras::default().with_speculation(&mut speculation);
    let outcome =
        engine.generate_with(&mut session, &repeated, &greedy(40), extras, &mut cancel).unwrap();
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    let computed = [&repeated, &outcome.ids[..outcome.ids.len() - 1]].concat();
    assert_eq!(session.tokens(), computed);
}

#[test]
fn a_constraint_holds_in_drafts() {
    let mut engine = engine(&tiny(), ENGINE);
    // The text suggests what the constraint allows at first, and then what it does not allow.
    let mut speculation = Speculation::ngram(&engine, fixed(3)).unwrap();
    let phrases = vec![vec![1, 2, 3, 4, 5, 6, 7, 8], vec![1, 2, 3, 9, 9, 9, 9, 9]];
    let prompt = [&[50, 51, 1, 2, 3, 4, 5, 80, 81, 82][..], &prompt(4, 9), &[50, 51]].concat();
    for options in [greedy(20), sampled(3, 20), sampled(4, 20)] {
        let mut run = |speculation| {
            let constraint = Some(Phrases::boxed(&phrases, false, Fault::None));
            let extras =
                GenerateExtras::default().with_constraint(constraint).with_speculation(speculation);
            let mut session = engine.session();
            let outcome = generate(&mut engine, &mut session, &prompt, &options, extras);
            (outcome, session.tokens().to_vec())
        };
        let (expected, expected_tokens) = run(None);
        assert_eq!(expected.stop_reason, StopReason::Constraint);
        assert!(phrases.contains(&expected.ids));
        let (outcome, tokens) = run(Some(&mut speculation));
        assert!(outcome.timings.drafted_tokens > 0);
        assert_eq!((outcome.ids, outcome.stop_reason), (expected.ids, StopReason::Constraint));
        assert_eq!(tokens, expected_tokens);
    }
}

#[test]
fn a_draft_model_drafts_what_it_would_generate() {
    let options = ENGINE.with_kv_tokens(Some(4 * 160)).with_sequences(2);
    let mut target = engine(&tiny(), options);
    // The model itself is always right.
    let same = engine(&tiny(), options);
    let mut speculation = Speculation::draft_model(&target, same, fixed(4)).unwrap();
    for prompt in prompts() {
        let timings = compare(&mut target, &mut speculation, &prompt, &greedy(31)).timings;
        assert!(timings.drafted_tokens >= 20, "{timings:?}");
        assert_eq!(timings.accepted_tokens, timings.drafted_tokens);
    }
    // Others are wrong, also ones with a window and with a smaller context.
    for name in ["glm4moe", "gemma4_e4b"] {
        let draft = engine(&data(name), options.with_context_tokens(Some(70)));
        let mut speculation = Speculation::draft_model(&target, draft, fixed(5)).unwrap();
        let mut sums = (0, 0);
        for prompt in prompts().into_iter().step_by(2) {
            add(&mut sums, &compare(&mut target, &mut speculation, &prompt, &greedy(20)));
            compare(&mut target, &mut speculation, &prompt, &sampled(5, 10));
        }
        assert!(sums.0 > sums.1, "{name}: {sums:?}");
    }
}

/// A scheduler of the tiny model with drafts.
fn scheduler_with_drafts(drafts: SpeculationOptions) -> Scheduler {
    let engine = engine(&tiny(), ENGINE);
    let speculation = Speculation::ngram(&engine, drafts).unwrap();
    Scheduler::start_with_drafts(engine, Some(speculation), SCHEDULER).unwrap()
}

#[test]
fn a_request_alone_on_a_scheduler_is_drafted_and_gets_the_same_answer() {
    let scheduler = scheduler_with_drafts(fixed(5));
    let handle = scheduler.handle();
    let mut engine = engine(&tiny(), ENGINE);
    let mut sums = (0, 0);
    for (seed, prompt) in (0..).zip(prompts()) {
        for options in [greedy(40), sampled(seed, 20)] {
            let expected = alone(&mut engine, &prompt, &options);
            let answer = ask(&handle, &prompt, &options);
            assert_eq!((answer.ids, answer.text), (expected.ids, expected.text));
            sums.0 += answer.timings.drafted_tokens;
            sums.1 += answer.timings.accepted_tokens;
        }
    }
    assert!(sums.1 > 0 && sums.1 < sums.0, "{sums:?}");
    // What the prefix cache has of a sequence with drafts are its tokens.
    let prompt = prompt(3, 20).repeat(4);
    let whole = ask(&handle, &prompt, &greedy(40));
    let longer = [&prompt[..], &whole.ids, &[7, 8]].concat();
    let expected = alone(&mut engine, &longer, &greedy(10)).ids;
    let answer = ask(&handle, &longer, &greedy(10));
    assert_eq!(answer.ids, expected);
    assert!(answer.timings.cached_tokens > 80, "{:?}", answer.timings);
    end(scheduler);
}

#[test]
fn log_probabilities_constraints_and_choices_are_the_same_with_drafts() {
    let prompt = prompt(3, 20).repeat(3);
    let phrases = [vec![1, 2, 3, 4, 5, 6], vec![1, 2, 9, 9, 9, 9, 9]];
    let run = |scheduler: Scheduler| {
        let handle = scheduler.handle();
        let (mut logprobs, mut accepted) = (Vec::new(), 0);
        for prompt in prompts() {
            let (_, events) = submit(&handle, &prompt, &greedy(30), |request| {
                request.logprobs = Some(3);
            });
            let answer = events.answer();
            accepted += answer.timings.accepted_tokens;
            logprobs.push((answer.ids, answer.logprobs));
        }
        let forced = [false, true].map(|forces| {
            let constraint = Phrases::boxed(&phrases, forces, Fault::None);
            submit(
                &handle,
                &[&prompt[..], &[50, 1, 2, 3, 4, 7, 50]].concat(),
                &sampled(2, 9),
                |r| {
                    r.constraint = Some(constraint);
                },
            )
        });
        let forced = forced.map(|(_, events)| events.answer().ids);
        // Choices begin together and end one after the other, so that the last one runs alone.
        let (_, choices) = submit(&handle, &prompt, &sampled(9, 30), |request| {
            request.num_choices = 3;
        });
        let choices: Vec<_> = choices.answers().unwrap().into_iter().map(|a| a.ids).collect();
        end(scheduler);
        ((logprobs, forced, choices), accepted)
    };
    let (expected, without) = run(start(ENGINE, SCHEDULER));
    let (answers, accepted) = run(scheduler_with_drafts(fixed(4)));
    assert_eq!(answers, expected);
    assert!(accepted > 0 && without == 0, "{accepted}");
}

#[test]
fn requests_with_drafts_come_and_go() {
    let scheduler = scheduler_with_drafts(SpeculationOptions::default());
    let handle = scheduler.handle();
    let mut engine = engine(&tiny(), ENGINE);
    let requests: Vec<_> = (0..12)
        .map(|seed| (prompts().swap_remove(seed % 5), sampled(seed as u64, 5 + 2 * seed)))
        .collect();
    let events: Vec<_> = requests
        .iter()
        .map(|(prompt, options)| submit(&handle, prompt, options, |_| ()).1)
        .collect();
    for ((prompt, options), events) in requests.iter().zip(events) {
        assert_eq!(events.answer().ids, alone(&mut engine, prompt, options).ids);
    }
    end(scheduler);
}

#[test]
fn what_cannot_draft_is_refused() {
    let target = engine(&tiny(), ENGINE);
    let refused = |options| Speculation::ngram(&target, options).err();
    let none = SpeculationOptions::default().with_max_draft_tokens(0).with_min_draft_tokens(0);
    assert!(matches!(refused(none), Some(Error::InvalidOption { name: "length of drafts", .. })));
    let crossed = SpeculationOptions::default().with_max_draft_tokens(3).with_min_draft_tokens(4);
    assert!(matches!(refused(crossed), Some(Error::InvalidOption { value: 4, .. })));

    let other = Speculation::draft_model(&target, engine(&demo(), ENGINE), fixed(4)).err();
    let Some(error @ Error::DraftVocabulary { .. }) = other else { panic!("{other:?}") };
    assert!(error.to_string().contains("another vocabulary, first at token"), "{error}");
    let models = [tiny(), data("glm4moe")].map(|path| Model::open(path).unwrap());
    models[0].check_draft_vocabulary(&models[1]).unwrap();

    let embeds = ENGINE.with_pooling(Some(Pooling::Mean));
    let embeds = Speculation::ngram(&engine(&tiny(), embeds), fixed(4)).err();
    assert!(matches!(embeds, Some(Error::CannotDropTokens)), "{embeds:?}");
}
