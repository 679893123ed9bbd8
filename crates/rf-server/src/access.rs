//! The outermost layer: request ids, the body of errors, and the record of each request.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::error::{Api, ApiError};
use crate::record::{RecordGuard, RequestRecord};
use crate::request_id::RequestId;
use crate::state::App;

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
    let tracer = app.tracer();
    let trace = tracer.and_then(|tracer| tracer.begin(route.as_deref(), request.headers()));
    let record =
        RequestRecord::new(id.clone(), method, path, route, peer, metrics).with_trace(trace);
    let record = Arc::new(record);
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
    response.headers_mut().insert("request-id", id.header().clone());
    if let Some(trace) = record.trace() {
        response.headers_mut().insert("traceresponse", trace.header());
    }
    response.headers_mut().insert(RequestId::HEADER, id.header().clone());
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
