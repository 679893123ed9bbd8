//! Models that make embeddings: a thread with the engine, and a queue in front of it.

use std::sync::Arc;
use std::time::SystemTime;

use rf_engine::{Engine, Model};
use tokio::sync::{mpsc, oneshot};

use crate::error::{ApiError, Error, Kind};

/// An engine that makes embeddings, on a thread of its own. The thread ends with the last clone.
#[derive(Clone, Debug)]
pub struct Embedder {
    model: Arc<Model>,
    context_tokens: usize,
    queue: mpsc::Sender<Job>,
    loaded: SystemTime,
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
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(mut engine: Engine) -> Result<Self, Error> {
        let (queue, mut jobs) = mpsc::channel::<Job>(MAX_QUEUED);
        let embedder = Self {
            model: Arc::clone(engine.model()),
            context_tokens: engine.context_tokens(),
            queue,
            loaded: SystemTime::now(),
        };
        let serve = move || {
            while let Some(job) = jobs.blocking_recv() {
                // The client may be gone.
                if job.reply.is_closed() {
                    continue;
                }
                let texts: Vec<&[u32]> = job.texts.iter().map(Vec::as_slice).collect();
                // Fails only if the client has gone meanwhile.
                drop(job.reply.send(engine.embed(&texts)));
            }
        };
        std::thread::Builder::new().name("rf-embedder".into()).spawn(serve)?;
        Ok(embedder)
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The longest text, in tokens.
    pub(crate) fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    pub(crate) fn loaded(&self) -> SystemTime {
        self.loaded
    }

    /// The pooled states of each text, not normalised.
    pub(crate) async fn embed(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Job { texts, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                let message = format!("the queue is full: {MAX_QUEUED} requests wait");
                ApiError::new(Kind::QueueFull, message)
            }
            mpsc::error::TrySendError::Closed(_) => gone(),
        })?;
        let vectors = answer.await.map_err(|_| gone())?;
        vectors.map_err(|error| ApiError::internal(&error))
    }
}

fn gone() -> ApiError {
    ApiError::internal(&"the thread of the embeddings has ended")
}
