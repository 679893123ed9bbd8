//! What several APIs have in common: parts of their requests and of their answers.

pub(crate) mod conversation;
pub(crate) mod embeddings;
pub(crate) mod logprobs;
pub(crate) mod timings;

use rocmforge::engine::StopReason;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The version of the server, as clients use it to tell servers apart.
pub(crate) const FINGERPRINT: &str = concat!("rocmforge-", env!("CARGO_PKG_VERSION"));

/// An array that is always empty.
pub(crate) type NoItems = [(); 0];

/// An object that is always empty.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct NoFields {}

/// Returns true if an answer ended before the model ended it.
pub(crate) fn is_cut_off(reason: StopReason) -> bool {
    matches!(reason, StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit)
}

/// The arguments of a call as an object. Those of a call that was cut off are no JSON.
pub(crate) fn parsed_arguments(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| Value::Object(Map::new()))
}
