//! The same tokens whatever the threads, chunks, pages and neighbours; and every way to end.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use rf_engine::sampling::SamplerConfig;
use rf_engine::{
    Engine, EngineOptions, Error, GenerateOptions, GenerationOutcome, Outputs, SequenceInput,
    Session, StopReason,
};
use rf_graph::{BackendError, KvType};
use rf_testing::engine::{cpu, load as engine, tiny as tiny_file};
use rf_testing::{demo_model as demo, golden_model, prompt, tiny_model as tiny};
use rf_tokenizer::EncodeOptions;

/// Tiny models of other kinds: windows, two head sizes and shared caches; sinks and experts in
/// MXFP4; experts and a shared one; latent attention.
fn others() -> [PathBuf; 4] {
    ["gemma4_e4b", "gptoss_mxfp4", "glm4moe", "deepseek2_groups"].map(golden_model)
}

const BASE: EngineOptions = EngineOptions::DEFAULT
    .with_context_tokens(Some(160))
    .with_batch_tokens(64)
    .with_kv_tokens(Some(3 * 192))
    .with_sequences(3);

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions::default()
        .with_sampler(SamplerConfig::greedy())
        .with_max_tokens(max_tokens)
        .with_ignore_eos(true)
}

fn generate(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[u32],
    options: &GenerateOptions,
) -> GenerationOutcome {
    engine.generate(session, prompt, options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Logits as bits, so that nothing is equal by chance.
fn feed(engine: &mut Engine, feeds: &mut [(&mut Session, &[u32])], outputs: Outputs) -> Vec<u32> {
    let mut feeds: Vec<SequenceInput<'_>> =
        feeds.iter_mut().map(|(session, ids)| SequenceInput { session, ids, outputs }).collect();
    engine.forward(&mut feeds).unwrap().iter().map(|logit| logit.to_bits()).collect()
}

/// All logits of a prompt, and what follows it.
fn fingerprint(engine: &mut Engine, ids: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut session = engine.session();
    let logits = feed(engine, &mut [(&mut session, ids)], Outputs::All);
    session.reset();
    (logits, generate(engine, &mut session, ids, &greedy(12)).ids)
}

#[test]
fn results_do_not_depend_on_threads_chunks_or_pages() {
    let mut models = vec![
        (tiny(), &[KvType::F16, KvType::Q8_0, KvType::Fp8, KvType::Q4_0, KvType::Q5_0][..]),
        (demo(), &[KvType::F16, KvType::Q8_0, KvType::Q4_0]),
    ];
    models.extend(others().map(|path| (path, &[KvType::F16, KvType::Q8_0][..])));
    for (path, kv_types) in models {
        for &kv_type in kv_types {
            let base = BASE.with_kv_type(kv_type);
            let ids = prompt(3, 100);
            let expected = fingerprint(&mut engine(&path, 1, base), &ids);
            assert_eq!(expected.1.len(), 12);
            let mut variants: Vec<(usize, EngineOptions)> = vec![(2, base), (3, base)];
            for batch_tokens in [1, 7, 512] {
                variants.push((2, base.with_batch_tokens(batch_tokens)));
            }
            for page_tokens in [16, 64] {
                variants.push((2, base.with_page_tokens(page_tokens)));
                variants.push((3, base.with_page_tokens(page_tokens).with_batch_tokens(7)));
            }
            for (threads, options) in variants {
                let actual = fingerprint(&mut engine(&path, threads, options), &ids);
                assert!(actual == expected, "{threads} threads, {options:?}: {:?}", actual.1);
            }
        }
    }
}

#[test]
fn logits_do_not_depend_on_what_else_is_in_the_batch() {
    let prompts = [prompt(1, 40), prompt(2, 1), prompt(3, 70)];
    for path in [tiny(), demo()].into_iter().chain(others()) {
        for (kv_type, batch_tokens) in [
            (KvType::F16, 512),
            (KvType::Q8_0, 512),
            (KvType::F16, 7),
            (KvType::Q8_0, 7),
            (KvType::Fp8, 7),
            (KvType::Q4_0, 7),
            (KvType::Q5_0, 7),
        ] {
            let options = BASE.with_kv_type(kv_type).with_batch_tokens(batch_tokens);
            let mut engine = engine(&path, 2, options);
            // Alone: the prompt, then three tokens one by one.
            let alone: Vec<Vec<Vec<u32>>> = prompts
                .iter()
                .map(|ids| {
                    let mut session = engine.session();
                    let mut steps =
                        vec![feed(&mut engine, &mut [(&mut session, ids)], Outputs::All)];
                    for id in [5, 6, 7] {
                        steps.push(feed(&mut engine, &mut [(&mut session, &[id])], Outputs::Last));
                    }
                    steps
                })
                .collect();
            let [mut a, mut b, mut c] = [(); 3].map(|()| engine.session());
            let mut together = |ids: [&[u32]; 3], outputs| {
                let [x, y, z] = ids;
                feed(&mut engine, &mut [(&mut a, x), (&mut b, y), (&mut c, z)], outputs)
            };
            let steps = [
                together([&prompts[0], &prompts[1], &prompts[2]], Outputs::All),
                together([&[5]; 3], Outputs::Last),
                together([&[6]; 3], Outputs::Last),
                together([&[7]; 3], Outputs::Last),
            ];
            for (step, logits) in steps.iter().enumerate() {
                let expected: Vec<u32> = alone.iter().flat_map(|s| s[step].clone()).collect();
                assert!(*logits == expected, "step {step}, {options:?}");
            }
        }
    }
}

#[test]
fn what_is_in_the_cache_is_used_and_changes_nothing() {
    let mut engine = engine(&tiny(), 2, BASE);
    let first = prompt(9, 50);
    let mut session = engine.session();
    let answer = generate(&mut engine, &mut session, &first, &greedy(10)).ids;

    let mut continued = first.clone();
    continued.extend(&answer);
    continued.extend(prompt(4, 20));
    let mut diverged = first[..33].to_vec();
    diverged.extend(prompt(5, 30));
    // The last generated token was not computed, and the last of a prompt always is.
    for (ids, cached_tokens) in [(continued, 59), (diverged, 33), (first[..20].to_vec(), 19)] {
        let outcome = generate(&mut engine, &mut session, &ids, &greedy(10));
        assert_eq!(outcome.timings.cached_tokens, cached_tokens);
        assert_eq!(outcome.timings.prompt_tokens, ids.len() - cached_tokens);
        let mut fresh = engine.session();
        assert_eq!(outcome.ids, generate(&mut engine, &mut fresh, &ids, &greedy(10)).ids);
    }
}

#[test]
fn a_full_context_ends_the_generation_or_shifts() {
    let options = BASE.with_context_tokens(Some(40));
    let mut engine = engine(&tiny(), 1, options);
    let ids = prompt(1, 30);
    let without_end = greedy(0).with_max_tokens(None);
    let mut session = engine.session();
    let outcome = generate(&mut engine, &mut session, &ids, &without_end);
    assert_eq!(outcome.stop_reason, StopReason::ContextFull);
    // Ten are in the cache after the prompt, and the last needs no room.
    assert_eq!((outcome.ids.len(), session.len()), (11, 40));

    let shifting = greedy(100).with_context_shift(true);
    let shifted = generate(&mut engine, &mut session, &ids, &shifting);
    assert_eq!((shifted.stop_reason, shifted.ids.len()), (StopReason::Length, 100));
    assert_eq!(shifted.ids[..11], outcome.ids);
    assert!(session.len() <= 40);
    // The cache holds the newest tokens at their new positions: going on from there is as from
    // scratch.
    let kept = session.tokens().to_vec();
    let newest = &shifted.ids[..shifted.ids.len() - 1];
    assert!(newest.ends_with(&kept[kept.len() - 20..]));
    let mut fresh = engine.session();
    let mut steps = kept[..kept.len() - 1].to_vec();
    steps.push(3);
    let a = generate(&mut engine, &mut session, &steps, &greedy(1)).ids;
    assert_eq!(a, generate(&mut engine, &mut fresh, &steps, &greedy(1)).ids);

    // A prompt that fills the context still has one token to give.
    let outcome = generate(&mut engine, &mut session, &prompt(2, 40), &without_end);
    assert_eq!((outcome.ids.len(), outcome.stop_reason), (1, StopReason::ContextFull));
}

#[test]
fn a_stop_string_ends_text_and_stream_just_before_it() {
    let mut engine = engine(&demo(), 2, BASE);
    let ids = engine.model().tokenizer().encode("Once upon a time", EncodeOptions::PROMPT);
    let mut session = engine.session();
    let full = generate(&mut engine, &mut session, &ids, &greedy(60));
    assert_eq!(full.stop_reason, StopReason::Length);
    let start = full.text.char_indices().nth(50).unwrap().0;
    let end = full.text.char_indices().nth(57).unwrap().0;
    let stop = full.text[start..end].to_owned();
    let first = full.text.find(&stop).unwrap();

    let options = greedy(60).with_stop(vec!["never said".into(), stop]);
    let mut streamed = String::new();
    let mut on_text = |text: &str| {
        streamed += text;
        ControlFlow::Continue(())
    };
    let outcome = engine.generate(&mut session, &ids, &options, &mut on_text).unwrap();
    assert_eq!(outcome.stop_reason, StopReason::StopString);
    assert_eq!(outcome.text, full.text[..first]);
    assert_eq!(streamed, outcome.text);
    assert!(full.ids.starts_with(&outcome.ids));

    let mut pieces = 0;
    let mut cancel = |_: &str| {
        pieces += 1;
        if pieces == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let outcome = engine.generate(&mut session, &ids, &greedy(60), &mut cancel).unwrap();
    assert_eq!((outcome.stop_reason, pieces), (StopReason::Cancelled, 3));
    assert!(full.text.starts_with(&outcome.text));
}

#[test]
fn end_of_generation_tokens_end_it_unless_they_are_ignored() {
    let mut engine = engine(&tiny(), 1, BASE);
    let Some(&eog) = engine.model().tokenizer().eog_ids().first() else {
        panic!("the model has a token that ends a generation");
    };
    // A bias that makes the end the likeliest of all.
    let sampler = SamplerConfig::greedy().with_logit_bias(vec![(eog, 1e6)]);
    let options = greedy(5).with_sampler(sampler).with_ignore_eos(false);
    let mut session = engine.session();
    let outcome = generate(&mut engine, &mut session, &prompt(1, 5), &options);
    assert_eq!((outcome.ids, outcome.stop_reason), (vec![eog], StopReason::Eog));
    let options = options.with_ignore_eos(true);
    let outcome = generate(&mut engine, &mut session, &prompt(1, 5), &options);
    assert_eq!((outcome.ids, outcome.stop_reason), (vec![eog; 5], StopReason::Length));
}

#[test]
fn no_tokens_wanted_is_a_valid_wish() {
    let mut engine = engine(&tiny(), 1, BASE);
    let mut session = engine.session();
    let outcome = generate(&mut engine, &mut session, &prompt(1, 5), &greedy(0));
    assert_eq!((outcome.ids.len(), outcome.stop_reason), (0, StopReason::Length));
    assert_eq!((outcome.text.as_str(), session.len()), ("", 5));
}

#[test]
fn what_cannot_be_generated_is_refused_and_the_session_goes_on() {
    let mut engine = engine(&tiny(), 1, BASE);
    let mut session = engine.session();
    let ids = prompt(1, 20);
    let expected = generate(&mut engine, &mut session, &ids, &greedy(5)).ids;
    let mut refused = |ids: &[u32]| {
        let go_on = &mut |_: &str| ControlFlow::Continue(());
        engine.generate(&mut session, ids, &greedy(5), go_on).unwrap_err()
    };
    assert!(matches!(
        refused(&prompt(1, 161)),
        Error::PromptTooLong { prompt_tokens: 161, context_tokens: 160 }
    ));
    assert!(matches!(refused(&[]), Error::EmptyPrompt));
    assert!(matches!(refused(&[1, 272, 2]), Error::UnknownToken { id: 272, vocab_size: 272 }));
    assert!(matches!(refused(&[1, u32::MAX]), Error::UnknownToken { id: u32::MAX, .. }));
    assert_eq!(generate(&mut engine, &mut session, &ids, &greedy(5)).ids, expected);

    let mut feeds = [SequenceInput { session: &mut session, ids: &[], outputs: Outputs::Last }];
    assert!(matches!(engine.forward(&mut feeds), Err(Error::EmptyPrompt)));
    let ids = vec![1; 160];
    let mut feeds = [SequenceInput { session: &mut session, ids: &ids, outputs: Outputs::Last }];
    assert!(matches!(engine.forward(&mut feeds), Err(Error::PromptTooLong { .. })));
}

#[test]
fn options_that_make_no_sense_are_refused_when_loading() {
    let backend = cpu(1);
    let refused =
        |options| Engine::load(tiny_file(), &backend, options, &mut |_| ()).err().expect("refused");
    let zero_context = BASE.with_context_tokens(Some(0));
    assert!(matches!(refused(zero_context), Error::InvalidOption { name: "context size", .. }));
    let zero_batch = BASE.with_batch_tokens(0);
    assert!(matches!(refused(zero_batch), Error::InvalidOption { name: "batch size", .. }));
    assert!(matches!(refused(BASE.with_page_tokens(48)), Error::PageSize(_)));
    let huge = BASE.with_context_tokens(Some(1 << 40)).with_kv_tokens(None);
    assert!(matches!(
        refused(huge),
        Error::Backend(BackendError::DoesNotFit { .. }) | Error::InvalidOption { .. }
    ));
}

#[test]
fn pages_of_a_session_come_back() {
    // Room for one sequence of 64 tokens.
    let options = BASE.with_context_tokens(Some(64)).with_kv_tokens(None);
    let mut engine = engine(&tiny(), 1, options);
    let ids = prompt(1, 60);
    let mut session = engine.session();
    let expected = feed(&mut engine, &mut [(&mut session, &ids)], Outputs::Last);
    // A second one does not fit while the first is there; neither is harmed.
    let mut second = engine.session();
    let mut feeds = [SequenceInput { session: &mut second, ids: &ids, outputs: Outputs::Last }];
    assert!(matches!(engine.forward(&mut feeds), Err(Error::OutOfPages(_))));
    assert!(second.is_empty());
    assert_eq!(session.tokens(), ids);
    drop(session);
    assert_eq!(feed(&mut engine, &mut [(&mut second, &ids)], Outputs::Last), expected);
    drop(second);
    for _ in 0..100 {
        let mut session = engine.session();
        assert_eq!(feed(&mut engine, &mut [(&mut session, &ids)], Outputs::Last), expected);
    }
    let mut session = engine.session();
    for _ in 0..100 {
        feed(&mut engine, &mut [(&mut session, &ids)], Outputs::None);
        session.reset();
    }
}
