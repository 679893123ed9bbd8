//! Receiving the bytes of a body.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, EXPECT};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::memory::{MemoryPermit, SMALL_BYTES};
use crate::error::{ApiError, ApiErrorKind};
use crate::state::App;

/// The time for sending a body. A client that stops in the middle holds nothing but a socket.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The most bytes that are read of a refused body beyond the limit. Most clients send a whole body
/// before they read, and a socket that is closed before takes the answer with it.
const MAX_DISCARDED: usize = 32 << 20;

/// The bytes of a body, and the memory that they take.
pub(crate) struct ReceivedBody {
    pub(crate) bytes: Bytes,
    _memory: MemoryPermit,
}

#[cfg(test)]
impl From<Bytes> for ReceivedBody {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, _memory: None }
    }
}

/// Receives the body of a request.
pub(crate) async fn receive(request: Request, app: &App) -> Result<ReceivedBody, ApiError> {
    let (parts, mut body) = request.into_parts();
    let limit = app.options().max_body_bytes;
    let deadline = Instant::now() + TIMEOUT;
    let received = async {
        check_encoding(&parts.headers)?;
        receive_within(&mut body, limit, app).await
    };
    let received = timeout_at(deadline, received).await.unwrap_or_else(|_| {
        let message = format!("the body did not arrive in {TIMEOUT:?}");
        Err(ApiError::new(ApiErrorKind::Timeout, message))
    });
    // A client that waits for `100 Continue` reads the answer instead.
    if received.is_err() && !parts.headers.contains_key(EXPECT) {
        let most = limit.saturating_add(MAX_DISCARDED);
        // The answer is the same whether the rest has arrived or not.
        drop(timeout_at(deadline, discard(&mut body, most)).await);
    }
    received
}

async fn receive_within(
    body: &mut Body,
    limit: usize,
    app: &App,
) -> Result<ReceivedBody, ApiError> {
    let too_large = || {
        let message = format!("the body is larger than {limit} bytes");
        ApiError::new(ApiErrorKind::TooLarge, message)
    };
    let length = body.size_hint().exact();
    let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let (mut bytes, mut memory) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| ApiError::invalid(format!("the body cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let received = bytes.len() + data.len();
        if received > limit {
            return Err(too_large());
        }
        if memory.is_none() && received >= SMALL_BYTES {
            let most = length.unwrap_or(limit).max(received);
            memory = app.body_memory().receive(most).await?;
            if let Some(length) = length {
                bytes.reserve_exact(length.saturating_sub(bytes.len()));
            }
        }
        bytes.extend_from_slice(&data);
    }
    Ok(ReceivedBody { bytes: bytes.into(), _memory: memory })
}

/// Reads the rest of a body that is refused, unless it is longer than `most`.
async fn discard(body: &mut Body, most: usize) {
    let is_longer = |length: u64| usize::try_from(length).map_or(true, |length| length > most);
    if body.size_hint().exact().is_some_and(is_longer) {
        return;
    }
    let mut discarded = 0;
    while discarded < most
        && let Some(Ok(frame)) = body.frame().await
    {
        discarded += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Refuses compressed bodies.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value.to_str().unwrap_or("?");
        let is_plain = |coding: &str| {
            let coding = coding.trim();
            coding.is_empty() || coding.eq_ignore_ascii_case("identity")
        };
        if !value.split(',').all(is_plain) {
            let message = format!(
                "`content-encoding: {value}` is not supported: send the body uncompressed, \
                 without this header"
            );
            return Err(ApiError::new(ApiErrorKind::MediaType, message));
        }
    }
    Ok(())
}
