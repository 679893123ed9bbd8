//! A loaded model that is fed random tokens.

use anyhow::Result;
use rf_engine::{Engine, EngineOptions, Feed, Model, Outputs, Session};
use rf_graph::Backend;

/// An engine and its sequences.
pub(crate) struct Feeder {
    pub(crate) engine: Engine,
    pub(crate) sessions: Vec<Session>,
    random: u64,
}

impl Feeder {
    /// Loads a model, and makes so many sequences that share its cache.
    pub(crate) fn load(
        model: Model,
        backend: &dyn Backend,
        options: EngineOptions,
        sequences: usize,
    ) -> Result<Self> {
        let engine = Engine::load(model, backend, options, &mut |_| ())?;
        let sessions = (0..sequences).map(|_| engine.session()).collect();
        Ok(Self { engine, sessions, random: 1 })
    }

    /// Forgets of all sequences what is behind the first tokens.
    pub(crate) fn truncate(&mut self, len_tokens: usize) {
        self.sessions.iter_mut().for_each(|session| session.truncate(len_tokens));
    }

    /// Feeds a sequence so many tokens, in batches; the last one's logits are computed.
    pub(crate) fn prompt(&mut self, sequence: usize, tokens: usize) -> Result<()> {
        if tokens == 0 {
            return Ok(());
        }
        let ids: Vec<u32> = (0..tokens).map(|_| self.random_id()).collect();
        let session = &mut self.sessions[sequence];
        self.engine.forward(&mut [Feed { session, ids: &ids, outputs: Outputs::Last }])?;
        Ok(())
    }

    /// Feeds each of the first sequences a token, and computes their logits.
    pub(crate) fn step(&mut self, sequences: usize) -> Result<()> {
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
