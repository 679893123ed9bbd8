//! `cargo xtask doc`: the documentation of all crates, with a page that lists them.
//!
//! `cargo doc` writes no such page: rustdoc's own is for nightly compilers only.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{MetadataCommand, Package};

/// Documents the workspace without its dependencies and writes `target/doc/index.html`.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
    let status = Command::new(cargo).args(arguments).current_dir(root).status();
    ensure!(status.context("could not run cargo")?.success(), "cargo doc failed");
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    let page = page(&metadata.workspace_packages());
    let path = metadata.target_directory.join("doc/index.html");
    fs::write(&path, page).with_context(|| format!("could not write {path}"))?;
    writeln!(io::stdout(), "written: {path}")?;
    Ok(ExitCode::SUCCESS)
}

/// The libraries that are published, `rocmforge` first, then those of this repository alone.
fn page(packages: &[&Package]) -> String {
    let is_private = |package: &Package| package.publish.as_ref().is_some_and(Vec::is_empty);
    let mut sorted = packages.to_vec();
    sorted.sort_by_key(|package| (is_private(package), package.name != "rocmforge", &package.name));
    let mut rows = String::new();
    for package in sorted {
        let name = escape(&package.name);
        let folder = name.replace('-', "_");
        let description = escape(package.description.as_deref().unwrap_or_default());
        let row = "<tr><td><a href=\"";
        _ = writeln!(rows, "{row}{folder}/index.html\">{name}</a></td><td>{description}</td></tr>");
    }
    format!(
        "<!DOCTYPE html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>Crates of ROCmForge</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
td {{ padding: .25rem 1rem .25rem 0; vertical-align: top; }}
</style>
<h1>Crates of ROCmForge</h1>
<p>A program that runs models needs <a href=\"rocmforge/index.html\">rocmforge</a> alone. The other crates
are its parts, each usable without the rest.</p>
<table>
{rows}</table>
"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
