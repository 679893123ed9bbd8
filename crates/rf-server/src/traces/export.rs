//! The exporter: sends spans to a collector, by OTLP over HTTP.

use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::span::{Span, body};
use crate::error::Error;

/// The time that the collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The path where the URL has none.
const PATH: &str = "/v1/traces";

/// The address of a collector.
#[derive(Debug)]
pub(super) struct Collector {
    host: String,
    port: u16,
    /// The value of the header `Host`.
    authority: String,
    path: String,
}

impl Collector {
    /// Reads a URL such as `http://127.0.0.1:4318/v1/traces`.
    pub(super) fn new(endpoint: &str) -> Result<Self, Error> {
        let wrong = || Error::TracesEndpoint(endpoint.to_owned());
        let uri: Uri = endpoint.parse().map_err(|_| wrong())?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        let path = if uri.path() == "/" { PATH } else { uri.path() };
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(4318),
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
        })
    }

    /// Sends spans in time. The error tells why they were not taken.
    pub(super) async fn send(&self, spans: &[Span]) -> Result<(), String> {
        let sent = timeout(TIMEOUT, self.post(spans)).await;
        sent.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
    }

    async fn post(&self, spans: &[Span]) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| text(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
        let request = Request::post(&self.path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close")
            .body(Full::new(Bytes::from(body(spans).to_string())))
            .map_err(|error| text(&error))?;
        let response = async {
            let response = sender.send_request(request).await.map_err(|error| text(&error))?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status => Err(format!("status {}", status.as_u16())),
            }
        };
        tokio::select! {
            response = response => response,
            ended = connection => Err(match ended {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => error.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_url() {
        let parts = |url: &str| {
            let Collector { host, port, authority, path } = Collector::new(url).ok()?;
            Some((host, port, authority, path))
        };
        let of = |host: &str, port, authority: &str, path: &str| {
            Some((host.to_owned(), port, authority.to_owned(), path.to_owned()))
        };
        assert_eq!(parts("http://a:1/x/y"), of("a", 1, "a:1", "/x/y"));
        assert_eq!(parts("http://localhost"), of("localhost", 4318, "localhost", PATH));
        assert_eq!(parts("http://[::1]:4318/"), of("::1", 4318, "[::1]:4318", PATH));
        for wrong in ["", "localhost:4318", "https://a/v1/traces", "grpc://a:4317", "http://"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }
}
