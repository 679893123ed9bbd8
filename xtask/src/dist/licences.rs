//! The licences of all crates that a program contains, and of the packages in its chat page.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::release::{Crate, Release};
use super::{archive, page};

/// The file with all texts in an artefact.
pub(super) const FILE: &str = "THIRD-PARTY-LICENSES.txt";

/// The beginnings of the names of files with a licence.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The texts of the licences, each once, with the crates that are under it, and those of the chat
/// page.
///
/// # Errors
///
/// A crate without a licence, or without its text and that of a crate with the same expression. A
/// package of the chat page without either.
pub(super) fn text(release: &Release, target: &str) -> Result<String> {
    let crates = release.crates(target)?;
    let others: Vec<_> = crates.iter().filter(|one| !one.is_ours).collect();
    let mut texts: BTreeMap<String, Vec<&Crate>> = BTreeMap::new();
    let mut missing = Vec::new();
    for one in &others {
        if one.licence.is_empty() {
            bail!("{} {} names no licence", one.name, one.version);
        }
        let found = files(&one.folder)?;
        if found.is_empty() {
            missing.push(*one);
        }
        for file in found {
            texts.entry(normal(&file)?).or_default().push(one);
        }
    }
    for one in missing {
        let same = |text: &&Vec<&Crate>| text.iter().any(|other| other.licence == one.licence);
        let Some(text) = texts.values_mut().find(|text| same(&&**text)) else {
            let (name, version) = (&one.name, &one.version);
            bail!("{name} {version} has no text of its licence ({})", one.licence);
        };
        text.push(one);
    }
    let page = page::packages(&release.root)?;
    let mut all = format!(
        "ROCmForge {} contains these {} libraries of others.\n\n",
        release.version,
        others.len() + page.len()
    );
    for one in &others {
        writeln!(all, "{} {}: {}", one.name, one.version, one.licence)?;
    }
    for one in &page {
        writeln!(all, "{} {}: {} (chat page)", one.name, one.version, one.licence)?;
    }
    let mut sorted: Vec<_> = texts.iter().collect();
    sorted.sort_by_key(|(_, crates)| crates[0].purl.clone());
    for (text, crates) in sorted {
        let names: Vec<_> = crates.iter().map(|one| &*one.name).collect();
        section(&mut all, &names.join(", "), text)?;
    }
    for one in &page {
        section(&mut all, &page_heading(one), &one.text)?;
    }
    Ok(all)
}

/// Fails unless a staged artefact has one file of licences, and that has the texts of the chat
/// page.
pub(super) fn check_page(release: &Release, folder: &Path) -> Result<()> {
    let name = folder.display();
    let mut found = archive::files(folder)?;
    found.retain(|path| Path::new(path).file_name().is_some_and(|name| name == FILE));
    ensure!(found.len() == 1, "{name} has {} files {FILE}", found.len());
    let text = fs::read_to_string(folder.join(&found[0]))?;
    for one in page::packages(&release.root)? {
        let mut expected = String::new();
        section(&mut expected, &page_heading(&one), &one.text)?;
        ensure!(text.contains(&expected), "{name}: the licence of {} is missing", one.name);
    }
    Ok(())
}

fn page_heading(one: &page::Package) -> String {
    format!("{}, in the chat page", one.name)
}

fn section(all: &mut String, heading: &str, text: &str) -> fmt::Result {
    let line = "=".repeat(80);
    write!(all, "\n{line}\n{heading}\n{line}\n\n{text}\n")
}

/// The files with a licence in the folder of a crate, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.to_uppercase();
        path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
    };
    let mut found: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(is_licence);
    found.sort();
    Ok(found)
}

/// The text of a file, without what differs between copies of the same licence.
fn normal(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    Ok(lines.join("\n").trim_matches('\n').to_owned())
}
