//! The table of cases on the GPU of this machine, if there is one.

#![expect(clippy::print_stdout, reason = "says what was skipped, and how far off the rest is")]

use std::collections::BTreeMap;
use std::time::Instant;

use rf_graph::case::cases;
use rf_graph::conformance::{Outcome, prepare};
use rf_kernels::{GpuBackend, GpuOptions};

/// Cases that this backend does not pass, by the beginning of their names, each with its reason.
const IGNORED: [(&str, &str); 0] = [];

/// The device, or nothing and why.
fn backend(options: GpuOptions) -> Option<GpuBackend> {
    match GpuBackend::new(options) {
        Ok(backend) => Some(backend),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

#[test]
fn every_case_passes() {
    let Some(backend) = backend(GpuOptions::default()) else { return };
    check(&backend, |_| true);
}

/// The tiles of large products, which small ones take only where there is one processor to keep busy.
#[test]
fn large_tiles_pass() {
    let options = GpuOptions { compute_units: Some(1), ..GpuOptions::default() };
    let Some(backend) = backend(options) else { return };
    check(&backend, |name| name.starts_with("matmul/"));
}

/// `ROCFORGE_CONFORMANCE` picks cases whose names contain it, for work on one kernel.
fn check(backend: &GpuBackend, concerns: impl Fn(&str) -> bool) {
    println!("{}", rf_graph::Backend::description(backend));
    let wanted = std::env::var("ROCFORGE_CONFORMANCE").unwrap_or_default();
    let (mut wrong, mut ran) = (Vec::new(), 0);
    let mut worst: BTreeMap<String, (f64, f64, String)> = BTreeMap::new();
    for case in cases() {
        if !case.name().contains(&wanted) || !concerns(case.name()) {
            continue;
        }
        if let Some((_, reason)) = IGNORED.iter().find(|(name, _)| case.name().starts_with(name)) {
            println!("skipped: {}: {reason}", case.name());
            continue;
        }
        ran += 1;
        let start = Instant::now();
        match prepare(&case).and_then(|case| case.check(backend)) {
            Ok(Outcome::Passed { deviation, .. }) => {
                let entry = worst.entry(format!("{:?}", case.bound())).or_default();
                if deviation.nmse >= entry.0 {
                    *entry = (deviation.nmse, deviation.peak, case.name().to_owned());
                }
            }
            Ok(other) => wrong.push(format!("{}: {other:?}", case.name())),
            Err(mismatch) => wrong.push(format!("{mismatch}: {:?}", source(&mismatch))),
        }
        if start.elapsed().as_secs() > 10 {
            println!("{} took {:?}", case.name(), start.elapsed());
        }
    }
    println!("{ran} cases; the furthest off:");
    for (bound, (nmse, peak, case)) in worst {
        println!("{bound:16} NMSE {nmse:.1e} peak {peak:.1e} {case}");
    }
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
}

fn source(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}
