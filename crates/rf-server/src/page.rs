//! The chat page at `/`: one HTML document that loads nothing but this server's API. It is bundled
//! from the sources in `web`, a folder of the repository.

use std::iter;
use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use miniz_oxide::inflate::decompress_to_vec_zlib;
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::mcp::McpServer;
use crate::state::App;

/// The page in the form that browsers read: a third of its text.
const COMPRESSED: &[u8] = include_bytes!("../page/page.html.zlib");

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let text = decompress_to_vec_zlib(COMPRESSED).expect("`npm run build` has compressed the page");
    String::from_utf8(text).expect("the page is UTF-8")
});

/// The hashes of the page's script and style, as its policy names them.
static HASHES: LazyLock<[String; 2]> = LazyLock::new(|| {
    let hash = |tag| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(element(tag))));
    ["script", "style"].map(hash)
});

/// Only the page's own script and style run, whatever a model writes. Only its sanitiser may make
/// nodes of a text. The page connects to this server, and to the servers of tools that the operator
/// names.
fn policy(tools: &[McpServer]) -> String {
    let [script, style] = &*HASHES;
    let origins = iter::once("'self'").chain(tools.iter().map(McpServer::origin));
    let connected = origins.collect::<Vec<_>>().join(" ");
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; connect-src {connected}; \
         img-src data:; media-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify"
    )
}

/// The text of the page's only element of this name.
fn element(tag: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("<{tag}>")).unwrap_or_default();
    rest.split_once(&format!("</{tag}>")).unwrap_or_default().0
}

/// `GET /`.
pub(crate) async fn page(State(app): State<Arc<App>>, request: HeaderMap) -> Response {
    let policy = policy(&app.options().mcp_servers);
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy.as_str()),
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (VARY, "accept-encoding"),
    ];
    if accepts_deflate(&request) {
        return (headers, [(CONTENT_ENCODING, "deflate")], COMPRESSED).into_response();
    }
    (headers, PAGE.as_str()).into_response()
}

/// The answer of `GET /mcp-servers`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ToolServers {
    servers: Vec<McpServer>,
}

/// `GET /mcp-servers`.
pub(crate) async fn tool_servers(State(app): State<Arc<App>>) -> Json<ToolServers> {
    Json(ToolServers { servers: app.options().mcp_servers.clone() })
}

fn accepts_deflate(request: &HeaderMap) -> bool {
    let values =
        request.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("deflate") && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_page_has_one_script_and_one_style_and_loads_nothing() {
        for tag in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{tag}>")).count(), 1, "{tag}");
            assert!(element(tag).len() > 10_000, "{tag}");
        }
        // A browser ends the script at the first such text.
        assert_eq!(PAGE.matches("</script").count(), 1);
        for loading in ["src=\"http", "href=\"http", "@import", "url(http", "<iframe"] {
            assert!(!PAGE.contains(loading), "{loading}");
        }
    }

    #[test]
    fn the_policy_allows_the_origins_of_tools_alone() {
        assert!(policy(&[]).contains("; connect-src 'self'; "));
        let urls = ["http://127.0.0.1:3000/mcp", "https://tools.example/a?key=secret"];
        let policy = policy(&urls.map(|url| url.parse().unwrap()));
        let expected = "; connect-src 'self' http://127.0.0.1:3000 https://tools.example; ";
        assert!(policy.contains(expected), "{policy}");
    }

    #[test]
    fn the_page_is_compressed_for_clients_that_read_it() {
        assert!(PAGE.starts_with("<!doctype html>"), "{:?}", PAGE.get(..40));
        assert!(COMPRESSED.len() < 400_000, "{}", COMPRESSED.len());
        for (accepted, expected) in [
            ("gzip, deflate, br", true),
            ("gzip;q=1.0, Deflate;q=0.5", true),
            ("deflate;q=0", false),
            ("gzip", false),
            ("", false),
        ] {
            let headers =
                HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            assert_eq!(accepts_deflate(&headers), expected, "{accepted}");
        }
    }
}
