//! What computes, and what to call it.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, anyhow};
use rf_cpu::{CpuBackend, CpuOptions, Tier};
use rf_graph::Backend;
use rf_kernels::{GpuBackend, GpuOptions};
use rf_profile::baseline::Hardware;

use super::options::BackendName;

/// A backend in use.
pub(super) struct Device {
    pub(super) backend: Box<dyn Backend>,
    /// For people: `AVX-512 VNNI, 2 threads`.
    pub(super) description: String,
}

/// Opens what is to be measured.
pub(super) fn open(
    name: BackendName,
    threads: Option<usize>,
    tier: Option<&str>,
) -> Result<Device> {
    let backend: Box<dyn Backend> = match name {
        BackendName::Cpu => Box::new(CpuBackend::new(CpuOptions {
            threads,
            tier: tier.map(parse_tier).transpose()?,
        })?),
        BackendName::Gpu => {
            let opened = GpuBackend::new(GpuOptions::default());
            Box::new(
                opened.context("--backend gpu needs a GPU: `rf-cli doctor` says what is amiss")?,
            )
        }
    };
    Ok(Device { description: backend.description(), backend })
}

/// An instruction set by its name.
pub(super) fn parse_tier(name: &str) -> Result<Tier> {
    name.parse().map_err(|error| anyhow!("--tier: {error}"))
}

/// The machine; the GPU only where it computes, for that loads its runtime.
pub(super) fn hardware(backend: BackendName) -> Hardware {
    match backend {
        BackendName::Cpu => Hardware::cpu_only(),
        BackendName::Gpu => Hardware::detect(),
    }
}

/// The revision of the sources: `f52cd03`, with `-dirty` where files differ from it; empty without git.
pub(super) fn revision(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = output.status.success().then_some(output.stdout)?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    };
    let Some(revision) = git(&["rev-parse", "--short=10", "HEAD"]) else { return String::new() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_none_or(|files| files.is_empty()) { revision } else { revision + "-dirty" }
}
