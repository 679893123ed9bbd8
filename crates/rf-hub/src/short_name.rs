//! Short names of well-known models, such as `qwen3.5:9b`.

use std::fmt;
use std::sync::LazyLock;

use crate::ModelName;

/// The product of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Product {
    /// Text.
    Text,
    /// Embeddings.
    Embeddings,
    /// Scores of documents.
    Scores,
}

/// A short name and the model of the hub that it stands for.
///
/// The list is part of the crate. A name is `FAMILY:TAG`, as in Ollama's registry, and the first
/// model of a family is also found by the family alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortName {
    name: &'static str,
    model: ModelName,
    download_gb: f64,
    product: Product,
}

impl ShortName {
    /// Returns all names, grouped by family.
    pub fn all() -> &'static [Self] {
        static NAMES: LazyLock<Vec<ShortName>> = LazyLock::new(|| {
            include_str!("short_names.txt").lines().filter_map(ShortName::of_row).collect()
        });
        &NAMES
    }

    /// Finds a name, in any case: `FAMILY:TAG` or `FAMILY`, where `latest` means the family.
    pub fn find(text: &str) -> Option<&'static Self> {
        let text = text.strip_suffix(":latest").unwrap_or(text);
        let is_meant = |known: &&Self| {
            known.name.eq_ignore_ascii_case(text) || known.family().eq_ignore_ascii_case(text)
        };
        Self::all().iter().find(is_meant)
    }

    /// The name, `FAMILY:TAG`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The part of the name before the tag.
    pub fn family(&self) -> &'static str {
        self.name.split_once(':').map_or(self.name, |(family, _)| family)
    }

    /// The model of the hub.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// About how much there is to download, in 10⁹ bytes. The memory need is larger by the KV
    /// cache.
    pub fn download_gb(&self) -> f64 {
        self.download_gb
    }

    /// The product of the model.
    pub fn product(&self) -> Product {
        self.product
    }

    /// Reads a row of the list; `None` for a comment.
    fn of_row(row: &'static str) -> Option<Self> {
        let mut columns = row.split_whitespace();
        let name = columns.next().filter(|name| !name.starts_with('#'))?;
        let model = columns.next()?.parse().ok()?;
        let download_gb = columns.next()?.parse().ok()?;
        let product = match columns.next()? {
            "text" => Product::Text,
            "embeddings" => Product::Embeddings,
            "scores" => Product::Scores,
            _ => return None,
        };
        Some(Self { name, model, download_gb, product })
    }
}

impl fmt::Display for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_row_of_the_list_is_read() {
        let rows = include_str!("short_names.txt").lines().filter(|row| !row.starts_with('#'));
        assert_eq!(ShortName::all().len(), rows.count());
        let names: HashSet<_> = ShortName::all().iter().map(ShortName::name).collect();
        assert_eq!(names.len(), ShortName::all().len(), "a name is twice in the list");
        for name in ShortName::all() {
            let (family, tag) = name.name().split_once(':').unwrap();
            assert!(!family.is_empty() && !tag.is_empty(), "{name}");
            assert!(name.download_gb() > 0.1 && name.download_gb() < 1000.0, "{name}");
            assert_eq!(ShortName::find(name.name()), Some(name));
        }
    }

    #[test]
    fn a_family_is_its_first_model() {
        let found = |text| ShortName::find(text).map(ShortName::name);
        assert_eq!(found("gpt-oss"), Some("gpt-oss:20b"));
        assert_eq!(found("gpt-oss:latest"), Some("gpt-oss:20b"));
        assert_eq!(found("GPT-OSS:120B"), Some("gpt-oss:120b"));
        for unknown in ["", ":", "gpt", "gpt-oss:", "gpt-oss:7b", "latest", ":latest"] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
    }
}
