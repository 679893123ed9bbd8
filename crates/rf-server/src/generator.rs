//! A loaded model that generates text.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rocmforge::AdapterScales;
use rocmforge::engine::Model;
use rocmforge::engine::scheduler::Handle;
use rocmforge::grammar::GrammarCompiler;

use crate::catalog::NamedAdapter;
use crate::error::{ApiError, ApiErrorKind};
use crate::longest_token::{LongestToken, TextLimit};
use crate::metrics::Metrics;

/// A loaded model that generates text.
#[derive(Debug)]
pub(crate) struct Generator {
    id: String,
    model: rocmforge::Model,
    handle: Handle,
    metrics: Arc<Metrics>,
    /// The adapters that clients have loaded, which come last.
    adapters: Vec<NamedAdapter>,
    longest_token: LongestToken,
    loaded: SystemTime,
    started: Instant,
}

/// The load of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GeneratorLoad {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Tokens of the pages that sequences hold.
    pub(crate) used_tokens: usize,
    pub(crate) total_tokens: usize,
    /// `used_tokens` of `total_tokens`, from 0 to 1.
    pub(crate) kv_usage: f64,
    /// Since the start.
    pub(crate) generated_tokens_per_second: f64,
}

impl Generator {
    pub(crate) fn new(
        id: &str,
        model: rocmforge::Model,
        handle: Handle,
        metrics: Arc<Metrics>,
        adapters: Vec<NamedAdapter>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            model,
            handle,
            metrics,
            adapters,
            longest_token: LongestToken::default(),
            loaded: SystemTime::now(),
            started: Instant::now(),
        }
    }

    /// Keeps what the scheduler counted, before the model is unloaded.
    pub(crate) fn retire(&self) {
        self.metrics.keep(&self.handle.stats());
    }

    /// The name in every API.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The parsed file.
    pub(crate) fn model(&self) -> &Arc<Model> {
        self.handle.model()
    }

    pub(crate) fn loaded_model(&self) -> &rocmforge::Model {
        &self.model
    }

    /// The scales that turn on this adapter alone, if a client has loaded it.
    pub(crate) fn scales_of(&self, adapter: &str) -> Option<AdapterScales> {
        let place = self.adapters.iter().position(|loaded| loaded.name == adapter)?;
        let others = self.model.adapters().len().checked_sub(self.adapters.len())?;
        let mut scales = vec![0.0; others + place];
        scales.push(1.0);
        Some(AdapterScales::new(&scales))
    }

    /// The scales that turn on each adapter of clients alone, as their bits.
    #[cfg(feature = "kv-events")]
    pub(crate) fn named_scales(&self) -> Vec<(String, Vec<u32>)> {
        let bits = |scales: AdapterScales| scales.to_vec().into_iter().map(f32::to_bits).collect();
        let named = |adapter: &NamedAdapter| {
            Some((adapter.name.clone(), self.scales_of(&adapter.name).map(bits)?))
        };
        self.adapters.iter().filter_map(named).collect()
    }

    /// The compiler of grammars for the model's vocabulary.
    pub(crate) fn compiler(&self) -> Result<Arc<GrammarCompiler>, ApiError> {
        let compiler = self.model.grammar_compiler();
        compiler.map_err(|error| ApiError::new(ApiErrorKind::NotSupported, error.to_string()))
    }

    /// The longest prompt that may fit into the context.
    pub(crate) fn prompt_limit(&self) -> TextLimit {
        let most_tokens = self.handle.max_sequence_tokens();
        self.longest_token.text_limit(self.model().tokenizer(), most_tokens)
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// When the model was loaded.
    pub(crate) fn loaded(&self) -> SystemTime {
        self.loaded
    }

    pub(crate) fn num_pages(&self) -> usize {
        self.handle.stats().kv_pages_total
    }

    pub(crate) fn page_tokens(&self) -> usize {
        self.handle.kv_tokens() / self.num_pages().max(1)
    }

    pub(crate) fn load(&self) -> GeneratorLoad {
        let stats = self.handle.stats();
        let total_pages = stats.kv_pages_total.max(1);
        let uptime = self.started.elapsed().as_secs_f64().max(1.0);
        GeneratorLoad {
            running: stats.running,
            waiting: stats.waiting,
            used_tokens: stats.kv_pages_used * self.page_tokens(),
            total_tokens: self.handle.kv_tokens(),
            kv_usage: stats.kv_pages_used as f64 / total_pages as f64,
            generated_tokens_per_second: stats.generation_tokens as f64 / uptime,
        }
    }
}
