//! Stores a baseline, measures again, and compares the results.
//!
//! `cargo run -p rf-profile --example 01-baselines`

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::hint::black_box;
use std::time::Instant;

use rf_profile::baseline::{
    Baseline, BaselineSet, Better, DEFAULT_THRESHOLD, DeviceKind, Hardware, Metrics,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = Hardware::detect();
    println!("measured on: {}\n", here.name(DeviceKind::Cpu));
    let path = std::env::temp_dir().join(format!("rf-profile-{}.json", std::process::id()));

    let stored = BaselineSet { entries: vec![sum_of(1 << 16, &here)?], ..BaselineSet::default() };
    BaselineSet::update(&path, stored)?;

    // First the same work, then twice the work under the same name: a slow-down.
    for length in [1 << 16, 1 << 17] {
        let now = BaselineSet { entries: vec![sum_of(length, &here)?], ..BaselineSet::default() };
        let comparison = BaselineSet::load(&path)?.compare(&now, &here, DEFAULT_THRESHOLD);
        println!("{}exit code {}\n", comparison.table(), comparison.exit_code(false));
    }
    std::fs::remove_file(path)?;
    Ok(())
}

fn sum_of(length: usize, here: &Hardware) -> Result<Baseline, rf_profile::Error> {
    let data: Vec<f32> = (0..length).map(|i| i as f32).collect();
    let round = || -> Vec<f64> {
        let sample = || {
            let start = Instant::now();
            black_box(black_box(&data).iter().map(|x| x.sqrt()).sum::<f32>());
            start.elapsed().as_secs_f64() * 1e6
        };
        (0..50).map(|_| sample()).collect()
    };
    let rounds: Vec<_> = (0..5).map(|_| round()).collect();
    let metrics = Metrics::from_rounds("us", Better::Lower, &rounds)?;
    Ok(Baseline::measured("sum of square roots", DeviceKind::Cpu, here.clone(), metrics))
}
