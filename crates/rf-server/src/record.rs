//! What is known of a request while it is served: for its line in the log, the metrics, and the
//! limits of its key.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use rocmforge::Usage;

use crate::error::{ApiError, ApiErrorKind};
use crate::keys::{Client, KeyRefusal, RequestPermit, SequencePermit};
use crate::metrics::{HttpMetrics, KeyRejection};
use crate::request_id::RequestId;
use crate::traces::{RequestEnd, RequestTrace};

tokio::task_local! {
    /// The request that the task serves.
    static CURRENT: Arc<RequestRecord>;
}

/// A request that is served. It ends when its response has been written, or its client is gone.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    id: RequestId,
    method: Method,
    path_bytes: usize,
    /// The path of its route; `None` if there is none.
    route: Option<String>,
    peer: Option<IpAddr>,
    metrics: Arc<HttpMetrics>,
    trace: Option<Arc<RequestTrace>>,
    started: Instant,
    client: OnceLock<Arc<Client>>,
    model: OnceLock<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until the response begins.
    status: Option<StatusCode>,
    first_byte: Option<Duration>,
    /// The kind of an error, of the response or in its stream.
    error: Option<String>,
    usage: Option<Usage>,
    /// Its end gives the place to the next request of the key.
    permit: Option<RequestPermit>,
}

/// The status in the log of a request whose client left before the response, as nginx has it.
const CLIENT_GONE: StatusCode = match StatusCode::from_u16(499) {
    Ok(status) => status,
    Err(_) => StatusCode::BAD_REQUEST,
};

impl RequestRecord {
    pub(crate) fn new(
        id: RequestId,
        method: Method,
        path: &str,
        route: Option<String>,
        peer: Option<IpAddr>,
        metrics: Arc<HttpMetrics>,
    ) -> Self {
        Self {
            id,
            method,
            path_bytes: path.len(),
            route,
            peer,
            metrics,
            trace: None,
            started: Instant::now(),
            client: OnceLock::new(),
            model: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Adds a trace, which ends with the record.
    pub(crate) fn with_trace(mut self, trace: Option<Arc<RequestTrace>>) -> Self {
        self.trace = trace;
        self
    }

    /// Runs a future that serves the request.
    pub(crate) async fn serve<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        CURRENT.scope(Arc::clone(self), future).await
    }

    /// The request that the task serves; `None` outside of one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Notes whose key the request has. Those that compute something count as running.
    pub(crate) fn set_client(&self, client: &Arc<Client>) -> Result<(), ApiError> {
        // Set once per request.
        drop(self.client.set(Arc::clone(client)));
        if self.method == Method::POST {
            let permit = client.begin().map_err(|refusal| self.refused(refusal))?;
            self.state().permit = Some(permit);
        }
        Ok(())
    }

    /// The trace of the request, if it has one.
    pub(crate) fn trace(&self) -> Option<&Arc<RequestTrace>> {
        self.trace.as_ref()
    }

    /// The holder of the key, if the server has keys.
    pub(crate) fn client(&self) -> Option<&Arc<Client>> {
        self.client.get()
    }

    /// True if the key of the request may use a model of these names.
    pub(crate) fn may_use(&self, names: &[String]) -> bool {
        self.client().is_none_or(|client| client.may_use(names))
    }

    /// The error of a model that the key of the request may not use, which is counted.
    pub(crate) fn may_not_use(id: &str) -> ApiError {
        if let Some(record) = Self::current() {
            record.count_rejection(KeyRejection::Model);
        }
        ApiError::may_not_use(id)
    }

    /// Notes the model, if its key may use it.
    pub(crate) fn set_model(&self, names: &[String]) -> Result<(), ApiError> {
        let id = names.first().map_or("", String::as_str);
        if !self.may_use(names) {
            return Err(Self::may_not_use(id));
        }
        // A request has one model.
        drop(self.model.set(id.to_owned()));
        Ok(())
    }

    /// Begins the sequences of the request.
    pub(crate) fn begin_sequences(
        &self,
        count: usize,
        priority: i32,
    ) -> Result<Option<SequencePermit>, ApiError> {
        let Some(client) = self.client() else { return Ok(None) };
        if priority != 0 && !client.sets_priority() {
            self.count_rejection(KeyRejection::Priority);
            let message = "this API key may not set a priority";
            return Err(ApiError::new(ApiErrorKind::Forbidden, message));
        }
        client.begin_sequences(count).map(Some).map_err(|refusal| self.refused(refusal))
    }

    /// Counts that the request is refused because of its key.
    pub(crate) fn count_rejection(&self, reason: KeyRejection) {
        self.metrics.count_key_rejection(reason);
    }

    fn refused(&self, KeyRefusal { reason, error }: KeyRefusal) -> ApiError {
        self.count_rejection(reason);
        error
    }

    /// Notes tokens that were computed.
    pub(crate) fn spend(&self, usage: Usage) {
        if let Some(client) = self.client() {
            let computed = usage.prompt_tokens - usage.cached_tokens.min(usage.prompt_tokens);
            client.spend(computed + usage.completion_tokens);
        }
        self.state().usage = Some(usage);
    }

    /// Notes tokens of a request that generates none, such as one for embeddings.
    pub(crate) fn spend_prompt(prompt_tokens: usize) {
        if let Some(record) = Self::current() {
            let mut usage = Usage::default();
            usage.prompt_tokens = prompt_tokens;
            record.spend(usage);
        }
    }

    /// Notes the beginning of the response.
    pub(crate) fn respond(&self, status: StatusCode, error: Option<&ApiError>) {
        let mut state = self.state();
        state.status = Some(status);
        state.first_byte = Some(self.started.elapsed());
        // The message may quote the request, which is none of the log's business.
        state.error = error.map(ApiError::summary);
    }

    /// Notes that a generation failed, or that its client left it. A stream has begun its response
    /// by then.
    pub(crate) fn fail(&self, kind: Option<ApiErrorKind>) {
        let mut state = self.state();
        if state.error.is_none() {
            state.error = Some(kind.map_or("client gone", ApiErrorKind::openai_type).to_owned());
            if let Some(kind) = kind {
                state.status = Some(kind.status());
            }
        }
    }

    /// Writes the line of the log.
    fn end(&self) {
        let mut state = self.state();
        state.permit = None;
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let status = state.status.unwrap_or(CLIENT_GONE);
        let usage = state.usage;
        let elapsed = self.started.elapsed();
        self.metrics.count(&self.method, self.route.as_deref(), status, elapsed);
        if let Some(trace) = &self.trace {
            trace.end(&RequestEnd {
                route: self.route.as_deref().unwrap_or_default(),
                model: self.model.get().map(String::as_str),
                request_id: self.id.as_str(),
                status: status.as_u16(),
                error: state.error.as_deref(),
                usage,
            });
        }
        // A path may have texts of the client: the log has the pattern of its route.
        let path = self.route.as_deref().unwrap_or("(no route)");
        tracing::info!(
            request_id = self.id.as_str(),
            client = self.client().map(|client| client.name()),
            peer = self.peer.map(tracing::field::display),
            method = %self.method,
            path,
            path_bytes = self.route.is_none().then_some(self.path_bytes),
            model = self.model.get(),
            status = status.as_u16(),
            first_byte_ms = state.first_byte.map(ms),
            ms = ms(elapsed),
            prompt_tokens = usage.map(|usage| usage.prompt_tokens),
            cached_tokens = usage.map(|usage| usage.cached_tokens),
            completion_tokens = usage.map(|usage| usage.completion_tokens),
            error = state.error,
            "request"
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the record of a request when it is dropped.
#[derive(Debug)]
pub(crate) struct RecordGuard(pub(crate) Arc<RequestRecord>);

impl Drop for RecordGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}
