//! The outermost layer: request ids, the body of errors, and the record of each request.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::error::{Api, ApiError};
use crate::record::{Record, RecordGuard};
use crate::state::App;

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

/// Gives the request an id, its error a body, and a record that is logged at its end.
pub(crate) async fn observe(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let api = Api::of(request.uri().path());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let peer = request.extensions().get::<PeerAddress>().map(|peer| peer.0);
    let (method, path) = (request.method().clone(), request.uri().path());
    let metrics = Arc::clone(app.http_metrics());
    let record = Arc::new(Record::new(id.clone(), method, path, route, peer, metrics));
    // If the client leaves before the response, the record ends here.
    let guard = RecordGuard(Arc::clone(&record));
    let mut response = record.serve(next.run(request)).await;
    let error = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &error {
        // Headers that other layers added, such as those of CORS, stay.
        let (parts, body) = error.response(api).into_parts();
        response.headers_mut().extend(parts.headers);
        *response.body_mut() = body;
    }
    record.respond(response.status(), error.as_ref());
    // Anthropic's clients read their own name of it.
    response.headers_mut().insert("request-id", id.0.clone());
    response.headers_mut().insert(HEADER, id.0);
    response.map(|body| Body::new(RecordedBody { body, _guard: guard }))
}

/// The address of the client, or of the gateway before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// A body with whose end the record of its request ends.
struct RecordedBody {
    // Dropped first: a stream notes its end in the record.
    body: Body,
    _guard: RecordGuard,
}

impl HttpBody for RecordedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
