//! Renders the HTML report of a stored run.
//!
//! `cargo run -p rf-bench --example report -- RUN.json [OLDER.json...] > report.html`
//!
//! A run is the output of `cargo xtask bench --format json` or a record in `benchmarks/records/`.
//! Older runs become the history, and the last of them the baseline of the comparison.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::fs;

use rf_bench::html;
use rf_bench::results::{Report, Run};
use rf_profile::baseline::DEFAULT_THRESHOLD;

fn main() -> Result<(), Box<dyn Error>> {
    let runs = std::env::args().skip(1).map(|path| read(&path));
    let runs = runs.collect::<Result<Vec<Run>, _>>()?;
    let [run, history @ ..] = &runs[..] else { return Err("usage: report RUN.json".into()) };
    let comparison = history.last().map(|before| {
        before.baselines().compare(&run.baselines(), &run.hardware, DEFAULT_THRESHOLD)
    });
    let report = Report { run, comparison: comparison.as_ref(), targets: &[], history };
    println!("{}", html::render(&report)?);
    Ok(())
}

fn read(path: &str) -> Result<Run, Box<dyn Error>> {
    let mut value: serde_json::Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    // The output of the program holds the run and its comparison, a record the run alone.
    let run = value.get_mut("run").map(serde_json::Value::take);
    Ok(serde_json::from_value(run.unwrap_or(value))?)
}
