//! A loaded model before it serves requests.

use std::sync::Arc;

use rf_device::LayerPlacement;
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::SchedulerOptions;
use rf_engine::{Engine, Speculation};

use crate::drafts::memory_bytes;
use crate::error::Error;
use crate::media::MediaEncoders;
use crate::model::Model;

/// A model with its weights in memory, and no thread: for programs that drive the engine
/// themselves.
#[non_exhaustive]
pub struct LoadedModel {
    /// The engine.
    pub engine: Engine,
    /// The source of drafts, if there is one.
    pub speculation: Option<Speculation>,
    /// The backends of the layers.
    pub layers: LayerPlacement,
    /// The encoders of pictures and sounds, if the model has a projector.
    pub encoders: Option<Arc<MediaEncoders>>,
    pub(crate) sampler: SamplerConfig,
    pub(crate) scheduler: SchedulerOptions,
}

impl LoadedModel {
    /// Starts the thread that serves requests.
    ///
    /// # Errors
    ///
    /// If a limit of the scheduler is 0, or the thread cannot be started.
    pub fn start(self) -> Result<Model, Error> {
        let requests = (self.scheduler, self.sampler);
        Model::new(self.engine, self.speculation, (self.layers, self.encoders), requests)
    }

    /// Memory of the model, of its draft model and of its projector, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.engine, self.speculation.as_ref())
            + self.encoders.as_ref().map_or(0, |encoders| encoders.memory_bytes())
    }
}
