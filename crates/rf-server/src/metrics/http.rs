//! Requests by route and status, and those that were refused because of their key, whatever their
//! model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};

use super::keys::{KeyRejection, KeyRejectionCounts};

/// Counts of answers.
#[derive(Debug, Default)]
pub(crate) struct HttpMetrics {
    answers: Mutex<BTreeMap<Answer, Count>>,
    key_rejections: KeyRejectionCounts,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    handler: String,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Default)]
struct Count {
    requests: u64,
    seconds: f64,
}

/// The end of the name of a sample, and its value.
type Sample = (&'static str, fn(&Count) -> f64);

impl HttpMetrics {
    /// Counts an answer. Without a route, all paths are one.
    pub(crate) fn count(
        &self,
        method: &Method,
        route: Option<&str>,
        status: StatusCode,
        time: Duration,
    ) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            _ => "other",
        };
        let handler = route.unwrap_or("none").to_owned();
        let answer = Answer { handler, method, status: status.as_u16() };
        let mut counts = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(answer).or_default();
        count.requests += 1;
        count.seconds += time.as_secs_f64();
    }

    /// Counts a request that is refused because of its key.
    pub(crate) fn count_key_rejection(&self, reason: KeyRejection) {
        self.key_rejections.count(reason);
    }

    /// Writes the counts of answers under the names that vLLM's server has.
    pub(super) fn write(&self, text: &mut String) {
        self.key_rejections.write(text);
        let counts = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut family = |name: &str, kind: &str, help: &str, samples: &[Sample]| {
            // Writing to a string does not fail.
            let _: std::fmt::Result = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (Answer { handler, method, status }, count) in &*counts {
                for (suffix, value) in samples {
                    let value = value(count);
                    let _: std::fmt::Result = writeln!(
                        text,
                        "{name}{suffix}{{handler=\"{handler}\",method=\"{method}\",status=\"{status}\"}} {value}"
                    );
                }
            }
        };
        family(
            "http_requests_total",
            "counter",
            "Answers by route and status",
            &[("", |count| count.requests as f64)],
        );
        family(
            "http_request_duration_seconds",
            "summary",
            "Time to the end of the answer",
            &[("_sum", |count| count.seconds), ("_count", |count| count.requests as f64)],
        );
    }
}
