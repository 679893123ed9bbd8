//! The layer that keeps foreign web pages away from a local server.
//!
//! A server without a key on a loopback address trusts the programs of its machine. A browser is
//! one of them, and runs pages of others: a page whose name resolves to 127.0.0.1 (DNS rebinding)
//! reads answers, and any page may send requests that need no preflight.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::{ApiError, ApiErrorKind};
use crate::options::ServerOptions;
use crate::state::App;

/// Refuses requests of foreign pages.
pub(crate) async fn refuse_foreign_pages(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    if app.is_guarded() {
        let named = request.uri().host();
        if let Err(error) = check(request.method(), named, request.headers(), app.options()) {
            return error.into_response();
        }
    }
    next.run(request).await
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Schemes of the pages of desktop programs.
const PROGRAMS: [&str; 5] = ["app", "file", "tauri", "vscode-file", "vscode-webview"];

fn check(
    method: &Method,
    named: Option<&str>,
    headers: &HeaderMap,
    options: &ServerOptions,
) -> Result<(), ApiError> {
    let is_known = |host: &str| {
        is_local(host) || options.allowed_hosts.iter().any(|name| name.eq_ignore_ascii_case(host))
    };
    let is_address = |host: &str| address(host).is_some() || is_known(host);
    let header = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if !named.into_iter().chain(header(HOST).map(without_port)).all(is_address) {
        let message = "this server answers under localhost and IP addresses only: add other names \
                       with --allowed-host, or require a key";
        return Err(ApiError::new(ApiErrorKind::Forbidden, message));
    }
    let origin = header(ORIGIN);
    let is_allowed = |origin: &str| match origin.split_once("://") {
        Some(("http" | "https", host)) => is_known(without_port(host)),
        Some((scheme, _)) => PROGRAMS.contains(&scheme),
        None => false,
    };
    let has_cors = |origin: &str| options.cors_origins.iter().any(|o| o == "*" || o == origin);
    if origin.is_some_and(|origin| !is_allowed(origin) && !has_cors(origin)) {
        let message =
            "web pages of this origin may not use the server: allow it with --cors-origin";
        return Err(ApiError::new(ApiErrorKind::Forbidden, message));
    }
    let is_page = origin.is_some() || headers.contains_key(FETCH_SITE);
    if is_page && *method == Method::POST && !header(CONTENT_TYPE).is_some_and(is_json) {
        let message = "requests of web pages need `content-type: application/json`";
        return Err(ApiError::new(ApiErrorKind::MediaType, message));
    }
    Ok(())
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The host of `host:port`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

/// The IP address that a host is, with brackets around those of version 6.
fn address(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

/// Returns true for names and addresses that are this machine everywhere.
fn is_local(host: &str) -> bool {
    let name = host.to_ascii_lowercase();
    let is_name = name == "localhost" || name.ends_with(".localhost");
    is_name || address(host).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &Method, headers: &[(&str, &str)]) -> u16 {
        let options = ServerOptions {
            allowed_hosts: vec!["box.lan".to_owned()],
            cors_origins: vec!["https://chat.example".to_owned()],
            ..ServerOptions::default()
        };
        let headers: HeaderMap =
            headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
        check(method, None, &headers, &options).map_or_else(|e| e.kind.status().as_u16(), |()| 200)
    }

    #[test]
    fn names_of_others_are_refused() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "a.localhost",
            "127.0.0.1:1",
            "[::1]:80",
            "192.168.1.7:8080",
            "box.lan:8080",
        ] {
            assert_eq!(status(&Method::POST, &[("host", host)]), 200, "{host}");
        }
        for host in
            ["rebind.evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io", "", "[::1"]
        {
            assert_eq!(status(&Method::GET, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&Method::GET, &[]), 200);
    }

    #[test]
    fn pages_of_others_are_refused() {
        let json = ("content-type", "application/json; charset=utf-8");
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "https://chat.example",
            "app://obsidian.md",
            "http://[::1]:80",
        ] {
            assert_eq!(status(&Method::POST, &[("origin", origin), json]), 200, "{origin}");
        }
        for origin in
            ["https://evil.example", "null", "http://10.0.0.9", "http://localhost.evil.example"]
        {
            assert_eq!(status(&Method::POST, &[("origin", origin), json]), 403, "{origin}");
        }
    }

    #[test]
    fn requests_without_a_preflight_are_refused() {
        let page = ("origin", "http://localhost:3000");
        assert_eq!(status(&Method::POST, &[page, ("content-type", "text/plain")]), 415);
        assert_eq!(status(&Method::POST, &[("sec-fetch-site", "cross-site")]), 415);
        assert_eq!(status(&Method::GET, &[page]), 200);
        // curl sends the type of forms.
        let form = ("content-type", "application/x-www-form-urlencoded");
        assert_eq!(status(&Method::POST, &[form]), 200);
    }
}
