//! Models that make embeddings: a thread with the engine, and a queue in front of it.

use std::sync::Arc;

use rf_engine::Engine;
use tokio::sync::{mpsc, oneshot};

use crate::error::Error;

/// An engine that makes embeddings, on a separate thread. The thread ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Embedder {
    context_tokens: usize,
    queue: mpsc::Sender<Job>,
}

#[derive(Debug)]
struct Job {
    texts: Vec<Vec<u32>>,
    reply: oneshot::Sender<Result<Vec<Vec<f32>>, rf_engine::Error>>,
}

/// Requests that may wait.
const MAX_QUEUED: usize = 1024;

impl Embedder {
    /// Starts the thread of an engine that was loaded with a pooling.
    pub(crate) fn start(mut engine: Engine) -> Result<Self, Error> {
        let (queue, mut jobs) = mpsc::channel::<Job>(MAX_QUEUED);
        let embedder = Self { context_tokens: engine.context_tokens(), queue };
        let serve = move || {
            while let Some(job) = jobs.blocking_recv() {
                // The caller may be gone.
                if job.reply.is_closed() {
                    continue;
                }
                let texts: Vec<&[u32]> = job.texts.iter().map(Vec::as_slice).collect();
                // Fails only if the caller has gone meanwhile.
                drop(job.reply.send(engine.embed(&texts)));
            }
        };
        let thread = std::thread::Builder::new().name("rf-embedder".into());
        thread.spawn(serve).map_err(|error| Error::Thread(Arc::new(error)))?;
        Ok(embedder)
    }

    /// The longest text, in tokens.
    pub(crate) fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// The pooled states of each text, not normalised.
    pub(crate) async fn embed(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, Error> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Job { texts, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::QueueFull { most: MAX_QUEUED },
            mpsc::error::TrySendError::Closed(_) => Error::ShuttingDown,
        })?;
        Ok(answer.await.map_err(|_| Error::ShuttingDown)??)
    }
}
