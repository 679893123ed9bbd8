//! Several choices, seeds and log probabilities.

use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Event, Request};
use rf_engine::{Outputs, SequenceInput, StopReason};

use crate::support::{
    ENGINE, SCHEDULER, VOCAB_SIZE, alone, ask, end, engine, greedy, prompt, sampled, start, submit,
    tiny, with_sampler,
};

#[test]
fn choices_share_the_prompt_and_have_seeds_of_their_own() {
    let mut alone_engine = engine(&tiny(), ENGINE);
    // 6 pages of the prompt, of which the last is partial.
    let ids = prompt(5, 90);
    let expected: Vec<Vec<u32>> =
        (0..6).map(|i| alone(&mut alone_engine, &ids, &sampled(11 + i, 24)).ids).collect();
    assert!(expected[1..].iter().all(|other| *other != expected[0]), "the seed matters");
    let few = |max_num_seqs| SCHEDULER.with_max_num_seqs(max_num_seqs);
    let small = ENGINE.with_kv_tokens(Some(160));
    for (engine_options, options) in [
        (ENGINE, SCHEDULER),
        (ENGINE, few(1)),
        (ENGINE, few(4)),
        (small, SCHEDULER),
        (small, few(3).with_prefix_cache(false)),
    ] {
        let scheduler = start(engine_options, options);
        let handle = scheduler.handle();
        let (_, events) = submit(&handle, &ids, &sampled(11, 24), |r| r.num_choices = 6);
        let answers = events.answers().unwrap();
        let actual: Vec<&Vec<u32>> = answers.iter().map(|answer| &answer.ids).collect();
        assert_eq!(actual, expected.iter().collect::<Vec<_>>(), "{options:?}");
        assert!(answers.iter().all(|answer| answer.timings.prompt_tokens == 90));
        let stats = end(scheduler);
        assert_eq!((stats.prompt_tokens, stats.generation_tokens), (90, 6 * 24));
        assert_eq!(stats.finished.length, 6);
        if engine_options == ENGINE && options == SCHEDULER {
            // The prompt once, and all but the last token of each choice.
            assert_eq!(stats.step_tokens, 90 + 6 * 23);
            assert_eq!(stats.preemptions, 0);
        }
    }
}

#[test]
fn a_seed_repeats_its_answer_and_a_drawn_one_is_reported() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let ids = prompt(1, 20);
    let first = ask(&handle, &ids, &sampled(1, 20)).ids;
    assert_eq!(ask(&handle, &ids, &sampled(1, 20)).ids, first);
    assert_ne!(ask(&handle, &ids, &sampled(2, 20)).ids, first);

    let sampler = sampled(0, 0).sampler.with_seed(None);
    let (_, events) = submit(&handle, &ids, &with_sampler(sampler, 20), |r| r.num_choices = 2);
    let mut drawn = None;
    let mut second_choice = Vec::new();
    for event in &events.receiver {
        match event {
            Event::Started { seed, .. } => drawn = Some(seed),
            Event::Token { choice: 1, id, .. } => second_choice.push(id),
            _ => {}
        }
    }
    assert_eq!(ask(&handle, &ids, &sampled(drawn.unwrap() + 1, 20)).ids, second_choice);
    end(scheduler);
}

#[test]
fn penalties_survive_preemption() {
    let sampler = SamplerConfig::greedy()
        .with_repeat_penalty(1.3)
        .with_frequency_penalty(0.5)
        .with_repeat_last_n(None);
    let options = with_sampler(sampler, 60);
    let small = ENGINE.with_kv_tokens(Some(160));
    let scheduler = start(small, SCHEDULER);
    let handle = scheduler.handle();
    let prompts: Vec<Vec<u32>> = (0..4).map(|seed| prompt(seed, 30)).collect();
    let events: Vec<_> =
        prompts.iter().map(|ids| submit(&handle, ids, &options, |_| ()).1).collect();
    let mut alone_engine = engine(&tiny(), ENGINE);
    for (events, ids) in events.into_iter().zip(&prompts) {
        assert_eq!(events.answer().ids, alone(&mut alone_engine, ids, &options).ids);
    }
    assert!(end(scheduler).preemptions > 0);
}

#[test]
fn log_probabilities_are_those_of_the_logits() {
    let ids = prompt(2, 30);
    let scheduler = start(ENGINE, SCHEDULER);
    // Sampled, with a bias: neither changes the log probabilities.
    let mut options = sampled(3, 12);
    options.sampler.logit_bias = vec![(9, 2.0)];
    let (_, events) = submit(&scheduler.handle(), &ids, &options, |r| r.logprobs = Some(4));
    let answer = events.answer();
    assert_eq!(answer.logprobs.len(), 12);
    end(scheduler);

    let mut engine = engine(&tiny(), ENGINE);
    let mut session = engine.session();
    let all = [&ids[..], &answer.ids].concat();
    let mut feeds = [SequenceInput { session: &mut session, ids: &all, outputs: Outputs::All }];
    let logits = engine.forward(&mut feeds).unwrap();
    let rows = logits.chunks_exact(VOCAB_SIZE).skip(ids.len() - 1);
    for ((row, id), logprob) in rows.zip(&answer.ids).zip(&answer.logprobs) {
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        let expected = |id: u32| f64::from(row[id as usize]) - sum.ln();
        assert!((f64::from(logprob.logprob) - expected(*id)).abs() < 1e-4);
        let mut order: Vec<u32> = (0..VOCAB_SIZE as u32).collect();
        order.sort_by(|a, b| expected(*b).total_cmp(&expected(*a)));
        assert_eq!(logprob.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), order[..4]);
        for (id, logprob) in &logprob.top {
            assert!((f64::from(*logprob) - expected(*id)).abs() < 1e-4);
        }
    }
}

#[test]
fn log_probabilities_of_a_prompt_are_those_of_its_tokens() {
    let ids = &prompt(2, 130);
    // Too few pages for all, so that prompts are preempted, and a prompt that is cached.
    let small = ENGINE.with_kv_tokens(Some(320));
    let scheduler = start(small, SCHEDULER.with_max_batched_tokens(24));
    let handle = scheduler.handle();
    ask(&handle, ids, &greedy(1));
    let change = |request: &mut Request| {
        request.prompt_logprobs = Some(2);
        request.num_choices = 2;
    };
    let asked: Vec<_> = (0..3).map(|_| submit(&handle, ids, &greedy(20), change).1).collect();
    let (_, nothing) = submit(&handle, &ids[..1], &greedy(0), change);
    let answers: Vec<_> = asked.into_iter().map(|events| events.answers().unwrap()).collect();
    let nothing = nothing.answers().unwrap();
    assert_eq!(nothing[0].prompt_logprobs.as_deref(), Some(&[][..]));
    assert!(end(scheduler).preemptions > 0);

    let mut engine = engine(&tiny(), ENGINE);
    let mut session = engine.session();
    let mut feeds = [SequenceInput { session: &mut session, ids, outputs: Outputs::All }];
    let logits = engine.forward(&mut feeds).unwrap();
    for answer in answers {
        assert_eq!(answer[0].timings.cached_tokens, 0);
        assert_eq!(answer[1].ids, answer[0].ids);
        let found = answer[0].prompt_logprobs.as_ref().unwrap();
        assert_eq!(found.len(), ids.len() - 1);
        for ((row, id), found) in logits.chunks_exact(VOCAB_SIZE).zip(&ids[1..]).zip(found) {
            let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            let expected = f64::from(row[*id as usize]) - sum.ln();
            assert!((f64::from(found.logprob) - expected).abs() < 1e-4);
            assert_eq!(found.top.len(), 2);
        }
    }
}

#[test]
fn no_tokens_means_only_the_prompt() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let ids = prompt(1, 40);
    let (_, events) = submit(&handle, &ids, &greedy(0), |r| r.num_choices = 2);
    for answer in events.answers().unwrap() {
        assert_eq!((answer.ids.len(), answer.end), (0, Some(StopReason::Length)));
        assert_eq!(answer.timings.prompt_tokens, 40);
    }
    // It warms the cache.
    assert_eq!(ask(&handle, &ids, &greedy(1)).timings.cached_tokens, 32);
    end(scheduler);
}
