//! The name of a model on the hub.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// `OWNER/REPO` or `OWNER/REPO:QUANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    repo: String,
    quant: Option<String>,
}

impl ModelName {
    /// The repository, `OWNER/REPO`.
    pub fn repo(&self) -> &str {
        &self.repo
    }

    /// The quantisation, such as `Q4_K_M`, as the user wrote it.
    pub fn quant(&self) -> Option<&str> {
        self.quant.as_deref()
    }
}

impl ModelName {
    /// A model of this repository in this quantisation, both of which are known to be valid.
    pub(crate) fn of_parts(repo: &str, quant: Option<&str>) -> Option<Self> {
        let quant = quant.map_or(String::new(), |quant| format!(":{quant}"));
        format!("{repo}{quant}").parse().ok()
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        self.quant.iter().try_for_each(|quant| write!(f, ":{quant}"))
    }
}

impl FromStr for ModelName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (repo, quant) = match text.split_once(':') {
            Some((repo, quant)) => (repo, Some(quant)),
            None => (text, None),
        };
        let valid = repo.split('/').count() == 2
            && repo.split('/').all(is_word)
            && quant.is_none_or(is_word);
        if !valid {
            return Err(Error::Name { text: text.to_owned() });
        }
        Ok(Self { repo: repo.to_owned(), quant: quant.map(str::to_owned) })
    }
}

/// Returns true if `text` is safe as a component of URLs and paths.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_an_owner_and_a_repository_and_maybe_a_quantisation() {
        let name: ModelName = "owner/repo-GGUF:Q4_K_M".parse().unwrap();
        assert_eq!((name.repo(), name.quant()), ("owner/repo-GGUF", Some("Q4_K_M")));
        assert_eq!(name.to_string(), "owner/repo-GGUF:Q4_K_M");
        let name: ModelName = "owner/repo.v1".parse().unwrap();
        assert_eq!((name.repo(), name.quant()), ("owner/repo.v1", None));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bad in
            ["", "repo", "a/b/c", "a/", "/b", "a/b:", "a/..", "../b", "a/b c", "a/b?x", "a/b:c:d"]
        {
            assert!(bad.parse::<ModelName>().is_err(), "{bad}");
        }
    }
}
