//! A loaded model that processes random tokens.

use rf_engine::{Engine, EngineOptions, Error, Feed, Model, Outputs, Session};
use rf_graph::Backend;

/// An engine and its sequences.
pub struct Feeder {
    /// The loaded model.
    pub engine: Engine,
    /// Sequences, which share the engine's KV cache.
    pub sessions: Vec<Session>,
    random: u64,
}

impl Feeder {
    /// Loads a model and opens `sequences` sequences.
    ///
    /// # Errors
    ///
    /// As [`Engine::load`].
    pub fn load(
        model: Model,
        backend: &dyn Backend,
        options: EngineOptions,
        sequences: usize,
    ) -> Result<Self, Error> {
        let engine = Engine::load(model, backend, options, &mut |_| ())?;
        let sessions = (0..sequences).map(|_| engine.session()).collect();
        Ok(Self { engine, sessions, random: 1 })
    }

    /// Truncates every sequence to its first `len_tokens` tokens.
    pub fn truncate(&mut self, len_tokens: usize) {
        self.sessions.iter_mut().for_each(|session| session.truncate(len_tokens));
    }

    /// Processes a prompt of `tokens` random tokens and computes the logits of the last one.
    ///
    /// # Errors
    ///
    /// As [`Engine::forward`].
    pub fn prompt(&mut self, sequence: usize, tokens: usize) -> Result<(), Error> {
        if tokens == 0 {
            return Ok(());
        }
        let ids: Vec<u32> = (0..tokens).map(|_| self.random_id()).collect();
        let session = &mut self.sessions[sequence];
        self.engine.forward(&mut [Feed { session, ids: &ids, outputs: Outputs::Last }]).map(drop)
    }

    /// Processes one random token in each of the first `sequences` sequences and computes their
    /// logits.
    ///
    /// # Errors
    ///
    /// As [`Engine::forward`].
    pub fn step(&mut self, sequences: usize) -> Result<(), Error> {
        let ids: Vec<[u32; 1]> = (0..sequences).map(|_| [self.random_id()]).collect();
        let sessions = self.sessions[..sequences].iter_mut();
        let mut feeds: Vec<Feed<'_>> = sessions
            .zip(&ids)
            .map(|(session, ids)| Feed { session, ids, outputs: Outputs::Last })
            .collect();
        self.engine.forward(&mut feeds).map(drop)
    }

    /// Knuth's MMIX generator: speed does not depend on the quality of the random numbers.
    /// `measure_llama_cpp.py` draws the same ids.
    fn random_id(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let vocab_size = self.engine.model().config().vocab_size as u64;
        ((self.random >> 33) % vocab_size) as u32
    }
}
