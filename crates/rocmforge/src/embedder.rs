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

/// The computation and the reply of one request.
type Job = Box<dyn FnOnce(&mut Engine) + Send>;

/// Requests that may wait.
const MAX_QUEUED: usize = 1024;

impl Embedder {
    /// Starts the thread of an engine that was loaded with a pooling.
    pub(crate) fn start(mut engine: Engine) -> Result<Self, Error> {
        let (queue, mut jobs) = mpsc::channel::<Job>(MAX_QUEUED);
        let embedder = Self { context_tokens: engine.context_tokens(), queue };
        let serve = move || {
            while let Some(job) = jobs.blocking_recv() {
                job(&mut engine);
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

    /// The result of a method of the engine for texts.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        texts: Vec<Vec<u32>>,
        method: fn(&mut Engine, &[&[u32]]) -> Result<T, rf_engine::Error>,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let job = move |engine: &mut Engine| {
            // The caller may be gone.
            if !reply.is_closed() {
                let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
                // Fails only if the caller has gone meanwhile.
                drop(reply.send(method(engine, &texts)));
            }
        };
        self.queue.try_send(Box::new(job)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::QueueFull { most: MAX_QUEUED },
            mpsc::error::TrySendError::Closed(_) => Error::ShuttingDown,
        })?;
        Ok(answer.await.map_err(|_| Error::ShuttingDown)??)
    }
}
