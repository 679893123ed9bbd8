//! Files of the public web that clients of a server name, such as pictures.
//!
//! A client must not reach through the server what it cannot reach itself (server-side request
//! forgery). Only public addresses are connected to: each name is resolved here, once for each
//! connection, redirects included, and the connection is made to the addresses that were checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// What a file of the web may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebLimits {
    /// The largest file.
    pub max_bytes: u64,
    /// The time for everything: names, connections, redirects and the file.
    pub timeout: Duration,
    /// The most redirects.
    pub max_redirects: u32,
}

impl Default for WebLimits {
    /// 20 MiB, 10 seconds, 3 redirects.
    fn default() -> Self {
        Self { max_bytes: 20 << 20, timeout: Duration::from_secs(10), max_redirects: 3 }
    }
}

impl WebLimits {
    /// Sets [`max_bytes`](Self::max_bytes).
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets [`max_redirects`](Self::max_redirects).
    #[must_use]
    pub fn with_max_redirects(mut self, max_redirects: u32) -> Self {
        self.max_redirects = max_redirects;
        self
    }
}

/// Files of the public web.
#[derive(Clone, Debug)]
pub struct PublicWeb {
    agent: Agent,
    max_bytes: u64,
}

/// An error on the way to a file of the web.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The text is no URL of the web.
    #[error("expected a URL that begins with https:// or http://")]
    Url,
    /// The name belongs to this machine or to a private network.
    #[error("the host is not on the public internet")]
    Private,
    /// The server answers with an error.
    #[error("the server of the URL answers with status {status}")]
    Status {
        /// The HTTP status.
        status: u16,
    },
    /// The file is too large.
    #[error("the file is larger than {max_bytes} bytes")]
    TooLarge {
        /// The largest file.
        max_bytes: u64,
    },
    /// The file did not arrive in time.
    #[error("the file did not arrive in time")]
    Timeout,
    /// The file cannot be had otherwise.
    #[error("the file cannot be fetched: {reason}")]
    Failed {
        /// The reason of the failure.
        reason: String,
    },
}

impl PublicWeb {
    /// The public web within limits. Proxies of the environment are not used, since a proxy would
    /// resolve names itself.
    pub fn new(limits: WebLimits) -> Self {
        Self::with_rule(limits, is_public)
    }

    fn with_rule(limits: WebLimits, may_reach: fn(IpAddr) -> bool) -> Self {
        let config = Agent::config_builder()
            .proxy(None)
            .timeout_global(Some(limits.timeout))
            .max_redirects(limits.max_redirects)
            .max_redirects_will_error(true)
            .build();
        let resolver = CheckedResolver { names: DefaultResolver::default(), may_reach };
        let agent = Agent::with_parts(config, DefaultConnector::new(), resolver);
        Self { agent, max_bytes: limits.max_bytes }
    }

    /// Fetches a file.
    ///
    /// # Errors
    ///
    /// If the text is no URL of the web, the file cannot be fetched, or it exceeds a limit.
    pub fn fetch(&self, url: &str) -> Result<Vec<u8>, WebError> {
        let uri: Uri = url.parse().map_err(|_| WebError::Url)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(WebError::Url);
        }
        let mut response = self.agent.get(uri).call().map_err(|error| self.error(error))?;
        // A file of the largest size is not yet too large for the reader of the body.
        let body = response.body_mut().with_config().limit(self.max_bytes.saturating_add(1));
        let bytes = body.read_to_vec().map_err(|error| self.error(error))?;
        if bytes.len() as u64 > self.max_bytes {
            return Err(WebError::TooLarge { max_bytes: self.max_bytes });
        }
        Ok(bytes)
    }

    fn error(&self, error: ureq::Error) -> WebError {
        match error {
            ureq::Error::StatusCode(status) => WebError::Status { status },
            ureq::Error::BodyExceedsLimit(_) => WebError::TooLarge { max_bytes: self.max_bytes },
            ureq::Error::Timeout(_) => WebError::Timeout,
            ureq::Error::BadUri(_) => WebError::Url,
            ureq::Error::Other(error) if error.is::<PrivateAddress>() => WebError::Private,
            error => WebError::Failed { reason: error.to_string() },
        }
    }
}

/// Resolves names to the addresses that may be reached.
#[derive(Debug)]
struct CheckedResolver {
    names: DefaultResolver,
    may_reach: fn(IpAddr) -> bool,
}

/// No address of a name may be reached.
#[derive(Debug, thiserror::Error)]
#[error("the host is not on the public internet")]
struct PrivateAddress;

impl Resolver for CheckedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.names.resolve(uri, config, timeout)?;
        let mut public = self.empty();
        let may_reach = |address: &&SocketAddr| (self.may_reach)(address.ip());
        found.iter().filter(may_reach).for_each(|address| public.push(*address));
        if public.is_empty() {
            return Err(ureq::Error::Other(Box::new(PrivateAddress)));
        }
        Ok(public)
    }
}

/// True for an address that anyone may reach, by the registries of special addresses of IANA.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [100, second, ..] => (64..128).contains(&second),
        [172, second, ..] => (16..32).contains(&second),
        // Protocols, documents and benchmarks.
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        // This machine and private networks.
        | [0 | 10 | 127, ..]
        | [169, 254, ..]
        | [192, 168, ..] => true,
        // Groups, and what is reserved.
        [first, ..] => first >= 224,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // The public internet is 2000::/3. In it are documents, and protocols such as Teredo
    // (2001::/23), which hides an address of version 4, as 2002::/16 does.
    let is_special = match first {
        0x2001 => second < 0x200 || second == 0xdb8,
        0x2002 => true,
        0x3fff => second < 0x1000,
        _ => false,
    };
    first & 0xe000 == 0x2000 && !is_special
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const LIMITS: WebLimits =
        WebLimits { max_bytes: 8, timeout: Duration::from_millis(600), max_redirects: 2 };

    /// A server on this machine that answers each connection with the same bytes, and its address.
    fn server(answer: impl Fn(SocketAddr) -> String + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let mut request = [0; 1024];
                // The client may have gone.
                drop(connection.read(&mut request));
                drop(connection.write_all(answer(address).as_bytes()));
            }
        });
        address
    }

    fn file(text: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        )
    }

    fn fetched(limits: WebLimits, address: SocketAddr) -> Result<Vec<u8>, WebError> {
        PublicWeb::with_rule(limits, |_| true).fetch(&format!("http://{address}/picture"))
    }

    #[test]
    fn files_within_the_limits_are_fetched() {
        assert_eq!(fetched(LIMITS, server(|_| file("12345678"))).unwrap(), b"12345678");
        let too_large = fetched(LIMITS, server(|_| file("123456789")));
        assert!(matches!(too_large, Err(WebError::TooLarge { max_bytes: 8 })), "{too_large:?}");
        let endless = |_| "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n0123456789".to_owned();
        assert!(matches!(fetched(LIMITS, server(endless)), Err(WebError::TooLarge { .. })));
        let missing = |_| "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned();
        assert!(matches!(fetched(LIMITS, server(missing)), Err(WebError::Status { status: 404 })));
    }

    #[test]
    fn slow_files_and_circles_of_redirects_end() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let slow = fetched(LIMITS, silent.local_addr().unwrap());
        assert!(matches!(slow, Err(WebError::Timeout)), "{slow:?}");
        let circle = fetched(
            WebLimits { timeout: Duration::from_mins(1), ..LIMITS },
            server(|address| {
                format!(
                    "HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: http://{address}/\r\ncontent-length: 0\r\n\r\n"
                )
            }),
        );
        assert!(matches!(circle, Err(WebError::Failed { .. })), "{circle:?}");
    }

    #[test]
    fn private_hosts_are_not_reached_by_name_address_or_redirect() {
        let web = PublicWeb::new(LIMITS);
        let port = server(|_| file("secret")).port();
        for host in ["localhost", "127.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
            let found = web.fetch(&format!("http://{host}:{port}/"));
            assert!(matches!(found, Err(WebError::Private)), "{host}: {found:?}");
        }
        let only_this_server = |address: IpAddr| address == IpAddr::V4(Ipv4Addr::LOCALHOST);
        let to_private = server(move |_| {
            format!(
                "HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: http://127.0.0.2:{port}/\r\ncontent-length: 0\r\n\r\n"
            )
        });
        let found =
            PublicWeb::with_rule(LIMITS, only_this_server).fetch(&format!("http://{to_private}/"));
        assert!(matches!(found, Err(WebError::Private)), "{found:?}");
    }

    #[test]
    fn only_urls_of_the_web_are_fetched() {
        let web = PublicWeb::new(LIMITS);
        for url in
            ["", "x", "file:///etc/passwd", "ftp://example.com/a", "//example.com/a", "http:"]
        {
            let found = web.fetch(url);
            assert!(matches!(found, Err(WebError::Url)), "{url}: {found:?}");
        }
    }

    #[test]
    fn special_addresses_are_not_public() {
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "fc00::1",
            "fe80::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
        ];
        for address in private {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        let public =
            ["1.1.1.1", "8.8.8.8", "100.63.0.1", "172.32.0.1", "198.20.0.1", "2606:4700::1111"];
        for address in public {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
