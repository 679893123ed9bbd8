//! The outermost layer: request ids, the body of errors, and one line of log per request.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::{Api, ApiError};

/// The id of a request, in the response header `x-request-id` and in the log.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// Takes the id that a gateway chose, if it is short and printable.
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(HEADER).filter(|value| {
            (1..=MAX_LENGTH).contains(&value.len())
                && value.as_bytes().iter().all(u8::is_ascii_graphic)
        });
        let new = || HeaderValue::try_from(unique("req-")).unwrap_or(HeaderValue::from_static("-"));
        Self(given.cloned().unwrap_or_else(new))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

const HEADER: &str = "x-request-id";
const MAX_LENGTH: usize = 128;
/// The longest path in the log, in bytes.
const MAX_PATH: usize = 200;

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

/// Gives the request an id, its error a body, and logs it.
pub(crate) async fn observe(mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    let error = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &error {
        // Headers that other layers added, such as those of CORS, stay.
        let (parts, body) = error.response(Api::of(&path)).into_parts();
        response.headers_mut().extend(parts.headers);
        *response.body_mut() = body;
    }
    let ms = started.elapsed().as_secs_f64() * 1e3;
    let (status, request_id) = (response.status().as_u16(), id.as_str());
    // The message may quote the request, which is none of the log's business.
    let error = error.map(|error| error.summary());
    let path = if path.len() > MAX_PATH { "(a long path)" } else { path.as_str() };
    tracing::info!(request_id, %method, path, status, ms, error, "request");
    // Anthropic's clients read their own name of it.
    response.headers_mut().insert("request-id", id.0.clone());
    response.headers_mut().insert(HEADER, id.0);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_gateway_is_kept_if_it_is_printable() {
        let of = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            RequestId::of(&HeaderMap::from_iter([(HEADER.parse().unwrap(), value)]))
        };
        assert_eq!(of("trace-7").as_str(), "trace-7");
        for bad in ["", "a b", &"x".repeat(129)] {
            assert!(of(bad).as_str().starts_with("req-"), "{bad}");
        }
        assert_ne!(unique("a-"), unique("a-"));
    }
}
