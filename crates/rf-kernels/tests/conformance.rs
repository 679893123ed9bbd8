//! The case table on the GPU of this machine, if available.

#![expect(clippy::print_stdout, reason = "prints the largest deviations")]

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rf_graph::{Backend, DType, Fusions, KvType, OperandFormat};
use rf_kernels::tuning::{Knob, Tuning};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_oracle::case::{Case, cases};
use rf_oracle::conformance::{CaseOutcome, prepare};

/// Prefixes of the names of cases for which there are no kernels: the backend must refuse them, so
/// that models with these ops run on the CPU.
const REFUSED: [&str; 4] = [
    "attention/alibi",
    "attention/long/alibi",
    "attention/both-directions/window",
    "attention/long/both-directions/window",
];

/// While a stream captures, no other thread may wait for the device, so the tests run one after
/// another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Every case, unfused and with all fusions. [`every_template_passes`] has each fusion alone.
#[test]
fn every_case_passes() {
    check(GpuOptions::default(), Tuning::NONE, Forms::Ends, |_| true);
}

/// With one compute unit, small matmuls use the tiles of large ones.
#[test]
fn large_tiles_pass() {
    let options = GpuOptions::default().with_compute_units(1);
    check(options, Tuning::NONE, Forms::Ends, |case| {
        case.name().ends_with("/large") || case.name().starts_with("expert")
    });
}

/// Choices of launches that `rf-cli tune` may make (choices of code: `refused_code.rs`): the first
/// and the last value of every knob, for matmuls of a few and of many tokens, their epilogues, and
/// attention. Weights have three formats: the kernels of the others differ in unpacking only.
#[test]
fn other_choices_pass() {
    let formats = DType::ALL.map(OperandFormat::Weight).into_iter();
    let formats: Vec<OperandFormat> =
        formats.chain(KvType::ALL.map(OperandFormat::Cache)).collect();
    let families = [DType::F16, DType::Q8_0, DType::Q4K];
    let parts = ["/64x256", "/large", "/glu-Silu", "/rms_norm", "attention/long"];
    for is_last in [false, true] {
        let mut tuning = Tuning::NONE;
        let knobs = Knob::ALL.iter().filter(|knob| !knob.is_of_code());
        for (knob, format) in knobs.flat_map(|k| formats.iter().map(move |f| (*k, *f))) {
            let values = knob.values();
            let value = if is_last { values.last() } else { values.first() };
            assert!(tuning.set(knob, format, value.copied()));
        }
        let selects = |case: &Case| {
            let is_of_format = match case.format() {
                Some(OperandFormat::Weight(dtype)) => families.contains(&dtype),
                Some(OperandFormat::Cache(_)) => true,
                _ => false,
            };
            is_of_format && parts.iter().any(|part| case.name().contains(part))
        };
        check(GpuOptions::default(), tuning, Forms::Ends, selects);
    }
}

/// Kernels that no op uses, with the tests that launch them: candidates (`top_k.rs`), the stamps of
/// a step that is several graphs and copies of states (`replays.rs`), signals between parts
/// (`parts.rs`).
const KERNELS_WITHOUT_OPS: [&str; 5] =
    ["argmax_f32", "top_k_f32", "pass_stamp", "copy_bytes", "signal_summand"];

/// A part of the cases that launches every other row of the table of kernels: for each op one case
/// of each format and of each variant, two that use the kernels that these leave out, and latents
/// of real models.
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
    let options = GpuOptions::default();
    let Some(used) = check(options, Tuning::NONE, Forms::All, selects) else { return };
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
        .filter(|name| !KERNELS_WITHOUT_OPS.contains(name))
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

/// The fusions with which a case is checked.
#[derive(Clone, Copy)]
enum Forms {
    /// None, and all.
    Ends,
    /// These, and each fusion alone.
    All,
}

/// Checks the selected cases. For work on one kernel, `ROCFORGE_CONFORMANCE` restricts them to
/// names that contain its value. Returns the kernels that were launched, or `None` without a
/// GPU.
fn check(
    options: GpuOptions,
    tuning: Tuning,
    forms: Forms,
    mut selects: impl FnMut(&Case) -> bool,
) -> Option<Vec<&'static str>> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let backend = match GpuBackend::new(options) {
        Ok(backend) => backend.with_tuning(tuning),
        Err(error) => {
            rf_testing::skip!("{error}");
            return None;
        }
    };
    println!("{}", backend.description());
    let filter = std::env::var("ROCFORGE_CONFORMANCE").unwrap_or_default();
    let (mut wrong, mut ran) = (Vec::new(), 0);
    let mut worst: BTreeMap<String, (f64, f64, String)> = BTreeMap::new();
    let mut times: BTreeMap<String, Duration> = BTreeMap::new();
    for case in cases() {
        if !case.name().contains(&filter) || !selects(&case) {
            continue;
        }
        ran += 1;
        let start = Instant::now();
        let ends = [Fusions::NONE, backend.fusions()];
        let checked = prepare(&case).and_then(|case| match forms {
            Forms::Ends => case.check_forms(&backend, &ends),
            Forms::All => case.check(&backend),
        });
        let is_refused = REFUSED.iter().any(|name| case.name().starts_with(name));
        match checked {
            Ok(CaseOutcome::Skipped(_)) if is_refused => {}
            Ok(CaseOutcome::Passed { .. }) if is_refused => {
                wrong.push(format!("{} is among the cases without kernels", case.name()));
            }
            Ok(CaseOutcome::Passed { deviation, bound, .. }) => {
                let entry = worst.entry(format!("{bound:?}")).or_default();
                if deviation.nmse >= entry.0 {
                    *entry = (deviation.nmse, deviation.peak, case.name().to_owned());
                }
            }
            Ok(other) => wrong.push(format!("{}: {other:?}", case.name())),
            Err(mismatch) => wrong.push(format!("{mismatch}: {:?}", source(&mismatch))),
        }
        *times.entry(case.op().to_owned()).or_default() += start.elapsed();
    }
    println!("{ran} cases; the time by op:");
    for (op, time) in times {
        println!("{op:24} {:6.1} s", time.as_secs_f64());
    }
    println!("the largest deviation by bound:");
    for (bound, (nmse, peak, case)) in worst {
        println!("{bound:16} NMSE {nmse:.1e} peak {peak:.1e} {case}");
    }
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
    Some(backend.used_kernels())
}

fn source(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}
