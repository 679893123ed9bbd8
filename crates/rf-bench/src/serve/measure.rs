//! Runs of loads, and the comparison of two servers.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use rf_profile::stats::Summary;
use serde::Serialize;

use super::client::Client;
use super::load::{Arrivals, Load};
use super::request::RequestTimes;
use super::server::{Programs, Server, ServerOptions};
use crate::model::ModelFile;
use crate::{Error, Interrupt, MeasurementProgress};

/// A run of a load on one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadRun {
    /// Time from the first request to the last token in seconds.
    pub wall_s: f64,
    /// The requests in the order in which they were sent.
    pub requests: Vec<RequestTimes>,
}

#[cfg(test)]
impl LoadRun {
    /// Three requests of a server of this speed: 12 tokens in two seconds at speed 1.
    pub(crate) fn sample(speed: f64) -> Self {
        let request = |first_token_s: f64| RequestTimes {
            first_token_s: first_token_s / speed,
            gaps_s: vec![0.02 / speed; 3],
            total_s: 1.0 / speed,
            prompt_tokens: 10,
            generated_tokens: 4,
            cached_tokens: None,
        };
        Self { wall_s: 2.0 / speed, requests: vec![request(0.4), request(0.1), request(0.1)] }
    }
}

/// The runs of a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServeComparison {
    /// The load.
    pub load: Load,
    /// Runs of this engine.
    pub ours: Vec<LoadRun>,
    /// Runs of the peer; empty without one.
    pub theirs: Vec<LoadRun>,
}

impl LoadRun {
    /// Generated tokens per second.
    pub fn tokens_per_s(&self) -> f64 {
        let tokens: usize = self.requests.iter().map(|request| request.generated_tokens).sum();
        tokens as f64 / self.wall_s
    }
}

impl ServeComparison {
    /// The median throughput of runs in generated tokens per second.
    pub(super) fn throughput(runs: &[LoadRun]) -> Option<f64> {
        let values: Vec<f64> = runs.iter().map(LoadRun::tokens_per_s).collect();
        Summary::of(&values).map(|summary| summary.median)
    }

    /// The times to the first token of all requests, in seconds.
    pub(super) fn first_token(runs: &[LoadRun]) -> Option<Summary> {
        let times = runs.iter().flat_map(|run| &run.requests).map(|one| one.first_token_s);
        Summary::of(&times.collect::<Vec<f64>>())
    }

    /// The times between tokens of all requests, in seconds.
    pub(super) fn gaps(runs: &[LoadRun]) -> Option<Summary> {
        let times = runs.iter().flat_map(|run| &run.requests).flat_map(|one| one.gaps_s.clone());
        Summary::of(&times.collect::<Vec<f64>>())
    }

    /// Median times to the first token of the first requests of all runs and of the later ones, in
    /// seconds: what a shared beginning saves.
    pub(super) fn first_and_later(runs: &[LoadRun]) -> Option<(f64, f64)> {
        let median = |times: Vec<f64>| Summary::of(&times).map(|summary| summary.median);
        let first = runs.iter().filter_map(|run| run.requests.first());
        let later = runs.iter().flat_map(|run| run.requests.iter().skip(1));
        let first = median(first.map(|one| one.first_token_s).collect())?;
        Some((first, median(later.map(|one| one.first_token_s).collect())?))
    }
}

/// Measures `rf-cli serve` and the peer, if there is one, alternately with every load. An
/// interrupt ends the comparison after the current run; the result has the complete repetitions.
///
/// # Errors
///
/// [`Error::Model`] if the model cannot be read, [`Error::Server`] if a server does not start or
/// answers otherwise than asked.
pub fn compare(
    programs: &Programs,
    model: &ModelFile,
    loads: &[Load],
    options: &ServerOptions,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(MeasurementProgress<'_>),
) -> Result<Vec<ServeComparison>, Error> {
    let vocabulary = vocabulary(model)?;
    let mut show = |done: usize, step: &str| {
        let total = loads.len() * options.repetitions;
        progress(MeasurementProgress { stage: "serve", done, total, step });
    };
    show(0, "loading the model");
    let ours = Server::start_own(&programs.own, &model.path, options, interrupt)?;
    let theirs = programs.peer.as_deref();
    let theirs = theirs
        .map(|program| Server::start_llama(program, &model.path, options, interrupt))
        .transpose()?;
    // The first requests of a server fault in its memory and start its threads.
    let warm_up = Load {
        arrivals: Arrivals::Concurrency(1),
        requests: 1,
        shared_tokens: 0,
        prompt_tokens: 32,
        generated_tokens: 4,
    };
    run(&ours.client, &warm_up, &vocabulary, u64::MAX)?;
    if let Some(theirs) = &theirs {
        run(&theirs.client, &warm_up, &vocabulary, u64::MAX)?;
    }

    let empty = |load: &Load| ServeComparison { load: *load, ours: Vec::new(), theirs: Vec::new() };
    let mut comparisons: Vec<ServeComparison> = loads.iter().map(empty).collect();
    for repetition in 0..options.repetitions {
        for (number, comparison) in comparisons.iter_mut().enumerate() {
            if interrupt.is_requested() {
                break;
            }
            let load = comparison.load;
            let step = repetition * loads.len() + number;
            show(step, &load.arrivals.to_string());
            let ours = run(&ours.client, &load, &vocabulary, step as u64)?;
            if let Some(theirs) = &theirs {
                let theirs = run(&theirs.client, &load, &vocabulary, step as u64)?;
                comparison.theirs.push(theirs);
            }
            comparison.ours.push(ours);
        }
    }
    comparisons.retain(|comparison| !comparison.ours.is_empty());
    Ok(comparisons)
}

/// The ids of a model's ordinary tokens.
fn vocabulary(model: &ModelFile) -> Result<Vec<u32>, Error> {
    let model = model.open()?;
    let tokenizer = model.tokenizer();
    let ids = 0..tokenizer.vocab_size();
    Ok(ids.filter(|id| !tokenizer.is_control(*id)).collect())
}

/// Runs a load on a server.
fn run(client: &Client, load: &Load, vocabulary: &[u32], seed: u64) -> Result<LoadRun, Error> {
    let prompts = load.prompts(vocabulary, seed);
    let start = Instant::now();
    let results: Vec<Result<RequestTimes, Error>> = match load.arrivals.due(load.requests, seed) {
        Some(due) => open_loop(client, load, &prompts, &due, start),
        None => closed_loop(client, load, &prompts),
    };
    let wall_s = start.elapsed().as_secs_f64();
    let requests: Result<Vec<RequestTimes>, Error> = results.into_iter().collect();
    Ok(LoadRun { wall_s, requests: requests? })
}

/// Sends every request when it is due.
fn open_loop(
    client: &Client,
    load: &Load,
    prompts: &[Vec<u32>],
    due: &[Duration],
    start: Instant,
) -> Vec<Result<RequestTimes, Error>> {
    thread::scope(|scope| {
        let send = |(prompt, due): (&'_ Vec<u32>, &Duration)| {
            let due = start + *due;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            client.complete(prompt, load.generated_tokens, due)
        };
        let pairs = prompts.iter().zip(due);
        let threads: Vec<_> = pairs.map(|pair| scope.spawn(move || send(pair))).collect();
        join(threads)
    })
}

/// Lets every client send its next request when its last one ended.
fn closed_loop(
    client: &Client,
    load: &Load,
    prompts: &[Vec<u32>],
) -> Vec<Result<RequestTimes, Error>> {
    let clients = load.arrivals.slots(load.requests);
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, Result<RequestTimes, Error>)> = thread::scope(|scope| {
        let work = || {
            let mut results = Vec::new();
            loop {
                let number = next.fetch_add(1, Relaxed);
                let Some(prompt) = prompts.get(number) else { return results };
                let result = client.complete(prompt, load.generated_tokens, Instant::now());
                results.push((number, result));
            }
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        join(threads).into_iter().flatten().collect()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The results of threads, which do not panic.
fn join<T>(threads: Vec<thread::ScopedJoinHandle<'_, T>>) -> Vec<T> {
    let results = threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    results.collect()
}
