//! The tokens of a step, and the batches that they form.

use std::ops::Range;

use rf_graph::{BackendError, Batch, Executor};

use crate::session::Session;

/// New tokens of one sequence.
#[derive(Debug)]
pub struct Feed<'a> {
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
    /// None: the tokens are only added to the cache.
    None,
    /// The first token.
    First,
    /// The last token.
    Last,
    /// The last so many tokens.
    Tail(usize),
    /// All tokens.
    All,
}

/// Parts of feeds that form a batch: the index of the feed, and its tokens.
pub(super) type Pieces = [(usize, Range<usize>)];

/// Runs one batch on an executor and stores its output.
pub(super) type Step<'a> =
    dyn FnMut(&mut dyn Executor, &Batch<'_>) -> Result<(), BackendError> + 'a;
