//! `GET /models/sse`: changes of the models and downloads, as they happen.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::model_events::{MAX_WAITING, ModelEvent};
use crate::openai::models::status_name;
use crate::openapi::EVENTS;
use crate::record::RequestRecord;
use crate::state::App;

/// The interval at which the states of the models are compared.
const TICK: Duration = Duration::from_millis(250);
/// Proxies close connections on which nothing is sent for a minute or less.
const PING_AFTER: Duration = Duration::from_secs(15);
/// Streams events until the client leaves or the server stops.
pub(crate) async fn events(State(app): State<Arc<App>>) -> Response {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let events = app.model_events().subscribe();
    let record = RequestRecord::current();
    let mut watch = ModelWatch { record, sender, events, states: Vec::new(), app };
    watch.states = watch.current();
    tokio::spawn(watch.run());
    let headers = [
        (CONTENT_TYPE.as_str(), EVENTS),
        (CACHE_CONTROL.as_str(), "no-cache"),
        ("x-accel-buffering", "no"),
    ];
    (headers, Body::from_stream(EventBody(receiver))).into_response()
}

/// Watches the models for one client.
struct ModelWatch {
    app: Arc<App>,
    /// The request, whose key may not see all models.
    record: Option<Arc<RequestRecord>>,
    sender: mpsc::Sender<Bytes>,
    events: broadcast::Receiver<ModelEvent>,
    /// The models with the states that the client knows.
    states: Vec<(String, &'static str)>,
}

impl ModelWatch {
    async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_sent = Instant::now();
        while !self.app.is_draining() {
            let found = tokio::select! {
                () = self.sender.closed() => return,
                _ = ticks.tick() => self.changes(),
                // A client that is too slow misses some.
                event = self.events.recv() => {
                    event.ok().filter(|event| self.may_see(event)).into_iter().collect()
                }
            };
            for event in &found {
                // Serialisation of our own types fails only for maps whose keys are no strings.
                let json = serde_json::to_string(event).unwrap_or_default();
                last_sent = Instant::now();
                if self.sender.send(format!("data: {json}\n\n").into()).await.is_err() {
                    return;
                }
            }
            if last_sent.elapsed() >= PING_AFTER {
                last_sent = Instant::now();
                if self.sender.send(Bytes::from_static(b": ping\n\n")).await.is_err() {
                    return;
                }
            }
        }
    }

    fn may_see(&self, event: &ModelEvent) -> bool {
        let names = std::slice::from_ref(&event.model);
        event.model == "*" || self.record.as_ref().is_none_or(|record| record.may_use(names))
    }

    /// The models that the client may use, with their states.
    fn current(&self) -> Vec<(String, &'static str)> {
        let mut models = self.app.catalog().list();
        if let Some(record) = &self.record {
            models.retain(|model| record.may_use(&model.names()));
        }
        models.into_iter().map(|model| (model.id, status_name(&model.status))).collect()
    }

    /// The changes since the last call.
    fn changes(&mut self) -> Vec<ModelEvent> {
        let current = self.current();
        let removed =
            self.states.iter().filter(|(id, _)| !current.iter().any(|(new, _)| new == id));
        let removed = removed.map(|(id, _)| ModelEvent::removed(id));
        let changed = current.iter().filter(|state| !self.states.contains(state));
        let changed = changed.map(|(id, status)| ModelEvent::status(id, status));
        let events = removed.chain(changed).collect();
        self.states = current;
        events
    }
}

/// The events as a body.
struct EventBody(mpsc::Receiver<Bytes>);

impl Stream for EventBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|event| event.map(Ok))
    }
}
