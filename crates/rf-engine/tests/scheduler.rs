//! Requests served together: the answers of each one alone, and every way to end.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Event, Request, RequestError, Scheduler, SchedulerOptions};
use rf_engine::{Engine, EngineOptions, GenerateOptions, Model, StopReason, Timings};
use rf_graph::KvType;

/// A tiny Qwen3 with F16 weights: 512 tokens, context 256.
fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/qwen3.gguf")
}

const BASE: EngineOptions = EngineOptions {
    context_tokens: Some(160),
    batch_tokens: 64,
    page_tokens: 16,
    kv_type: KvType::F16,
    kv_tokens: Some(64 * 160),
    pooling: None,
};

const OPTIONS: SchedulerOptions = SchedulerOptions {
    max_num_seqs: 64,
    max_batched_tokens: 64,
    max_queued: 100,
    prefix_cache: true,
};

fn engine(path: &Path, options: EngineOptions) -> Engine {
    let backend = CpuBackend::new(CpuOptions { threads: Some(2), isa: None }).unwrap();
    Engine::load(Model::open(path).unwrap(), &backend, options, &mut |_| ()).unwrap()
}

/// Arbitrary tokens below 500.
fn prompt(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|i| (seed + i * i * 31 + i * 7) % 500).collect()
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        sampler: SamplerConfig::greedy(),
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..GenerateOptions::default()
    }
}

/// A choice of a finished request.
#[derive(Debug, Default)]
struct Answer {
    ids: Vec<u32>,
    text: String,
    end: Option<StopReason>,
    timings: Timings,
}

/// A request with a channel of its events.
fn request(prompt: &[u32], options: &GenerateOptions) -> (Request, Receiver<Event>) {
    let (sender, receiver) = channel();
    let sink = move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    (Request::new(prompt.to_vec(), options.clone(), sink), receiver)
}

/// Collects all events.
fn answers(events: &Receiver<Event>, num_choices: usize) -> Result<Vec<Answer>, RequestError> {
    let mut answers: Vec<Answer> = (0..num_choices).map(|_| Answer::default()).collect();
    for event in events {
        match event {
            Event::Token { choice, id, text, .. } => {
                assert_eq!(answers[choice].end, None, "a token after the end");
                answers[choice].ids.push(id);
                answers[choice].text += &text;
            }
            Event::Finished { choice, reason, text, timings } => {
                assert_eq!(answers[choice].end, None, "a second end");
                answers[choice].text += &text;
                answers[choice].end = Some(reason);
                answers[choice].timings = timings;
            }
            Event::Failed(error) => return Err(error),
            _ => {}
        }
    }
    assert!(answers.iter().all(|answer| answer.end.is_some()), "{answers:?}");
    Ok(answers)
}

#[test]
fn answers_of_concurrent_requests_are_those_of_each_alone() {
    let mut alone = engine(&tiny(), BASE);
    let requests: Vec<(Vec<u32>, GenerateOptions)> =
        (0..64).map(|i| (prompt(i, 1 + i * 2), greedy(1 + (i as usize * 7) % 30))).collect();
    let expected: Vec<Vec<u32>> = requests
        .iter()
        .map(|(ids, options)| {
            let mut session = alone.session();
            let go_on = &mut |_: &str| ControlFlow::Continue(());
            alone.generate(&mut session, ids, options, go_on).unwrap().ids
        })
        .collect();
    let scheduler = Scheduler::start(engine(&tiny(), BASE), OPTIONS).unwrap();
    let handle = scheduler.handle();
    let receivers: Vec<_> = requests
        .iter()
        .map(|(ids, options)| {
            let (request, events) = request(ids, options);
            handle.submit(request).unwrap();
            events
        })
        .collect();
    for (index, (events, expected)) in receivers.iter().zip(&expected).enumerate() {
        let answer = answers(events, 1).unwrap().remove(0);
        assert_eq!(
            (answer.ids, answer.end),
            (expected.clone(), Some(StopReason::Length)),
            "{index}"
        );
    }
}
