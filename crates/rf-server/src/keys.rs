//! API keys.

use subtle::{Choice, ConstantTimeEq};

/// Keys that open the server; without any, it is open to everyone.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<String>);

impl ApiKeys {
    /// The keys. Empty ones are left out.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Self {
        Self(keys.into_iter().filter(|key| !key.is_empty()).collect())
    }

    /// Returns true if there are no keys, so that the server is open to everyone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares in a time that depends on lengths only.
    pub(crate) fn contains(&self, given: &[u8]) -> bool {
        let equal = |key: &String| key.as_bytes().ct_eq(given);
        self.0.iter().map(equal).fold(Choice::from(0), |any, equal| any | equal).into()
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
        assert!(keys.contains(b"secret") && keys.contains(b"other"));
        for wrong in [&b"secre"[..], b"secrets", b"", b"SECRET"] {
            assert!(!keys.contains(wrong));
        }
        assert_eq!(format!("{keys:?}"), "2 API keys");
    }
}
