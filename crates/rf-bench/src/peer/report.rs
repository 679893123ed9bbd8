//! Report of both engines' speeds and their ratios, as table, JSON and CSV.

use std::fmt::Write;

use rf_profile::baseline::{DeviceKind, Hardware};
use rf_profile::stats::Summary;
use serde::Serialize;
use serde_json::json;

use super::speeds::{Speeds, Test};
use crate::Error;
use crate::table::csv_lines;

/// The results of one model.
#[derive(Clone, Debug, Serialize)]
pub struct PeerComparison {
    model: String,
    test: Test,
    /// Speeds of ours and theirs, one pair per repetition.
    pairs: Vec<(Speeds, Speeds)>,
}

/// One test of a comparison: prompt or generation.
struct Column {
    name: String,
    /// Our throughput in tokens/s, one value per repetition.
    ours: Vec<f64>,
    /// The peer's throughput in tokens/s.
    theirs: Vec<f64>,
}

impl PeerComparison {
    pub(super) fn new(model: String, test: Test) -> Self {
        Self { model, test, pairs: Vec::new() }
    }

    pub(super) fn add(&mut self, ours: Speeds, theirs: Speeds) {
        self.pairs.push((ours, theirs));
    }

    pub(super) fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    fn columns(&self) -> Vec<Column> {
        let Test { prompt_tokens, generated_tokens, depth_tokens, .. } = self.test;
        let depth = if depth_tokens > 0 { format!(" @ d{depth_tokens}") } else { String::new() };
        let column = |name: String, speed: fn(&Speeds) -> Option<f64>| {
            let both = |(ours, theirs): &(Speeds, Speeds)| Some((speed(ours)?, speed(theirs)?));
            let (ours, theirs) = self.pairs.iter().filter_map(both).unzip();
            Column { name, ours, theirs }
        };
        let columns = [
            column(format!("pp{prompt_tokens}{depth}"), |speeds| speeds.prompt_tokens_per_s),
            column(format!("tg{generated_tokens}{depth}"), |speeds| speeds.decode_tokens_per_s),
        ];
        columns.into_iter().filter(|column| !column.ours.is_empty()).collect()
    }
}

impl Column {
    /// Ratios of adjacent runs, in which drift of the machine cancels out.
    fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect()
    }
}

/// Formats every repetition, then the medians and their ratios.
pub fn table(comparisons: &[PeerComparison], hardware: &Hardware) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let mut line = |text: String| _ = writeln!(out, "{}", text.trim_end());
    if let Some((ours, theirs)) = comparisons.first().and_then(|first| first.pairs.first()) {
        line(format!("ours    {} ({})", ours.program, ours.features));
        line(format!("theirs  {} ({})", theirs.program, theirs.features));
    }
    line(format!("on      {}; {}", hardware.name(DeviceKind::Cpu), hardware.os));
    if let Some(first) = comparisons.first() {
        line(format!(
            "threads {} each; tokens/s, a fresh process for each run",
            first.test.threads
        ));
    }
    let width = comparisons.iter().map(|c| c.model.chars().count()).max().unwrap_or(0).max(5);
    line(String::new());
    line(format!(
        "{:<width$}  {:<14}  {:>4}  {:>9}  {:>9}  {:>6}",
        "model", "test", "run", "ours", "theirs", "ratio"
    ));
    for comparison in comparisons {
        for column in comparison.columns() {
            let ratios = column.ratios();
            let runs = column.ours.iter().zip(&column.theirs).zip(&ratios).enumerate();
            for (run, ((ours, theirs), ratio)) in runs {
                line(format!(
                    "{:<width$}  {:<14}  {:>4}  {ours:>9.1}  {theirs:>9.1}  {ratio:>6.2}",
                    comparison.model,
                    column.name,
                    run + 1
                ));
            }
        }
    }
    line(String::new());
    line(format!(
        "{:<width$}  {:<14}  {:>9}  {:>9}  ratio, median (min to max)",
        "model", "test", "ours", "theirs"
    ));
    for comparison in comparisons {
        for column in comparison.columns() {
            let median = |values: &[f64]| Summary::of(values).map_or(0.0, |s| s.median);
            let Some(ratio) = Summary::of(&column.ratios()) else { continue };
            line(format!(
                "{:<width$}  {:<14}  {:>9.1}  {:>9.1}  {:.2} ({:.2} to {:.2})",
                comparison.model,
                column.name,
                median(&column.ours),
                median(&column.theirs),
                ratio.median,
                ratio.min,
                ratio.max
            ));
        }
    }
    out
}

/// Formats all runs and the summary of each ratio as JSON.
///
/// # Errors
///
/// [`Error::Json`] if a value cannot be encoded.
pub fn json(comparisons: &[PeerComparison], hardware: &Hardware) -> Result<String, Error> {
    let summaries = comparisons.iter().flat_map(|comparison| {
        comparison.columns().into_iter().filter_map(|column| {
            let ratio = Summary::of(&column.ratios())?;
            Some(json!({
                "model": comparison.model, "test": column.name,
                "ratio": {"median": ratio.median, "min": ratio.min, "max": ratio.max},
            }))
        })
    });
    let ratios: Vec<_> = summaries.collect();
    let all = json!({"hardware": hardware, "comparisons": comparisons, "ratios": ratios});
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// Formats one line of CSV per repetition.
///
/// # Errors
///
/// [`Error::Csv`] if a row cannot be encoded.
pub fn csv(comparisons: &[PeerComparison]) -> Result<String, Error> {
    let header = ["model", "test", "run", "ours_tokens_per_s", "theirs_tokens_per_s", "ratio"];
    let mut rows = Vec::new();
    for comparison in comparisons {
        for Column { name, ours, theirs } in comparison.columns() {
            for (run, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                rows.push([
                    comparison.model.clone(),
                    name.clone(),
                    (run + 1).to_string(),
                    format!("{ours:.3}"),
                    format!("{theirs:.3}"),
                    format!("{:.4}", ours / theirs),
                ]);
            }
        }
    }
    csv_lines(header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(program: &str, prompt: f64, decode: f64) -> Speeds {
        Speeds {
            program: program.into(),
            features: "AVX2".into(),
            prompt_tokens_per_s: Some(prompt),
            decode_tokens_per_s: Some(decode),
        }
    }

    fn comparison() -> PeerComparison {
        let test = Test {
            prompt_tokens: 512,
            generated_tokens: 64,
            depth_tokens: 0,
            threads: 2,
            repetitions: 3,
        };
        let mut comparison = PeerComparison::new("a.gguf".into(), test);
        for drift in [1.0, 0.5, 0.8] {
            comparison.add(speeds("A", 300.0 * drift, 60.0), speeds("B", 200.0 * drift, 50.0));
        }
        comparison
    }

    #[test]
    fn the_ratio_of_adjacent_runs_comes_last() {
        let text = table(&[comparison()], &Hardware::default());
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(last[1], "a.gguf  pp512               240.0      160.0  1.50 (1.50 to 1.50)");
        assert_eq!(last[0], "a.gguf  tg64                 60.0       50.0  1.20 (1.20 to 1.20)");
    }

    #[test]
    fn csv_and_json_have_every_run() {
        assert_eq!(csv(&[comparison()]).unwrap().lines().count(), 7);
        let json: serde_json::Value =
            serde_json::from_str(&json(&[comparison()], &Hardware::default()).unwrap()).unwrap();
        assert_eq!(json["ratios"][0]["ratio"]["median"], 1.5);
        assert_eq!(json["comparisons"][0]["pairs"][1][0]["prompt_tokens_per_s"], 150.0);
    }
}
