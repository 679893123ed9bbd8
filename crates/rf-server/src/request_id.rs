//! The ids of requests and of parts of answers.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::{HeaderMap, HeaderValue};

/// The id of a request, in the response header `x-request-id` and in the log.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    pub(crate) const HEADER: &str = "x-request-id";

    /// Takes the id that a gateway chose, if it is short and printable.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(Self::HEADER).filter(|value| {
            (1..=MAX_LENGTH).contains(&value.len())
                && value.as_bytes().iter().all(u8::is_ascii_graphic)
        });
        let new = || HeaderValue::try_from(unique("req-")).unwrap_or(HeaderValue::from_static("-"));
        Self(given.cloned().unwrap_or_else(new))
    }

    pub(crate) fn header(&self) -> &HeaderValue {
        &self.0
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

const MAX_LENGTH: usize = 128;

/// A new id: `prefix` and 24 hexadecimal digits. It is unique, not secret.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static HASHER: std::sync::LazyLock<(RandomState, u32)> = std::sync::LazyLock::new(|| {
        let state = RandomState::new();
        let process = state.hash_one("process") as u32;
        (state, process)
    });
    let (hasher, process) = &*HASHER;
    format!("{prefix}{:016x}{process:08x}", hasher.hash_one(COUNT.fetch_add(1, Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_gateway_is_kept_if_it_is_printable() {
        let of = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            RequestId::of(&HeaderMap::from_iter([(RequestId::HEADER.parse().unwrap(), value)]))
        };
        assert_eq!(of("trace-7").as_str(), "trace-7");
        for bad in ["", "a b", &"x".repeat(129)] {
            assert!(of(bad).as_str().starts_with("req-"), "{bad}");
        }
        assert_ne!(unique("a-"), unique("a-"));
    }
}
