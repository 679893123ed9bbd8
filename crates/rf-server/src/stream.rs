//! Streams of a generation: server-sent events and lines of JSON.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep};

use crate::generation::{Generation, Update};

/// Turns updates into the frames of one API.
pub(crate) trait Encoder: Send + Unpin + 'static {
    /// Appends the frames of an update. The last one is [`Update::Ended`] or [`Update::Failed`].
    fn encode(&mut self, update: Update, out: &mut Frames);
}

/// The framing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `data: …`, and comments while nothing else is sent.
    Events,
    /// One JSON object per line.
    Lines,
}

/// Text that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Frames {
    framing: Framing,
    text: String,
}

impl Frames {
    /// A JSON object.
    pub(crate) fn json(&mut self, value: &impl Serialize) {
        // Serialisation of our own types fails only for maps whose keys are no strings.
        let json = serde_json::to_string(value).unwrap_or_default();
        // Writing to a string does not fail.
        let _: std::fmt::Result = match self.framing {
            Framing::Events => write!(self.text, "data: {json}\n\n"),
            Framing::Lines => writeln!(self.text, "{json}"),
        };
    }

    /// A JSON object as an event with a name.
    pub(crate) fn event(&mut self, name: &str, value: &impl Serialize) {
        self.text.push_str("event: ");
        self.text.push_str(name);
        self.text.push('\n');
        self.json(value);
    }

    /// The end of a stream of `OpenAI`'s API.
    pub(crate) fn done(&mut self) {
        self.text.push_str("data: [DONE]\n\n");
    }
}

/// The response that streams a generation.
pub(crate) fn response(
    generation: Generation,
    encoder: impl Encoder,
    framing: Framing,
) -> Response {
    let body = EncodedStream {
        generation: Some(generation),
        encoder,
        frames: Frames { framing, text: String::new() },
        is_collecting: false,
        timer: Box::pin(sleep(PING_AFTER)),
    };
    let content_type = match framing {
        Framing::Events => "text/event-stream",
        Framing::Lines => "application/x-ndjson",
    };
    // The last header keeps nginx from collecting the stream.
    let headers = [
        (CONTENT_TYPE.as_str(), content_type),
        (CACHE_CONTROL.as_str(), "no-cache"),
        ("x-accel-buffering", "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

/// Proxies close connections on which nothing is sent for a minute or less.
const PING_AFTER: Duration = Duration::from_secs(15);
/// Updates that are ready are sent together, up to about this size.
const CHUNK_BYTES: usize = 16 << 10;
/// Tokens that come sooner than this after others were sent are collected and sent together. A
/// reader cannot see the difference, and a write with its two wakes takes more time than a small
/// model takes for a token.
const COLLECT_FOR: Duration = Duration::from_millis(10);

struct EncodedStream<E> {
    /// `None` after its end.
    generation: Option<Generation>,
    encoder: E,
    frames: Frames,
    /// Tokens were sent a moment ago, so that the next ones wait for the timer.
    is_collecting: bool,
    /// The end of collecting, or the time of the next ping.
    timer: Pin<Box<Sleep>>,
}

impl<E: Encoder> EncodedStream<E> {
    /// Encodes the updates that are ready. Returns true if there are tokens among them.
    fn encode(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_tokens = false;
        while let Some(generation) = &mut self.generation {
            if self.frames.text.len() >= CHUNK_BYTES {
                break;
            }
            match generation.poll_update(cx, !self.is_collecting) {
                Poll::Ready(Some(update)) => {
                    has_tokens |= matches!(update, Update::Delta { .. });
                    self.encoder.encode(update, &mut self.frames);
                }
                Poll::Ready(None) => self.generation = None,
                Poll::Pending => break,
            }
        }
        has_tokens
    }

    fn set_timer(&mut self, after: Duration) {
        self.timer.as_mut().reset(Instant::now() + after);
    }
}

impl<E: Encoder> Stream for EncodedStream<E> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut();
        loop {
            let has_tokens = stream.encode(cx);
            if !stream.frames.text.is_empty() {
                let text = std::mem::take(&mut stream.frames.text);
                // More is ready after a full chunk.
                stream.is_collecting = has_tokens && text.len() < CHUNK_BYTES;
                stream.set_timer(if stream.is_collecting { COLLECT_FOR } else { PING_AFTER });
                return Poll::Ready(Some(Ok(text.into())));
            }
            if stream.generation.is_none() {
                return Poll::Ready(None);
            }
            ready!(stream.timer.as_mut().poll(cx));
            stream.set_timer(PING_AFTER);
            let is_ping = !std::mem::take(&mut stream.is_collecting);
            if is_ping && stream.frames.framing == Framing::Events {
                return Poll::Ready(Some(Ok(Bytes::from_static(b": ping\n\n"))));
            }
        }
    }
}
