//! Models that make embeddings: a thread with the engine, and a queue in front of it.

use std::collections::VecDeque;
use std::sync::Arc;

use rf_engine::Engine;
use tokio::sync::{mpsc, oneshot};

use crate::error::Error;

/// An engine that makes embeddings, on a separate thread. The thread ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Embedder {
    context_tokens: usize,
    batch_tokens: usize,
    queue: mpsc::Sender<Box<dyn Job<Engine>>>,
}

/// The method of an engine that computes a result for each text.
pub(crate) type Method<E, T> = fn(&mut E, &[&[u32]]) -> Result<Vec<T>, rf_engine::Error>;

/// A request, which an engine computes batch by batch.
trait Job<E>: Send {
    /// Computes the next batch. Returns true if more remain.
    fn compute_batch(&mut self, engine: &mut E) -> bool;
}

/// The texts of a request, and the results of those that are computed.
struct TextsJob<E, T> {
    texts: Vec<Vec<u32>>,
    results: Vec<T>,
    batch_tokens: usize,
    method: Method<E, T>,
    /// `None` after the reply.
    reply: Option<oneshot::Sender<Result<Vec<T>, rf_engine::Error>>>,
}

/// The most requests that wait in the queue, and the most that are computed round-robin.
const MAX_QUEUED: usize = 1024;

impl Embedder {
    /// Starts the thread of an engine that was loaded with a pooling.
    pub(crate) fn start(mut engine: Engine) -> Result<Self, Error> {
        let (queue, jobs) = mpsc::channel(MAX_QUEUED);
        let (context_tokens, batch_tokens) = (engine.context_tokens(), engine.batch_tokens());
        let embedder = Self { context_tokens, batch_tokens, queue };
        let thread = std::thread::Builder::new().name("rf-embedder".into());
        let spawned = thread.spawn(move || compute_round_robin(&mut engine, jobs));
        spawned.map_err(|error| Error::Thread(Arc::new(error)))?;
        Ok(embedder)
    }

    /// The longest text, in tokens.
    pub(crate) fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// The results of a method of the engine, one for each text.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        texts: Vec<Vec<u32>>,
        method: Method<Engine, T>,
    ) -> Result<Vec<T>, Error> {
        let (job, answer) = TextsJob::new(texts, self.batch_tokens, method);
        self.queue.try_send(Box::new(job)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::QueueFull { most: MAX_QUEUED },
            mpsc::error::TrySendError::Closed(_) => Error::ShuttingDown,
        })?;
        Ok(answer.await.map_err(|_| Error::ShuttingDown)??)
    }
}

/// Computes one batch of each job after the other, until the queue is closed and no job remains.
fn compute_round_robin<E>(engine: &mut E, mut jobs: mpsc::Receiver<Box<dyn Job<E>>>) {
    let mut running = VecDeque::new();
    loop {
        while running.len() < MAX_QUEUED {
            let Ok(job) = jobs.try_recv() else { break };
            running.push_back(job);
        }
        let Some(mut job) = running.pop_front().or_else(|| jobs.blocking_recv()) else { return };
        if job.compute_batch(engine) {
            running.push_back(job);
        }
    }
}

type Answer<T> = oneshot::Receiver<Result<Vec<T>, rf_engine::Error>>;

impl<E, T> TextsJob<E, T> {
    fn new(texts: Vec<Vec<u32>>, batch_tokens: usize, method: Method<E, T>) -> (Self, Answer<T>) {
        let (reply, answer) = oneshot::channel();
        let results = Vec::with_capacity(texts.len());
        (Self { texts, results, batch_tokens, method, reply: Some(reply) }, answer)
    }

    /// The texts of the next batch: as many as its tokens allow, and at least one.
    fn next_texts(&self) -> Vec<&[u32]> {
        let mut tokens = self.batch_tokens;
        let remaining = self.texts[self.results.len()..].iter().map(Vec::as_slice);
        let fits = |(index, text): &(usize, &[u32])| {
            let fits = *index == 0 || text.len() <= tokens;
            tokens = tokens.saturating_sub(text.len());
            fits
        };
        remaining.enumerate().take_while(fits).map(|(_, text)| text).collect()
    }
}

impl<E, T: Send> Job<E> for TextsJob<E, T> {
    fn compute_batch(&mut self, engine: &mut E) -> bool {
        // The caller may be gone.
        if self.reply.as_ref().is_none_or(oneshot::Sender::is_closed) {
            return false;
        }
        let computed = (self.method)(engine, &self.next_texts());
        let result = match computed {
            Ok(results) => {
                self.results.extend(results);
                if self.results.len() < self.texts.len() {
                    return true;
                }
                Ok(std::mem::take(&mut self.results))
            }
            Err(error) => Err(error),
        };
        if let Some(reply) = self.reply.take() {
            // Fails only if the caller has gone meanwhile.
            drop(reply.send(result));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that notes the texts of each batch, and may hold the answer of a caller.
    #[derive(Default)]
    struct Batches {
        lengths: Vec<Vec<usize>>,
        caller: Option<Answer<usize>>,
    }

    #[expect(clippy::unnecessary_wraps, reason = "the type of methods of the engine")]
    fn note(engine: &mut Batches, texts: &[&[u32]]) -> Result<Vec<usize>, rf_engine::Error> {
        let lengths: Vec<usize> = texts.iter().map(|text| text.len()).collect();
        engine.lengths.push(lengths.clone());
        // The caller leaves during the batch.
        engine.caller = None;
        Ok(lengths)
    }

    fn run(engine: &mut Batches, jobs: Vec<TextsJob<Batches, usize>>) {
        let (queue, receiver) = mpsc::channel::<Box<dyn Job<Batches>>>(jobs.len());
        for job in jobs {
            assert!(queue.try_send(Box::new(job)).is_ok());
        }
        drop(queue);
        compute_round_robin(engine, receiver);
    }

    #[test]
    fn a_small_request_overtakes_a_large_one() {
        let mut engine = Batches::default();
        let (large, mut of_large) = TextsJob::new(vec![vec![0; 4]; 6], 8, note);
        let (small, mut of_small) = TextsJob::new(vec![vec![0; 1]], 8, note);
        run(&mut engine, vec![large, small]);
        assert_eq!(engine.lengths, [vec![4, 4], vec![1], vec![4, 4], vec![4, 4]]);
        assert_eq!(of_large.try_recv().unwrap().unwrap(), [4; 6]);
        assert_eq!(of_small.try_recv().unwrap().unwrap(), [1]);
    }

    #[test]
    fn a_text_longer_than_a_batch_is_a_separate_batch() {
        let mut engine = Batches::default();
        let texts = vec![vec![0; 3], vec![0; 9], vec![0; 2]];
        let (job, mut answer) = TextsJob::new(texts, 8, note);
        run(&mut engine, vec![job]);
        assert_eq!(engine.lengths, [[3], [9], [2]]);
        assert_eq!(answer.try_recv().unwrap().unwrap(), [3, 9, 2]);
    }

    #[test]
    fn a_request_whose_caller_leaves_ends_after_its_batch() {
        let (job, answer) = TextsJob::new(vec![vec![0; 8]; 6], 8, note);
        let mut engine = Batches { lengths: Vec::new(), caller: Some(answer) };
        run(&mut engine, vec![job]);
        assert_eq!(engine.lengths, [[8]]);
    }
}
