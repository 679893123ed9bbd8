//! What several APIs have in common: parts of their requests and of their answers.

pub(crate) mod conversation;
pub(crate) mod custom_tools;
pub(crate) mod embeddings;
pub(crate) mod logprobs;
pub(crate) mod timings;

use rocmforge::engine::StopReason;
use serde_json::value::RawValue;

/// The version of the server, as clients use it to tell servers apart.
pub(crate) const FINGERPRINT: &str = concat!("rocmforge-", env!("CARGO_PKG_VERSION"));

/// An array that is always empty.
pub(crate) type NoItems = [(); 0];

/// Returns true if an answer ended before the model ended it.
pub(crate) fn is_cut_off(reason: StopReason) -> bool {
    matches!(reason, StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit)
}

/// The arguments of a call as an object on one line. Numbers keep the digits that the model wrote,
/// of which an `f64` has room for 17 only. Arguments of a call that was cut off are no JSON: then
/// the object is empty.
pub(crate) fn arguments_object(arguments: &str) -> Box<RawValue> {
    // Line breaks are white space between the parts of JSON, never in a text.
    let line = arguments.replace(['\n', '\r'], " ");
    let object = RawValue::from_string(line).ok().filter(|json| json.get().starts_with('{'));
    object.unwrap_or_else(no_arguments)
}

/// An empty object.
pub(crate) fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("`{}` is JSON")
}
