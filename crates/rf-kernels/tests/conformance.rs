//! The case table on the GPU of this machine, if available.

#![expect(clippy::print_stdout, reason = "prints skipped cases and the largest deviations")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rf_graph::case::cases;
use rf_graph::conformance::{Outcome, prepare};
use rf_kernels::{GpuBackend, GpuOptions};

/// Prefixes of the names of cases that this backend does not pass, each with its reason.
const IGNORED: [(&str, &str); 0] = [];

/// While a stream captures, no other thread may wait for the device, so the tests run one after
/// another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn every_case_passes() {
    check(GpuOptions::default(), |_| true);
}

/// With one compute unit, small matmuls use the tiles of large ones.
#[test]
fn large_tiles_pass() {
    let options = GpuOptions { compute_units: Some(1), ..GpuOptions::default() };
    let groups = ["matmul/", "expert_matmul/", "experts/"];
    check(options, |name| groups.iter().any(|group| name.starts_with(group)));
}

/// Checks the selected cases. For work on one kernel, `ROCFORGE_CONFORMANCE` restricts them to
/// names that contain its value.
fn check(options: GpuOptions, selects: impl Fn(&str) -> bool) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let backend = match GpuBackend::new(options) {
        Ok(backend) => backend,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    println!("{}", rf_graph::Backend::description(&backend));
    let filter = std::env::var("ROCFORGE_CONFORMANCE").unwrap_or_default();
    let (mut wrong, mut ran) = (Vec::new(), 0);
    let mut worst: BTreeMap<String, (f64, f64, String)> = BTreeMap::new();
    for case in cases() {
        if !case.name().contains(&filter) || !selects(case.name()) {
            continue;
        }
        if let Some((_, reason)) = IGNORED.iter().find(|(name, _)| case.name().starts_with(name)) {
            println!("skipped: {}: {reason}", case.name());
            continue;
        }
        if case.has_states() {
            println!("skipped: {}: recurrent layers have no kernels yet", case.name());
            continue;
        }
        ran += 1;
        let start = Instant::now();
        match prepare(&case).and_then(|case| case.check(&backend)) {
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
    println!("{ran} cases; the largest deviation by bound:");
    for (bound, (nmse, peak, case)) in worst {
        println!("{bound:16} NMSE {nmse:.1e} peak {peak:.1e} {case}");
    }
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
}

fn source(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}
