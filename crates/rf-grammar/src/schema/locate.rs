//! The place of an error in a schema.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::parts::children;
use super::rewrite::part_of;

/// The most parts of a schema that are tried.
const MAX_PARTS: usize = 500;
/// The time for finding the part that fails.
const LOCATE_TIMEOUT: Duration = Duration::from_secs(1);

/// The JSON pointer of the smallest part of `schema` that fails, and its error. `check` says why a
/// schema fails, if it does; `schema` does.
pub(crate) fn locate(
    schema: &Value,
    problem: String,
    check: impl Fn(&Value) -> Option<String>,
) -> (String, String) {
    let started = Instant::now();
    let mut place = ("#".to_owned(), problem);
    let mut part = schema;
    let mut parts = 0;
    'part: loop {
        for (path, child) in children(part) {
            // `false` fails by itself, but is no error where it stands: `"items": false`.
            if child.is_boolean() {
                continue;
            }
            parts += 1;
            if parts > MAX_PARTS || started.elapsed() > LOCATE_TIMEOUT {
                return place;
            }
            if let Some(problem) = check(&part_of(child, schema)) {
                place = (format!("{}/{path}", place.0), problem);
                part = child;
                continue 'part;
            }
        }
        return place;
    }
}
