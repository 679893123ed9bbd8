//! Short names of well-known models, such as `qwen3.5:9b`.

use std::fmt;

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
/// A name is `FAMILY:TAG`, as in Ollama's registry, and the first model of a family is also found
/// by the family alone. A [`NameList`](crate::NameList)
/// has all names.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortName {
    name: String,
    model: ModelName,
    download_gb: f64,
    product: Product,
}

impl ShortName {
    /// The name, `FAMILY:TAG`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The part of the name before the tag.
    pub fn family(&self) -> &str {
        self.name.split_once(':').map_or(&*self.name, |(family, _)| family)
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

    /// Reads a row of a list: the name, the model, the size of the download, the product.
    pub(crate) fn of_row(row: &str) -> Option<Self> {
        let mut columns = row.split_whitespace();
        let name = columns.next().filter(|name| is_name(name))?.to_owned();
        let model = columns.next()?.parse().ok()?;
        let download_gb = columns.next()?.parse().ok()?;
        let product = match columns.next()? {
            "text" => Product::Text,
            "embeddings" => Product::Embeddings,
            "scores" => Product::Scores,
            _ => return None,
        };
        columns.next().is_none().then_some(Self { name, model, download_gb, product })
    }
}

/// Returns true for `FAMILY:TAG` of characters that neither shells nor terminals interpret.
fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
        !part.is_empty() && !part.starts_with('-') && part.chars().all(is_plain)
    };
    text.split_once(':').is_some_and(|(family, tag)| is_part(family) && is_part(tag))
}

impl fmt::Display for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_row_that_is_not_complete_is_none() {
        let row = "a:1b owner/repo:Q8_0 0.5 text";
        assert_eq!(ShortName::of_row(row).unwrap().family(), "a");
        for bad in [
            "",
            "a:1b",
            "a:1b owner/repo 0.5",
            "a:1b repo 0.5 text",
            "a:1b owner/repo much text",
            "a:1b owner/repo 0.5 songs",
            "a:1b owner/repo 0.5 text more",
            "a owner/repo 0.5 text",
            "a: owner/repo 0.5 text",
            "-a:1b owner/repo 0.5 text",
            "A:1b owner/repo 0.5 text",
            "a\u{1b}[2J:1b owner/repo 0.5 text",
        ] {
            assert_eq!(ShortName::of_row(bad), None, "{bad:?}");
        }
    }
}
