//! `kernels/kernels.toml`: every kernel with its parameters and requirements.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use std::path::Path;

/// The minimum waves per SIMD of a hot kernel, unless its row overrides it.
const MIN_WAVES: u32 = 8;

/// The rows of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Catalogue {
    #[serde(rename = "kernel")]
    rows: Vec<KernelRow>,
}

/// One kernel, or several with a common pattern.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelRow {
    /// The symbol; `*` matches any text.
    pub(super) name: String,
    /// The unit, `kernels/UNIT.hip`; `*` matches any text.
    pub(super) unit: String,
    /// The struct in `crates/rf-kernels/src/params`. In C it has the prefix `Rf`.
    pub(super) params: String,
    /// True if the kernel runs for every token or prompt: spills and low occupancy are findings.
    #[serde(default)]
    pub(super) hot: bool,
    /// An exception: a minimum of waves per SIMD below [`MIN_WAVES`].
    pub(super) min_waves: Option<u32>,
    /// An exception: the number of scalar registers that may be spilled to vector lanes.
    #[serde(default)]
    pub(super) scalar_spills: u32,
    /// The reason for the exception.
    reason: Option<String>,
    /// Prefixes of the names of the targets that have the kernel. `None`: all targets.
    targets: Option<Vec<String>>,
    /// The maximum LDS that the launch adds to the LDS that the kernel declares.
    #[serde(default)]
    pub(super) dynamic_lds_bytes: u32,
}

impl Catalogue {
    /// Reads `kernels/kernels.toml` of the checkout.
    ///
    /// # Errors
    ///
    /// The file cannot be read or parsed, or a row is inconsistent.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join("kernels/kernels.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let catalogue: Self = toml::from_str(text)?;
        for row in &catalogue.rows {
            ensure!(
                row.is_exception() == row.reason.is_some(),
                "{}: min_waves and scalar_spills require a reason, and a reason one of them",
                row.name
            );
            if let Some(waves) = row.min_waves
                && (waves >= MIN_WAVES || !row.hot)
            {
                bail!("{}: min_waves must be below {MIN_WAVES}, on a hot kernel", row.name);
            }
        }
        Ok(catalogue)
    }

    pub(super) fn rows(&self) -> &[KernelRow] {
        &self.rows
    }

    /// Returns true if `kernel` in `unit` runs for every token or prompt.
    pub(super) fn is_hot(&self, unit: &str, kernel: &str) -> bool {
        self.row(unit, kernel).is_some_and(|row| row.hot)
    }

    /// The row of `kernel` in `unit`. If several rows match, the most specific name wins.
    pub(super) fn row(&self, unit: &str, kernel: &str) -> Option<&KernelRow> {
        let matching = self.rows.iter().filter(|row| row.covers(unit, kernel));
        matching.max_by_key(|row| row.name.chars().filter(|&c| c != '*').count())
    }
}

impl KernelRow {
    fn covers(&self, unit: &str, kernel: &str) -> bool {
        matches(&self.unit, unit) && matches(&self.name, kernel)
    }

    pub(super) fn exists_on(&self, target: &str) -> bool {
        let prefixes = self.targets.as_deref();
        prefixes.is_none_or(|prefixes| prefixes.iter().any(|prefix| target.starts_with(prefix)))
    }

    /// The minimum waves per SIMD of a hot kernel.
    pub(super) fn required_waves(&self) -> u32 {
        self.min_waves.unwrap_or(MIN_WAVES)
    }

    /// Returns true if the row makes an exception.
    pub(super) fn is_exception(&self) -> bool {
        self.min_waves.is_some() || self.scalar_spills > 0
    }
}

/// Returns true if `name` equals `pattern` with every `*` replaced by some text.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        assert!(matches("rope_f32", "rope_f32"));
        assert!(!matches("rope_f32", "rope_f32_kv"));
        assert!(matches("matvec_*_q8_f32_n*", "matvec_q4_k_q8_f32_n8"));
        assert!(!matches("matvec_*_q8_f32_n*", "matvec_f16_f32_n1"));
        assert!(matches("*", "anything"));
        // Prefix and suffix must not overlap.
        assert!(!matches("ab*ba", "aba"));
    }

    #[test]
    fn the_most_specific_row_wins() {
        let catalogue = Catalogue::parse(
            "[[kernel]]\nname = 'm_*'\nunit = 'u_*'\nparams = 'A'\n\
             [[kernel]]\nname = 'm_*_n8'\nunit = 'u_*'\nparams = 'B'\nhot = true\nmin_waves = 5\nreason = 'x'\n",
        )
        .unwrap();
        assert_eq!(catalogue.row("u_a", "m_q4_n1").map(|row| &*row.params), Some("A"));
        let eight = catalogue.row("u_a", "m_q4_n8").unwrap();
        assert_eq!((eight.params.as_str(), eight.required_waves()), ("B", 5));
        assert!(catalogue.row("v", "m_q4_n8").is_none());
    }

    #[test]
    fn inconsistent_rows_are_errors() {
        let row = |rest: &str| {
            let text = format!("[[kernel]]\nname = 'a'\nunit = 'u'\nparams = 'A'\n{rest}");
            Catalogue::parse(&text).map(|_| ()).map_err(|error| error.to_string())
        };
        assert!(row("").is_ok());
        assert!(row("hot = true\nmin_waves = 5").unwrap_err().contains("require a reason"));
        assert!(row("scalar_spills = 2").unwrap_err().contains("require a reason"));
        assert!(row("min_waves = 5\nreason = 'x'").unwrap_err().contains("on a hot kernel"));
        assert!(row("hot = true\nmin_waves = 9\nreason = 'x'").unwrap_err().contains("below 8"));
        assert!(row("warm = true").unwrap_err().contains("unknown field"));
    }
}
