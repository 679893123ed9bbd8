//! A loaded model that is fed random tokens.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rf_engine::{Engine, EngineOptions, Feed, Model, Outputs, Session};
use rf_gguf::Gguf;
use rf_graph::Backend;

/// The model that is measured where none is given.
pub(super) const DEMO_MODEL: &str = "crates/rf-cli/demo/stories-7m-Q8_0.gguf";

/// Where a model is, and what to call it.
#[derive(Clone, Debug)]
pub(super) struct ModelFile {
    pub(super) path: PathBuf,
    pub(super) is_demo: bool,
}

/// An engine and its sequences.
pub(super) struct Feeder {
    pub(super) engine: Engine,
    sessions: Vec<Session>,
    random: u64,
}

impl ModelFile {
    /// The given one, or the demo model.
    pub(super) fn new(root: &Path, given: Option<&Path>) -> Self {
        match given {
            Some(path) => Self { path: path.to_owned(), is_demo: false },
            None => Self { path: root.join(DEMO_MODEL), is_demo: true },
        }
    }

    /// `llama-1b-Q4_K_M.gguf`.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Reads what the file says of itself.
    pub(super) fn open(&self) -> Result<Model> {
        let gguf =
            Gguf::open(&self.path).with_context(|| format!("model '{}'", self.path.display()))?;
        Ok(Model::from_gguf(gguf)?)
    }
}

impl Feeder {
    /// Loads a model with room for `options.max_sequences` sequences.
    pub(super) fn load(
        model: Model,
        backend: &dyn Backend,
        options: EngineOptions,
    ) -> Result<Self> {
        let engine = Engine::load(model, backend, options, &mut |_| ())?;
        let sessions = (0..options.max_sequences).map(|_| engine.session()).collect();
        Ok(Self { engine, sessions, random: 1 })
    }

    /// Forgets of all sequences what is behind the first tokens.
    pub(super) fn truncate(&mut self, len_tokens: usize) {
        self.sessions.iter_mut().for_each(|session| session.truncate(len_tokens));
    }

    /// Feeds a sequence so many tokens, in batches; the last one's logits are computed.
    pub(super) fn prompt(&mut self, sequence: usize, tokens: usize) -> Result<()> {
        if tokens == 0 {
            return Ok(());
        }
        let ids: Vec<u32> = (0..tokens).map(|_| self.random_id()).collect();
        let session = &mut self.sessions[sequence];
        self.engine.forward(&mut [Feed { session, ids: &ids, outputs: Outputs::Last }])?;
        Ok(())
    }

    /// Feeds each of the first sequences a token, and computes their logits.
    pub(super) fn step(&mut self, sequences: usize) -> Result<()> {
        let ids: Vec<[u32; 1]> = (0..sequences).map(|_| [self.random_id()]).collect();
        let sessions = self.sessions[..sequences].iter_mut();
        let mut feeds: Vec<Feed<'_>> = sessions
            .zip(&ids)
            .map(|(session, ids)| Feed { session, ids, outputs: Outputs::Last })
            .collect();
        self.engine.forward(&mut feeds)?;
        Ok(())
    }

    /// Knuth's MMIX generator: speed does not depend on how random the ids are. `measure_llama_cpp.py` draws the same.
    fn random_id(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let vocab_size = self.engine.model().config().vocab_size as u64;
        ((self.random >> 33) % vocab_size) as u32
    }
}
