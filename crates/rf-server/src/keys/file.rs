//! The file of keys.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use chrono::DateTime;
use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use super::client::{Client, KeyLimits};
use super::key::{ApiKey, digest};

/// Why a file of keys cannot be used. It has no text of the file but names of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct KeyFileError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    #[serde(default)]
    key: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    key: Option<Spanned<String>>,
    sha256: Option<Spanned<String>>,
    max_requests: Option<Spanned<usize>>,
    max_sequences: Option<Spanned<usize>>,
    tokens_per_minute: Option<Spanned<u64>>,
    models: Option<Vec<String>>,
    #[serde(default)]
    priority: bool,
    #[serde(default)]
    manage_models: bool,
    expires: Option<Spanned<Datetime>>,
}

/// Names that a message may have.
const NAMES: [&str; 10] = [
    "name",
    "key",
    "sha256",
    "max_requests",
    "max_sequences",
    "tokens_per_minute",
    "models",
    "priority",
    "manage_models",
    "expires",
];

/// A place of the file and what is wrong there.
type Problem = (Range<usize>, &'static str);

/// Reads the keys of a file, at least one.
pub(super) fn parse(text: &str) -> Result<Vec<ApiKey>, KeyFileError> {
    let failure = |(span, message): Problem| KeyFileError::new(text, span.start, message);
    let file: KeyFile = toml::from_str(text).map_err(|error| {
        KeyFileError::new(
            text,
            error.span().map_or(0, |span| span.start),
            redacted(error.message()),
        )
    })?;
    let mut keys: Vec<ApiKey> = Vec::with_capacity(file.key.len());
    for entry in file.key {
        let span = entry.span();
        let entry = entry.into_inner();
        let name = entry.name.span();
        let key = entry.read(span.clone()).map_err(failure)?;
        if keys.iter().any(|other| other.client.name() == key.client.name()) {
            return Err(failure((name, "another key has this name")));
        }
        if keys.iter().any(|other| other.digest == key.digest) {
            return Err(failure((span, "another entry has the same key")));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Err(failure((0..0, "the file has no key: write a table [[key]] for each")));
    }
    Ok(keys)
}

impl Entry {
    /// The key of a table at `span`.
    fn read(self, span: Range<usize>) -> Result<ApiKey, Problem> {
        let digest = match (self.key, self.sha256) {
            (Some(key), None) if key.get_ref().trim().is_empty() => {
                return Err((key.span(), "the key is empty"));
            }
            (Some(key), None) => digest(key.get_ref().as_bytes()),
            (None, Some(hash)) => {
                let hexadecimal = (hash.span(), "expected the 64 hexadecimal digits of a SHA-256");
                decoded(hash.get_ref()).ok_or(hexadecimal)?
            }
            (None, None) => return Err((span, "the entry has neither `key` nor `sha256`")),
            (Some(_), Some(hash)) => {
                return Err((hash.span(), "the entry has both `key` and `sha256`"));
            }
        };
        let (name, name_span) = (self.name.get_ref(), self.name.span());
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            return Err((name_span, "expected a name of 1 to 64 bytes without control characters"));
        }
        let limits = KeyLimits {
            max_requests: at_least_one(self.max_requests)?,
            max_sequences: at_least_one(self.max_sequences)?,
            tokens_per_minute: at_least_one(self.tokens_per_minute)?,
            models: self.models,
            priority: self.priority,
            manage_models: self.manage_models,
            expires: self.expires.as_ref().map(time).transpose()?,
        };
        Ok(ApiKey { digest, client: Arc::new(Client::new(self.name.into_inner(), limits)) })
    }
}

/// The longest name of a key, in bytes.
const MAX_NAME: usize = 64;

fn at_least_one<T: Default + PartialEq>(limit: Option<Spanned<T>>) -> Result<Option<T>, Problem> {
    match limit {
        Some(limit) if *limit.get_ref() == T::default() => {
            Err((limit.span(), "expected at least 1: leave the key out to refuse it"))
        }
        limit => Ok(limit.map(Spanned::into_inner)),
    }
}

/// A time with its offset from UTC.
fn time(expires: &Spanned<Datetime>) -> Result<SystemTime, Problem> {
    let span = expires.span();
    let expected = "expected a time with its zone, such as 2027-01-31T12:00:00Z";
    let Datetime { date: Some(_), time: Some(_), offset: Some(_) } = expires.get_ref() else {
        return Err((span, expected));
    };
    let time = DateTime::parse_from_rfc3339(&expires.get_ref().to_string());
    time.map(SystemTime::from).map_err(|_| (span, expected))
}

/// The bytes of hexadecimal digits.
fn decoded(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| Some(c.to_digit(16)? as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if digits.len() == 64 { bytes.try_into().ok() } else { None }
}

/// A message without what it quotes, which may be a key.
fn redacted(message: &str) -> String {
    let mut text = String::new();
    let mut rest = message.lines().next().unwrap_or_default();
    while let Some(start) = rest.find(['`', '"', '\'']) {
        let (before, quoted) = rest.split_at(start);
        text.push_str(before);
        let mark = &quoted[..1];
        // Without its end, all of the rest is quoted.
        let (inner, after) = quoted[1..].split_once(mark).unwrap_or((&quoted[1..], ""));
        // A single character is no key.
        let is_known = NAMES.contains(&inner) || inner.chars().nth(1).is_none();
        text.push_str(mark);
        text.push_str(if is_known { inner } else { "…" });
        text.push_str(mark);
        rest = after;
    }
    text + rest
}

impl KeyFileError {
    fn new(text: &str, at: usize, message: impl Into<String>) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keys::ApiKeys;

    const ALICE: &str = r#"
# The key is "secret".
[[key]]
name = "alice"
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
max_requests = 2
models = ["small", "large"]
priority = true
expires = 2027-01-31T12:00:00Z

[[key]]
name = "bob"
key = "sk-bob"
"#;

    #[test]
    fn keys_have_names_and_limits() {
        let keys = ApiKeys::from_toml(ALICE).unwrap();
        let alice = keys.client(b"secret").unwrap();
        assert_eq!(alice.name(), "alice");
        assert!(alice.sets_priority());
        assert!(alice.may_use(&["x".to_owned(), "large".to_owned()]));
        assert!(!alice.may_use(&["huge".to_owned()]));
        let expiry = SystemTime::UNIX_EPOCH + Duration::from_hours(500_388);
        assert!(alice.has_expired(expiry));
        assert!(!alice.has_expired(expiry - Duration::from_secs(1)));
        let bob = keys.client(b"sk-bob").unwrap();
        assert!(!bob.sets_priority() && bob.may_use(&["huge".to_owned()]));
        assert!(!bob.has_expired(expiry));
    }

    #[test]
    fn a_mistake_has_its_line_and_column_and_no_text_of_the_file() {
        let entry = |more: &str| format!("[[key]]\nname = \"a\"\n{more}\n");
        let hash = "0".repeat(63);
        for (text, line, column, message) in [
            (String::new(), 1, 1, "has no key"),
            ("x".to_owned(), 1, 2, ""),
            ("[[keys]]\n".to_owned(), 1, 3, "unknown field"),
            (entry(""), 1, 1, "neither `key` nor `sha256`"),
            (entry("key = \"sk-x\"\nsha256 = \"sk-y\""), 4, 10, "both"),
            (entry(&format!("sha256 = \"{hash}\"")), 3, 10, "hexadecimal"),
            (entry("key = \" \""), 3, 7, "empty"),
            (entry("key = 12345"), 3, 7, "invalid type"),
            (entry("key = \"sk-x\"\nmax_requests = \"sk-y\""), 4, 16, "invalid type"),
            (entry("key = \"sk-x\"\nmax_requests = 0"), 4, 16, "at least 1"),
            (entry("key = \"sk-x\"\nsk-field = 1"), 4, 1, "unknown field"),
            (entry("key = \"sk-x\"\nexpires = 2027-01-31"), 4, 11, "with its zone"),
            (entry("key = \"sk-x\"") + &entry("key = \"sk-y\""), 5, 8, "this name"),
            ("[[key]]\nname = \"é\nkey".to_owned(), 3, 4, "expected `=`"),
        ] {
            let error = ApiKeys::from_toml(&text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            let shown = error.to_string();
            assert!(shown.contains(message), "{text}: {shown}");
            for secret in ["sk-", "12345", "000"] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
    }
}
