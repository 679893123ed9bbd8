//! The layer that asks for API keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::{ApiError, Kind};
use crate::state::App;

/// Refuses requests without a key before anything of them is read.
pub(crate) async fn require_key(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let options = app.options();
    let is_open = match request.uri().path() {
        "/health" | "/openapi.json" | "/" => true,
        "/metrics" => !options.metrics_key,
        _ => false,
    };
    if is_open || options.keys.is_empty() {
        return next.run(request).await;
    }
    let [bearer, header] = given_keys(request.headers());
    let is_valid = |key: Option<&[u8]>| key.is_some_and(|key| options.keys.contains(key));
    if is_valid(bearer) || is_valid(header) {
        return next.run(request).await;
    }
    if bearer.or(header).is_some() {
        return refusal("the API key is not valid");
    }
    refusal(
        "this server needs an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
    )
}

fn refusal(message: &str) -> Response {
    ApiError::new(Kind::Authentication, message).into_response()
}

/// The keys of both headers. Clients that send a placeholder in one may send the key in the other.
fn given_keys(headers: &HeaderMap) -> [Option<&[u8]>; 2] {
    const SCHEME: &[u8] = b"bearer ";
    let bearer = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).filter(|value| {
        value.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
    });
    let bearer = bearer.map(|value| value[SCHEME.len()..].trim_ascii());
    [bearer, headers.get("x-api-key").map(HeaderValue::as_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_carry_a_key() {
        let mut headers = HeaderMap::new();
        assert_eq!(given_keys(&headers), [None, None]);
        headers.insert("x-api-key", HeaderValue::from_static("k1"));
        assert_eq!(given_keys(&headers), [None, Some(&b"k1"[..])]);
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Basic k3"));
        assert_eq!(given_keys(&headers), [None, Some(&b"k1"[..])]);
        headers.insert(AUTHORIZATION, HeaderValue::from_static("bEaReR k2"));
        assert_eq!(given_keys(&headers), [Some(&b"k2"[..]), Some(&b"k1"[..])]);
    }
}
