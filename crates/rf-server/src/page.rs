//! The chat page at `/`: one HTML document that loads nothing but this server's API.

use std::sync::LazyLock;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("../page/page.css");
const SCRIPTS: [&str; 2] = [include_str!("../page/markdown.js"), include_str!("../page/chat.js")];

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let (head, body) = (include_str!("../page/head.html"), include_str!("../page/body.html"));
    let [markdown, chat] = SCRIPTS;
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n{head}<style>{STYLE}</style>\n</head>\n<body>\n\
         {body}<script>{markdown}</script>\n<script>{chat}</script>\n</body>\n</html>\n"
    )
});

/// Only the page's own scripts and styles run, whatever a model writes.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        SCRIPTS.map(hash).join(" "),
        hash(STYLE)
    )
});

/// `GET /`.
pub(crate) async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, PAGE.as_str()).into_response()
}
