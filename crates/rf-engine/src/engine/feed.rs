//! The tokens of a step, and the batches that they form.

use std::ops::Range;

use rf_graph::{Candidate, Output};

use crate::session::Session;

/// New tokens of one sequence.
#[derive(Debug)]
pub struct SequenceInput<'a> {
    /// The sequence. The tokens are appended to it.
    pub session: &'a mut Session,
    /// At least one token.
    pub ids: &'a [u32],
    /// Tokens whose logits are computed.
    pub outputs: Outputs,
}

/// Tokens whose logits are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// No rows: the tokens are only added to the cache.
    None,
    /// The first token.
    First,
    /// The last token.
    Last,
    /// The last so many tokens.
    Tail(usize),
    /// Every token of the feed.
    All,
}

/// Parts of feeds that form a batch: the index of the feed, and its tokens.
pub(super) type Pieces = [(usize, Range<usize>)];

/// The rows of a run of one batch or several, which follow each other in a buffer.
pub(super) enum RunOutput<'a> {
    /// Whole rows of `width` elements, `len` elements so far. The buffer grows as needed.
    Whole { width: usize, len: usize, rows: &'a mut Vec<f32> },
    /// The `k` largest elements of each row.
    TopK { k: usize, best: &'a mut Vec<Candidate> },
}

impl RunOutput<'_> {
    /// The output of the next batch, of so many rows.
    pub(super) fn next(&mut self, count: usize) -> Output<'_> {
        match self {
            Self::Whole { width, len, rows } => {
                let at = *len;
                *len += count * *width;
                if rows.len() < *len {
                    rows.resize(*len, 0.0);
                }
                Output::rows(&mut rows[at..*len])
            }
            Self::TopK { k, best } => {
                let at = best.len();
                best.resize(at + count * *k, Candidate::default());
                Output::top_k(*k, &mut best[at..])
            }
        }
    }

    /// The number of elements so far.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole { len, .. } => *len,
            Self::TopK { best, .. } => best.len(),
        }
    }

    /// Returns true if an element is NaN. Rows are read in chunks without branches, which takes a
    /// fraction of the time.
    pub(super) fn has_nan(&self) -> bool {
        let has_nan =
            |chunk: &[f32]| chunk.iter().fold(false, |found, value| found | value.is_nan());
        match self {
            Self::Whole { len, rows, .. } => rows[..*len].chunks(1024).any(has_nan),
            Self::TopK { best, .. } => best.iter().any(|candidate| candidate.logit.is_nan()),
        }
    }
}
