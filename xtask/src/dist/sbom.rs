//! The bill of materials of a program, in the JSON of `CycloneDX` 1.5.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::release::{Crate, PROGRAM, Release};

/// The bill of the program for a target.
pub(super) fn text(release: &Release, target: &str) -> Result<String> {
    let crates = release.crates(target)?;
    let program = crates.iter().find(|one| one.name == PROGRAM).context("no program")?;
    let mut about = component(program);
    about["type"] = "application".into();
    about["properties"] = json!([{ "name": "rocmforge:target", "value": target }]);
    let libraries = crates.iter().filter(|one| one.name != PROGRAM);
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": release.time, "component": about },
        "components": libraries.map(component).collect::<Vec<_>>(),
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
