//! What several APIs have in common: parts of their requests and of their answers.

pub(crate) mod conversation;
pub(crate) mod embeddings;
pub(crate) mod logprobs;
pub(crate) mod timings;

use rocmforge::engine::StopReason;
use serde::Serialize;

/// The version of the server, as clients use it to tell servers apart.
pub(crate) const FINGERPRINT: &str = concat!("rocmforge-", env!("CARGO_PKG_VERSION"));

/// An array that is always empty.
pub(crate) type NoItems = [(); 0];

/// An object that is always empty.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct NoFields {}

/// Returns true if an answer ended before the model ended it.
pub(crate) fn is_cut_off(reason: StopReason) -> bool {
    matches!(reason, StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit)
}
