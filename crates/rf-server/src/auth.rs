//! API keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::{Choice, ConstantTimeEq};

use crate::error::{ApiError, Kind};
use crate::state::App;

/// Keys that open the server; without any, it is open to everyone.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<String>);

impl ApiKeys {
    /// The keys. Empty ones are left out.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Self {
        Self(keys.into_iter().filter(|key| !key.is_empty()).collect())
    }

    /// Whether the server is open to everyone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares in a time that depends on lengths only.
    fn contains(&self, given: &[u8]) -> bool {
        let equal = |key: &String| key.as_bytes().ct_eq(given);
        self.0.iter().map(equal).fold(Choice::from(0), |any, equal| any | equal).into()
    }
}

/// Keys are not for logs.
impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} API keys", self.0.len())
    }
}

/// Refuses requests without a key before anything of them is read.
pub(crate) async fn require_key(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let options = app.options();
    let is_open = match request.uri().path() {
        "/health" | "/" => true,
        "/metrics" => !options.metrics_key,
        _ => false,
    };
    if is_open || options.keys.is_empty() {
        return next.run(request).await;
    }
    match given_key(request.headers()) {
        Some(key) if options.keys.contains(key) => next.run(request).await,
        Some(_) => refusal("the API key is not valid"),
        None => refusal(
            "this server needs an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
        ),
    }
}

fn refusal(message: &str) -> Response {
    ApiError::new(Kind::Authentication, message).into_response()
}

fn given_key(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let bearer = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).filter(|value| {
        value.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
    });
    let key = headers.get("x-api-key").map(HeaderValue::as_bytes);
    bearer.map(|value| value[SCHEME.len()..].trim_ascii()).or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_carry_a_key_and_bearer_counts_first() {
        let mut headers = HeaderMap::new();
        assert_eq!(given_key(&headers), None);
        headers.insert("x-api-key", HeaderValue::from_static("k1"));
        assert_eq!(given_key(&headers), Some(&b"k1"[..]));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Basic k3"));
        assert_eq!(given_key(&headers), Some(&b"k1"[..]));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("bEaReR k2"));
        assert_eq!(given_key(&headers), Some(&b"k2"[..]));
    }

    #[test]
    fn only_whole_keys_are_equal_and_none_is_printed() {
        let keys = ApiKeys::new(["secret".to_owned(), String::new(), "other".to_owned()]);
        assert!(keys.contains(b"secret") && keys.contains(b"other"));
        for wrong in [&b"secre"[..], b"secrets", b"", b"SECRET"] {
            assert!(!keys.contains(wrong));
        }
        assert_eq!(format!("{keys:?}"), "2 API keys");
    }
}
