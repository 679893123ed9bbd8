//! Perplexity: how well a model predicts a text.
//!
//! The tokens are cut into windows of the context size. Each token but the first of a window is
//! scored with the tokens before it in the window.

use std::ops::Range;

use crate::engine::{Engine, Outputs, SequenceInput};
use crate::error::Error;
use crate::session::Session;

/// Logits held at once, in bytes. A vocabulary of 150 000 takes 0.6 MB per token.
const MAX_LOGITS_BYTES: usize = 64 << 20;

/// A run over a text. It advances in steps of at most one batch, so that callers can show progress
/// and stop.
pub struct Perplexity<'a> {
    engine: &'a mut Engine,
    session: Session,
    ids: &'a [u32],
    /// Replaces the first token of each window.
    bos: Option<u32>,
    /// The current window of `ids`.
    window: Range<usize>,
    /// Tokens of the window that are computed.
    position: usize,
    windows_done: usize,
    score: PerplexityScore,
}

/// Sums over the scored tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerplexityScore {
    /// Scored tokens.
    pub tokens: usize,
    /// Sum of their negative log-likelihoods.
    pub nll_sum: f64,
}

impl PerplexityScore {
    /// The mean negative log-likelihood per token.
    pub fn mean_nll(&self) -> f64 {
        self.nll_sum / self.tokens as f64
    }

    /// e to the power of the mean negative log-likelihood.
    pub fn perplexity(&self) -> f64 {
        self.mean_nll().exp()
    }
}

impl<'a> Perplexity<'a> {
    /// Starts a run over the tokens of a text. `bos` replaces the first token of each window, for
    /// models that need one there.
    ///
    /// # Errors
    ///
    /// If there are fewer than two tokens, or the context has room for one only.
    pub fn new(engine: &'a mut Engine, ids: &'a [u32], bos: Option<u32>) -> Result<Self, Error> {
        for (name, value) in
            [("number of tokens", ids.len()), ("context size", engine.context_tokens())]
        {
            if value < 2 {
                return Err(Error::InvalidOption { name, value, reason: "it must be at least 2" });
            }
        }
        let window = 0..engine.context_tokens().min(ids.len());
        let session = engine.session();
        let score = PerplexityScore::default();
        Ok(Self { engine, session, ids, bos, window, position: 0, windows_done: 0, score })
    }

    /// Computes one batch. Returns false at the end of the text.
    ///
    /// # Errors
    ///
    /// If a token is not in the vocabulary, or the backend fails.
    pub fn step(&mut self) -> Result<bool, Error> {
        let window = &self.ids[self.window.clone()];
        // The last token of a window predicts none in it.
        let inputs = window.len().saturating_sub(1);
        if self.position == inputs {
            let context_tokens = self.engine.context_tokens();
            self.windows_done += usize::from(inputs > 0);
            self.window = self.window.end..self.ids.len().min(self.window.end + context_tokens);
            self.position = 0;
            self.session.reset();
            return Ok(!self.window.is_empty());
        }
        let vocab_size = self.engine.model().config().vocab_size;
        let most = (MAX_LOGITS_BYTES / (size_of::<f32>() * vocab_size)).max(1);
        let count = most.min(self.engine.batch_tokens()).min(inputs - self.position);
        let chunk = self.position..self.position + count;
        let mut ids = window[chunk.clone()].to_vec();
        if let Some(bos) = self.bos.filter(|_| self.position == 0) {
            ids[0] = bos;
        }
        let feed = SequenceInput { session: &mut self.session, ids: &ids, outputs: Outputs::All };
        let logits = self.engine.forward(&mut [feed])?;
        let targets = &window[chunk.start + 1..=chunk.end];
        for (row, &id) in logits.chunks_exact(vocab_size).zip(targets) {
            let nll = negative_log_likelihood(row, id);
            self.score.nll_sum += nll.ok_or(Error::UnknownToken { id, vocab_size })?;
            self.score.tokens += 1;
        }
        self.position = chunk.end;
        Ok(true)
    }

    /// Windows that are complete.
    pub fn windows_done(&self) -> usize {
        self.windows_done
    }

    /// The score of the tokens so far.
    pub fn score(&self) -> PerplexityScore {
        self.score
    }
}

/// −log softmax(logits)\[target\]; `None` if there is no such logit.
fn negative_log_likelihood(logits: &[f32], target: u32) -> Option<f64> {
    let target = f64::from(*logits.get(target as usize)?);
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - f64::from(max)).exp()).sum();
    Some(f64::from(max) + sum.ln() - target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_share_the_probability() {
        let nll = negative_log_likelihood(&[5.0; 8], 3).unwrap();
        assert!((nll - 8.0_f64.ln()).abs() < 1e-12);
        assert_eq!(negative_log_likelihood(&[5.0; 8], 8), None);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let nll = negative_log_likelihood(&[1000.0, 0.0, -1000.0], 1).unwrap();
        assert!((nll - 1000.0).abs() < 1e-9);
    }
}
