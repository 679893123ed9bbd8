//! Synthetic token sequences, for benchmarks: speed does not depend on the text.

use crate::engine::{Engine, Outputs, SequenceInput};
use crate::error::Error;
use crate::sampling::SamplerConfig;
use crate::session::Session;

/// Feeds pseudo-random tokens to the sequences of an engine.
pub struct SyntheticFeeder {
    /// The engine.
    pub engine: Engine,
    /// The sequences.
    pub sessions: Vec<Session>,
    random: u64,
    /// Logits, if the backend does not select candidates.
    logits: Vec<f32>,
}

impl SyntheticFeeder {
    /// Creates `sequences` empty sequences.
    pub fn new(engine: Engine, sequences: usize) -> Self {
        let sessions = (0..sequences).map(|_| engine.session()).collect();
        Self { engine, sessions, random: 1, logits: Vec::new() }
    }

    /// Truncates all sequences to `len_tokens`. A sequence whose sliding window has passed that
    /// position is fed again.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::forward`].
    pub fn truncate(&mut self, len_tokens: usize) -> Result<(), Error> {
        for sequence in 0..self.sessions.len() {
            let session = &mut self.sessions[sequence];
            let len_tokens = len_tokens.min(session.len());
            let kept = session.truncate_or_reset(len_tokens);
            self.prompt(sequence, len_tokens - kept)?;
        }
        Ok(())
    }

    /// Feeds `tokens` to one sequence, in batches, without candidates: a part of a prompt. A device
    /// may still be computing it when this returns.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::forward`].
    pub fn feed(&mut self, sequence: usize, tokens: usize) -> Result<(), Error> {
        let ids = self.random_ids(tokens);
        let session = &mut self.sessions[sequence];
        self.engine.forward(&mut [SequenceInput { session, ids: &ids, outputs: Outputs::None }])?;
        Ok(())
    }

    /// Feeds `tokens` to one sequence, in batches, and computes the candidates after the last one:
    /// prefill.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::forward`].
    pub fn prompt(&mut self, sequence: usize, tokens: usize) -> Result<(), Error> {
        if tokens == 0 {
            return Ok(());
        }
        let ids = self.random_ids(tokens);
        let session = &mut self.sessions[sequence];
        let mut feeds = [SequenceInput { session, ids: &ids, outputs: Outputs::Last }];
        compute(&mut self.engine, &mut feeds, &mut self.logits)
    }

    /// Feeds one token to each of the first `sequences` and computes the candidates after them: a
    /// decode step.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::forward`].
    pub fn step(&mut self, sequences: usize) -> Result<(), Error> {
        let ids: Vec<[u32; 1]> = (0..sequences).map(|_| [self.random_id()]).collect();
        let sessions = self.sessions[..sequences].iter_mut();
        let mut feeds: Vec<SequenceInput<'_>> = sessions
            .zip(&ids)
            .map(|(session, ids)| SequenceInput { session, ids, outputs: Outputs::Last })
            .collect();
        compute(&mut self.engine, &mut feeds, &mut self.logits)
    }

    fn random_ids(&mut self, tokens: usize) -> Vec<u32> {
        (0..tokens).map(|_| self.random_id()).collect()
    }

    /// Knuth's MMIX generator. `measure_llama_cpp.py` draws the same ids.
    fn random_id(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let vocab_size = self.engine.model().config().vocab_size as u64;
        ((self.random >> 33) % vocab_size) as u32
    }
}

/// Computes what generation with the default sampler computes: the candidates of its top-k, or the
/// logits if the backend does not select candidates.
fn compute(
    engine: &mut Engine,
    feeds: &mut [SequenceInput<'_>],
    logits: &mut Vec<f32>,
) -> Result<(), Error> {
    let top_k = SamplerConfig::default().top_k;
    if (1..=engine.max_top_k()).contains(&top_k) {
        engine.forward_top_k(feeds, top_k)?;
        return Ok(());
    }
    engine.forward_into(feeds, logits)
}
