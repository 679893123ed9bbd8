//! The case table on the GPU of this machine, if available.

#![expect(clippy::print_stdout, reason = "prints skipped cases and the largest deviations")]

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rf_graph::case::{Case, cases};
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
    check(options, |case| groups.iter().any(|group| case.name().starts_with(group)));
}

/// A part of the cases that uses every row of the table of kernels: for each op one case of each
/// format and of each variant, two that use the kernels that these leave out, and latents of real
/// models.
#[test]
fn every_template_passes() {
    let (mut formats, mut variants) = (HashSet::new(), HashSet::new());
    let selects = |case: &Case| {
        let mut parts = case.name().split('/').map(str::to_owned);
        let (op, variant) = (parts.next().unwrap_or_default(), parts.next());
        let new_format = formats.insert((op.clone(), format!("{:?}", case.format())));
        let is_new = variants.insert((op.clone(), variant)) || new_format;
        let others = [
            "attention/head-dim-80/f16",
            "matmul/Q4_K/150x512/large",
            "latent_attention/20x576:512/32/f16",
        ];
        op != "model" && is_new || others.contains(&case.name())
    };
    let Some(used) = check(GpuOptions::default(), selects) else { return };
    let Ok(backend) = GpuBackend::new(GpuOptions::default()) else { return };
    let arch = backend.device().arch.clone();
    let is_of_device = |row: &&str| {
        let Some(targets) = row.lines().find_map(|line| line.strip_prefix("targets = [")) else {
            return true;
        };
        targets.split('"').any(|prefix| prefix.len() > 2 && arch.starts_with(prefix))
    };
    let patterns: Vec<&str> = include_str!("../../../kernels/kernels.toml")
        .split("[[kernel]]")
        .filter(is_of_device)
        .filter_map(|row| row.lines().find_map(|line| line.strip_prefix("name = \"")))
        .filter_map(|name| name.strip_suffix('"'))
        .collect();
    let row =
        |kernel| patterns.iter().filter(|row| matches(row, kernel)).max_by_key(|row| row.len());
    let rows: HashSet<_> = used.into_iter().filter_map(row).collect();
    let unused: Vec<_> = patterns.iter().filter(|row| !rows.contains(row)).collect();
    assert!(!patterns.is_empty() && unused.is_empty(), "no case uses {unused:?}");
}

/// True if `name` matches `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, pattern)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| matches(pattern, rest)))
        }),
    }
}

/// Checks the selected cases. For work on one kernel, `ROCFORGE_CONFORMANCE` restricts them to
/// names that contain its value. Returns the kernels that were used, or `None` without a GPU.
fn check(options: GpuOptions, mut selects: impl FnMut(&Case) -> bool) -> Option<Vec<&'static str>> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let backend = match GpuBackend::new(options) {
        Ok(backend) => backend,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    println!("{}", rf_graph::Backend::description(&backend));
    let filter = std::env::var("ROCFORGE_CONFORMANCE").unwrap_or_default();
    let (mut wrong, mut ran) = (Vec::new(), 0);
    let mut worst: BTreeMap<String, (f64, f64, String)> = BTreeMap::new();
    for case in cases() {
        if !case.name().contains(&filter) || !selects(&case) {
            continue;
        }
        if let Some((_, reason)) = IGNORED.iter().find(|(name, _)| case.name().starts_with(name)) {
            println!("skipped: {}: {reason}", case.name());
            continue;
        }
        ran += 1;
        let start = Instant::now();
        match prepare(&case).and_then(|case| case.check(&backend)) {
            Ok(Outcome::Passed { deviation, bound, .. }) => {
                let entry = worst.entry(format!("{bound:?}")).or_default();
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
    Some(backend.used_kernels())
}

fn source(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}
