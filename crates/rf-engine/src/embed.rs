//! Embeddings and scores: one vector per text.

use rf_model::Pooling;

use crate::engine::{Engine, Outputs, SequenceInput};
use crate::error::Error;
use crate::session::Session;

/// How the length of an embedding is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalization {
    /// The vector is not changed.
    None,
    /// The largest magnitude becomes 32760, for storage as 16-bit integers.
    MaxAbsolute,
    /// The p-norm `(Σ|xᵢ|ᵖ)^(1/p)` becomes 1. `Norm(2)` is the Euclidean length.
    Norm(u32),
}

impl Normalization {
    /// Scales a vector. A vector of zeros stays as it is.
    pub fn apply(self, vector: &mut [f32]) {
        let magnitudes = vector.iter().map(|x| f64::from(x.abs()));
        let length = match self {
            Self::None => return,
            Self::MaxAbsolute => magnitudes.fold(0.0, f64::max) / 32_760.0,
            Self::Norm(p) => {
                let p = f64::from(p.max(1));
                magnitudes.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p)
            }
        };
        if length > 0.0 {
            for x in vector {
                *x = (f64::from(*x) / length) as f32;
            }
        }
    }
}

impl Engine {
    /// Computes a vector for each text, which is given as its tokens: the pooled states of the last
    /// layer, not normalised, or the scores of a reranker. The pooling is
    /// [`EngineOptions::pooling`](crate::EngineOptions::pooling).
    ///
    /// Texts share batches, which does not change their vectors. The scores of a causal reranker of
    /// several labels are probabilities: a softmax over the labels. Others are as the model
    /// computes them.
    ///
    /// # Errors
    ///
    /// If the engine was loaded to generate, a text has no tokens, an unknown one, or more than the
    /// context, the cache is full, or the backend fails.
    pub fn embed(&mut self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, Error> {
        let pooling = self.pooling().ok_or(Error::LoadedToGenerate)?;
        let config = self.model().config();
        let outputs = match pooling {
            Pooling::Mean => Outputs::All,
            Pooling::Cls => Outputs::First,
            Pooling::Rank if config.is_encoder => Outputs::First,
            Pooling::Last | Pooling::Rank => Outputs::Last,
        };
        let are_probabilities = pooling == Pooling::Rank && config.is_causal();
        let mut vectors = Vec::with_capacity(texts.len());
        self.rows_of_texts(texts, outputs, &mut |rows, width| {
            let mut vector = mean(rows.chunks_exact(width), width);
            if are_probabilities && width > 1 {
                softmax(&mut vector);
            }
            vectors.push(vector);
        })?;
        Ok(vectors)
    }

    /// Computes a vector for each token of each text, without a pooling: the state of the last
    /// layer, not normalised, or the scores of a reranker.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub fn embed_tokens(&mut self, texts: &[&[u32]]) -> Result<Vec<Vec<Vec<f32>>>, Error> {
        self.pooling().ok_or(Error::LoadedToGenerate)?;
        let mut vectors = Vec::with_capacity(texts.len());
        self.rows_of_texts(texts, Outputs::All, &mut |rows, width| {
            vectors.push(rows.chunks_exact(width).map(<[f32]>::to_vec).collect());
        })?;
        Ok(vectors)
    }

    /// Computes texts, several in a batch, and passes on the rows of each in their order, with the
    /// width of a row.
    fn rows_of_texts(
        &mut self,
        texts: &[&[u32]],
        outputs: Outputs,
        on_text: &mut dyn FnMut(&[f32], usize),
    ) -> Result<(), Error> {
        let width = self.output_width();
        let mut rows = Vec::new();
        let mut remaining = texts;
        while !remaining.is_empty() {
            let (texts, later) = remaining.split_at(self.texts_per_batch(remaining));
            remaining = later;
            let mut sessions: Vec<Session> = texts.iter().map(|_| self.session()).collect();
            let feeds = sessions.iter_mut().zip(texts);
            let mut feeds: Vec<SequenceInput<'_>> =
                feeds.map(|(session, ids)| SequenceInput { session, ids, outputs }).collect();
            self.rows_into(&mut feeds, &mut rows)?;
            let mut rest = &*rows;
            for text in texts {
                let count = if outputs == Outputs::All { text.len() } else { 1 };
                let (of_text, of_others) = rest.split_at(count * width);
                rest = of_others;
                on_text(of_text, width);
            }
        }
        Ok(())
    }

    /// The number of texts in the next batch: as many as its tokens, the free pages and the free
    /// recurrent states allow, and at least one. A long text takes several batches.
    fn texts_per_batch(&self, texts: &[&[u32]]) -> usize {
        let page_tokens = self.page_tokens();
        let available = self.available_pages();
        // A batch returns no pages before its end, so windows need as many as other layers.
        let mut pages = if self.has_window_pages() {
            available.full.min(available.window)
        } else {
            available.full
        };
        let mut tokens = self.batch_tokens();
        let fits = |text: &&&[u32]| {
            let needed_pages = text.len().div_ceil(page_tokens);
            let fits = text.len() <= tokens && needed_pages <= pages;
            if fits {
                tokens -= text.len();
                pages -= needed_pages;
            }
            fits
        };
        let states = if self.is_recurrent() { available.states } else { usize::MAX };
        texts.iter().take(states).take_while(fits).count().max(1)
    }
}

/// The mean of rows, summed in f64 in their order.
fn mean<'a>(rows: impl Iterator<Item = &'a [f32]>, width: usize) -> Vec<f32> {
    let mut sum = vec![0.0_f64; width];
    let mut count = 0;
    for row in rows {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        count += 1;
    }
    sum.into_iter().map(|sum| (sum / f64::from(count.max(1))) as f32).collect()
}

fn softmax(scores: &mut [f32]) {
    let max = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let exp = |score: f32| (f64::from(score) - max).exp();
    let sum: f64 = scores.iter().map(|score| exp(*score)).sum();
    for score in scores {
        *score = (exp(*score) / sum) as f32;
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the results are exact or rounded once")]
mod tests {
    use super::*;

    #[test]
    fn a_vector_gets_the_length_that_is_asked_for() {
        let normalized = |normalization: Normalization| {
            let mut vector = [3.0, -4.0, 0.0];
            normalization.apply(&mut vector);
            vector
        };
        assert_eq!(normalized(Normalization::None), [3.0, -4.0, 0.0]);
        assert_eq!(normalized(Normalization::Norm(2)), [0.6, -0.8, 0.0]);
        assert_eq!(normalized(Normalization::Norm(1)), [3.0 / 7.0, -4.0 / 7.0, 0.0]);
        assert_eq!(normalized(Normalization::MaxAbsolute), [24_570.0, -32_760.0, 0.0]);
        let mut zeros = [0.0; 3];
        Normalization::Norm(2).apply(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
    }

    #[test]
    fn scores_far_apart_become_probabilities() {
        let mut scores = [1000.0, 1000.0, -1000.0];
        softmax(&mut scores);
        assert_eq!(scores, [0.5, 0.5, 0.0]);
    }
}
