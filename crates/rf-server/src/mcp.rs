//! The servers of tools that the chat page may use, by the Model Context Protocol (MCP).
//!
//! The page talks to them itself, and this server never connects to them: it names them, and the
//! policy of the page allows connections to their origins alone.

use std::str::FromStr;

use axum::http::Uri;
use schemars::JsonSchema;
use serde::Serialize;

/// A server of tools, by the URL of its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct McpServer {
    url: String,
    #[serde(skip)]
    origin: String,
}

/// A text that is no URL of a server of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected an http or https URL such as http://127.0.0.1:3000/mcp, with a name or an IPv4 \
     address as the host"
)]
pub struct InvalidMcpUrl;

impl McpServer {
    /// The origin, as a policy of a page names it.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

impl FromStr for McpServer {
    type Err = InvalidMcpUrl;

    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// If the text is no such URL, or one whose origin a policy cannot name: addresses of IPv6
    /// have no form there.
    fn from_str(url: &str) -> Result<Self, InvalidMcpUrl> {
        let uri: Uri = url.parse().map_err(|_| InvalidMcpUrl)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(InvalidMcpUrl);
        };
        // The text becomes part of a header, in which `;` and `,` have a meaning.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
        let is_host = !authority.host().is_empty() && authority.as_str().chars().all(is_plain);
        let has_port = !authority.as_str().contains(':') || authority.port_u16().is_some();
        if !matches!(scheme, "http" | "https") || !is_host || !has_port || url.contains('#') {
            return Err(InvalidMcpUrl);
        }
        Ok(Self { url: url.to_owned(), origin: format!("{scheme}://{authority}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_those_of_the_urls() {
        for (url, origin) in [
            ("http://127.0.0.1:3000/mcp", "http://127.0.0.1:3000"),
            ("https://tools.example/a/b?token=1", "https://tools.example"),
            ("http://localhost", "http://localhost"),
        ] {
            let server: McpServer = url.parse().unwrap();
            assert_eq!((server.url.as_str(), server.origin()), (url, origin));
        }
    }

    #[test]
    fn texts_that_would_widen_the_policy_are_refused() {
        for url in [
            "",
            "tools",
            "/mcp",
            "*",
            "http://*",
            "https://*.example/mcp",
            "ws://tools.example",
            "data:text/plain,x",
            "http://user:secret@tools.example/mcp",
            "http://tools.example;script-src/mcp",
            "http://a,b/mcp",
            "http://tools.example'self'/mcp",
            "http://[::1]:3000/mcp",
            "http://tools.example:99999/mcp",
            "http://tools.example:/mcp",
            "http://:80/mcp",
            "http://tools.example/mcp#part",
            "http://tools.example /mcp",
        ] {
            assert_eq!(url.parse::<McpServer>(), Err(InvalidMcpUrl), "{url}");
        }
    }
}
