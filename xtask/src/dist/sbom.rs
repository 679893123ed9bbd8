//! The bill of materials of a program, in the JSON of `CycloneDX` 1.5.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::page;
use super::release::{Crate, PROGRAM, Release};

/// The bill of the program for a target.
pub(super) fn text(release: &Release, target: &str) -> Result<String> {
    let crates = release.crates(target)?;
    let program = crates.iter().find(|one| one.name == PROGRAM).context("no program")?;
    let mut about = component(program);
    about["type"] = "application".into();
    about["properties"] = json!([{ "name": "rocmforge:target", "value": target }]);
    let page = page::packages(&release.root)?;
    let libraries = crates.iter().filter(|one| one.name != PROGRAM);
    let components = libraries.map(component).chain(page.iter().map(page_component));
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": release.time, "component": about },
        "components": components.collect::<Vec<_>>(),
        "dependencies": crates.iter().map(|one| json!({
            "ref": one.purl,
            "dependsOn": one.dependencies,
        })).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn component(one: &Crate) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        // Old crates separate alternatives with a slash, which SPDX does not know.
        "licenses": [{ "expression": one.licence.replace('/', " OR ") }],
    });
    if let Some(sha256) = &one.sha256 {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
    }
    component
}

/// A package of the chat page.
fn page_component(one: &page::Package) -> Value {
    json!({
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        "licenses": [{ "expression": one.licence.trim_matches(['(', ')']) }],
        "hashes": [{ "alg": "SHA-512", "content": one.sha512 }],
    })
}
