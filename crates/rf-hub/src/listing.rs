//! The files of a repository, from the API of the hub.

use std::path::{Component, Path};
use std::time::Duration;

use serde::Deserialize;
use ureq::http::Response;
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body, RequestBuilder};

use crate::Error;

/// Seconds to wait for an answer of the API.
const PATIENCE: Duration = Duration::from_secs(30);

/// The files of a repository at one commit.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<Sibling>,
}

/// A file as the API describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Sibling {
    /// The path inside the repository.
    #[serde(rename = "rfilename")]
    pub(crate) path: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Debug, Deserialize)]
struct Lfs {
    #[serde(alias = "oid")]
    sha256: Option<String>,
    size: Option<u64>,
}

/// The identity of a file's contents.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    /// The SHA-256 of a large file, else git's id: the file's name in the cache.
    pub(crate) id: String,
    pub(crate) size: u64,
}

impl Blob {
    /// The SHA-256 in hexadecimal, if it is known. Git's ids are shorter.
    pub(crate) fn sha256(&self) -> Option<&str> {
        let is_sha = self.id.len() == 64 && self.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_sha.then_some(&*self.id)
    }
}

/// A repository on a hub.
pub(crate) struct Remote<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) token: Option<&'a str>,
    /// `OWNER/REPO`.
    pub(crate) name: &'a str,
    /// The URL of the hub.
    pub(crate) endpoint: &'a str,
}

impl Remote<'_> {
    /// Asks for the files of the branch `main`.
    pub(crate) fn listing(&self) -> Result<Listing, Error> {
        #[derive(Deserialize)]
        struct Info {
            sha: String,
            #[serde(default)]
            siblings: Vec<Sibling>,
        }
        let url = format!("{}/api/models/{}/revision/main", self.endpoint, self.name);
        let request = self.request(url).query("blobs", "true");
        let request = request.config().timeout_global(Some(PATIENCE)).build();
        let mut response = request.call().map_err(|error| self.failure(self.name, &error))?;
        let info: Info = response
            .body_mut()
            .read_json()
            .map_err(|error| self.answer(self.name, format!("bad JSON: {error}")))?;
        if !is_safe(&info.sha) {
            return Err(self.answer(self.name, "bad commit".to_owned()));
        }
        let files = info.siblings.into_iter().filter(|file| stays_inside(&file.path)).collect();
        Ok(Listing { commit: info.sha, files })
    }

    /// The blob of a file. Asks for its headers if the listing lacks it, as that of a mirror may.
    pub(crate) fn blob(&self, file: &Sibling) -> Result<Blob, Error> {
        let lfs = file.lfs.as_ref();
        let id = lfs.and_then(|lfs| lfs.sha256.clone()).or_else(|| file.blob_id.clone());
        let size = lfs.and_then(|lfs| lfs.size).or(file.size);
        let known = id.zip(size).map(|(id, size)| Blob { id, size });
        let blob = known.map_or_else(|| self.blob_of_headers(&file.path), Ok)?;
        if !is_safe(&blob.id) {
            return Err(self.answer(&file.path, "bad id of contents".to_owned()));
        }
        Ok(blob)
    }

    fn blob_of_headers(&self, path: &str) -> Result<Blob, Error> {
        let ask = |redirects| {
            let request = self.get(path).header("Range", "bytes=0-0");
            let request = request.config().max_redirects(redirects).build();
            request.call().map_err(|error| self.failure(path, &error))
        };
        // The hub describes the file while it redirects, the storage server only its copy.
        let hub = ask(0)?;
        let storage = ask(10)?;
        let id = header(&hub, "x-linked-etag").or_else(|| header(&storage, "etag"));
        let range = header(&storage, "content-range");
        let size = header(&hub, "x-linked-size").or_else(|| range?.rsplit('/').next());
        let size = size.or_else(|| header(&storage, "content-length"));
        match (id, size.and_then(|size| size.parse().ok())) {
            (Some(id), Some(size)) => Ok(Blob { id: id.trim_matches('"').to_owned(), size }),
            _ => Err(self.answer(path, "no ETag or no size".to_owned())),
        }
    }

    /// A request for the contents of a file.
    pub(crate) fn get(&self, path: &str) -> RequestBuilder<WithoutBody> {
        self.request(self.url(path))
    }

    /// A request with the token of the account.
    fn request(&self, url: String) -> RequestBuilder<WithoutBody> {
        let request = self.agent.get(url);
        match self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// The URL of a file's contents.
    fn url(&self, path: &str) -> String {
        const HEX: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
        let mut encoded = String::with_capacity(path.len());
        for byte in path.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
                encoded.push(byte.into());
            } else {
                encoded.push('%');
                encoded.extend([byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]));
            }
        }
        format!("{}/{}/resolve/main/{encoded}", self.endpoint, self.name)
    }

    /// The error for a failed request about `what`.
    pub(crate) fn failure(&self, what: &str, error: &ureq::Error) -> Error {
        let (endpoint, repo) = (self.endpoint.to_owned(), self.name.to_owned());
        match *error {
            ureq::Error::StatusCode(status @ (401 | 403)) => {
                Error::Denied { repo, endpoint, status }
            }
            ureq::Error::StatusCode(404) if what == self.name => {
                Error::UnknownRepository { repo, endpoint }
            }
            ureq::Error::StatusCode(status) => {
                Error::Status { endpoint, what: what.to_owned(), status }
            }
            _ => Error::Network { endpoint, what: what.to_owned(), reason: error.to_string() },
        }
    }

    /// The error for an answer about `what` that cannot be used.
    pub(crate) fn answer(&self, what: &str, reason: String) -> Error {
        Error::Answer { endpoint: self.endpoint.to_owned(), what: what.to_owned(), reason }
    }
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Returns true if `id` is safe as the name of a file.
fn is_safe(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns true if `path` leads to a place inside the folder that it is relative to.
fn stays_inside(path: &str) -> bool {
    let mut components = Path::new(path).components();
    !path.is_empty() && components.all(|component| matches!(component, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_found() {
        for bad in ["", "/etc/x.gguf", "../x.gguf", "a/../../x.gguf", "./x.gguf"] {
            assert!(!stays_inside(bad), "{bad}");
        }
        assert!(stays_inside("Q8_0/model x.gguf"));
        for bad in ["", "..", "a/b", "a.b", "a\\b"] {
            assert!(!is_safe(bad), "{bad}");
        }
        assert!(is_safe("0f3d"));
    }
}
