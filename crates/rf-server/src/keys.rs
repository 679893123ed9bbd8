//! API keys, and what their holders may do.

mod client;
mod file;
mod key;

use std::sync::Arc;

use subtle::{Choice, ConstantTimeEq};

pub(crate) use self::client::{Client, KeyRefusal, RequestPermit, SequencePermit};
pub use self::file::KeyFileError;
use self::key::{ApiKey, digest};

/// Keys that open the server; without any, it is open to everyone.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<ApiKey>);

impl ApiKeys {
    /// Keys without limits, named by their number. Empty ones are left out.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Self {
        let keys = keys.into_iter().filter(|key| !key.is_empty()).enumerate();
        let key = |(index, key): (usize, String)| ApiKey {
            digest: digest(key.as_bytes()),
            client: Arc::new(Client::unlimited(format!("key-{}", index + 1))),
        };
        Self(keys.map(key).collect())
    }

    /// Reads keys with their limits from TOML, as `docs/server.md` describes it.
    ///
    /// # Errors
    ///
    /// If the text is not such a file, with the line and column. The error has no text of the file
    /// but the names of fields.
    pub fn from_toml(text: &str) -> Result<Self, KeyFileError> {
        file::parse(text).map(Self)
    }

    /// Adds the keys of `others`.
    #[must_use]
    pub fn with(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Returns true if there are no keys, so that the server is open to everyone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The holder of a key. Comparing takes a time that depends on the number of keys only.
    pub(crate) fn client(&self, given: &[u8]) -> Option<&Arc<Client>> {
        let given = digest(given);
        let mut found = None;
        for key in &self.0 {
            let is_equal: Choice = key.digest.ct_eq(&given);
            if bool::from(is_equal) {
                found = Some(&key.client);
            }
        }
        found
    }

    /// Takes the counts of running requests over from keys of the same name.
    pub(crate) fn continue_from(&mut self, earlier: &Self) {
        for key in &mut self.0 {
            let same = |other: &&ApiKey| other.client.name() == key.client.name();
            if let Some(other) = earlier.0.iter().find(same) {
                key.client = Arc::new(key.client.continuing(&other.client));
            }
        }
    }
}

/// Keys are not for logs.
impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} API keys", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_are_equal_and_none_is_printed() {
        let keys = ApiKeys::new(["secret".to_owned(), String::new(), "other".to_owned()]);
        let name = |key: &[u8]| keys.client(key).map(|client| client.name().to_owned());
        assert_eq!(name(b"secret").as_deref(), Some("key-1"));
        assert_eq!(name(b"other").as_deref(), Some("key-2"));
        for wrong in [&b"secre"[..], b"secrets", b"", b"SECRET"] {
            assert_eq!(name(wrong), None);
        }
        assert_eq!(format!("{keys:?}"), "2 API keys");
    }

    #[test]
    fn keys_that_are_read_again_keep_their_counts() {
        let text = "[[key]]\nname = \"a\"\nkey = \"k\"\nmax_requests = 1\n";
        let first = ApiKeys::from_toml(text).unwrap();
        let permit = first.client(b"k").unwrap().begin().unwrap();
        let mut again = ApiKeys::from_toml(&text.replace("\"k\"", "\"l\"")).unwrap();
        again.continue_from(&first);
        let client = again.client(b"l").unwrap();
        assert!(client.begin().is_err(), "one runs");
        drop(permit);
        assert!(client.begin().is_ok());
    }
}
