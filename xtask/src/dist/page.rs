//! The packages of other authors in the chat page, which the server embeds. Cargo does not know
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The texts of the licences, which `web/build.mjs` writes beside the page.
const TEXTS: &str = "crates/rf-server/page/licences.txt";

/// A package in the chat page.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// The URL of the package in the form that bills of materials use.
    pub(super) purl: String,
    /// The expression of its licences.
    pub(super) licence: String,
    /// The checksum of the published package, in hexadecimal.
    pub(super) sha512: String,
    pub(super) text: String,
}

#[derive(Deserialize)]
struct Manifest {
    /// Names and exact versions.
    dependencies: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Lock {
    packages: BTreeMap<String, Locked>,
}

#[derive(Deserialize)]
struct Locked {
    version: Option<String>,
    license: Option<String>,
    integrity: Option<String>,
}

/// The packages in the chat page of the checkout `root`, by name.
///
/// # Errors
///
/// A package without the text of its licence, or with another version than the locked one.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let manifest: Manifest = json(&root.join("web/package.json"))?;
    let lock: Lock = json(&root.join("web/package-lock.json"))?;
    let texts = fs::read_to_string(root.join(TEXTS)).context(TEXTS)?;
    let headings: Vec<_> =
        manifest.dependencies.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let mut packages = Vec::new();
    for ((name, version), heading) in manifest.dependencies.iter().zip(&headings) {
        let locked = lock.packages.get(&format!("node_modules/{name}"));
        let locked = locked.with_context(|| format!("{name} is not in web/package-lock.json"))?;
        let is_same = locked.version.as_ref() == Some(version);
        ensure!(is_same, "{heading}: web/package-lock.json has another version");
        let sha512 = locked.integrity.as_deref().and_then(|text| text.strip_prefix("sha512-"));
        let sha512 = sha512.with_context(|| format!("{heading} has no checksum"))?;
        let licence = locked.license.clone();
        packages.push(Package {
            name: name.clone(),
            version: version.clone(),
            purl: format!("pkg:npm/{}@{version}", name.replace('@', "%40")),
            licence: licence.with_context(|| format!("{heading} names no licence"))?,
            sha512: hexadecimal(&STANDARD.decode(sha512)?),
            text: text_of(&texts, heading, &headings)?,
        });
    }
    Ok(packages)
}

/// The text below the line `heading`, up to the next one of `headings`.
fn text_of(texts: &str, heading: &str, headings: &[String]) -> Result<String> {
    let below = texts.lines().skip_while(|line| *line != heading).skip(1);
    let own = below.take_while(|line| !headings.iter().any(|other| other == line));
    let text = own.collect::<Vec<_>>().join("\n");
    let text = text.trim();
    ensure!(!text.is_empty(), "{TEXTS} has no licence of {heading}: run web/check");
    Ok(text.to_owned())
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_where_the_next_package_begins() {
        let texts = "Packages.\n\none 1.0\n\nFree.\n\nFor all.\n\ntwo 2.0\n\nthree 3.0\nMIT\n";
        let headings = ["one 1.0", "two 2.0", "three 3.0"].map(str::to_owned);
        let text = |heading| text_of(texts, heading, &headings);
        assert_eq!(text("one 1.0").unwrap(), "Free.\n\nFor all.");
        assert_eq!(text("three 3.0").unwrap(), "MIT");
        for missing in ["two 2.0", "one 1.1", "four 4.0"] {
            let error = text(missing).unwrap_err().to_string();
            assert!(error.contains(&format!("no licence of {missing}")), "{error}");
        }
    }
}
