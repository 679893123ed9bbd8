//! The layer that asks for API keys.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::{ApiError, ApiErrorKind};
use crate::metrics::KeyRejection;
use crate::record::RequestRecord;
use crate::state::App;

/// Refuses requests without a key before anything of them is read.
pub(crate) async fn require_key(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let is_open = match request.uri().path() {
        "/" | "/health" | "/health/ready" | "/openapi.json" | "/ping" | "/ready" | "/v1/health" => {
            true
        }
        "/metrics" => !app.options().metrics_key,
        _ => false,
    };
    if is_open {
        return next.run(request).await;
    }
    let keys = app.keys();
    if keys.is_empty() {
        return next.run(request).await;
    }
    let refusal = |reason, message| {
        app.http_metrics().count_key_rejection(reason);
        ApiError::new(ApiErrorKind::Authentication, message).into_response()
    };
    let [bearer, header] = given_keys(request.headers());
    let client = |key: Option<&[u8]>| key.and_then(|key| keys.client(key)).map(Arc::clone);
    if let Some(client) = client(bearer).or_else(|| client(header)) {
        if client.has_expired(SystemTime::now()) {
            return refusal(KeyRejection::ExpiredKey, "the API key has expired");
        }
        let accepted = RequestRecord::current().map_or(Ok(()), |record| record.set_client(&client));
        return match accepted {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        };
    }
    if bearer.or(header).is_some() {
        return refusal(KeyRejection::InvalidKey, "the API key is not valid");
    }
    refusal(
        KeyRejection::MissingKey,
        "this server needs an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
    )
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
