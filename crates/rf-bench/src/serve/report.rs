//! Reports of comparisons as table, JSON and CSV.

use std::fmt::Write;

use rf_profile::baseline::{DeviceKind, Hardware};
use rf_profile::stats::Summary;
use serde_json::json;

use super::{Load, LoadRun, ServeComparison, ServerOptions};
use crate::Error;
use crate::table::csv_lines;

/// Formats throughput and latencies of every load, and the ratios where there is a peer.
pub fn table(
    comparisons: &[ServeComparison],
    model: &str,
    options: &ServerOptions,
    hardware: &Hardware,
) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let mut line = |text: String| _ = writeln!(out, "{}", text.trim_end());
    let device = if options.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
    line(format!("model    {model}"));
    line(format!("on       {}; {}", hardware.name(device), hardware.os));
    line(format!("threads  {}, sequences at a time {}", options.threads, options.slots));
    line(String::new());
    line(format!(
        "{:<14} {:>6}  {:>6}  {:>8}  {:>26}  {:>23}",
        "", "", "", "tokens/s", "first token, ms", "between tokens, ms"
    ));
    line(format!(
        "{:<14} {:>6}  {:>6}  {:>8}  {:>8} {:>8} {:>8}  {:>7} {:>7} {:>7}",
        "load", "", "tokens", "", "p50", "p95", "p99", "p50", "p95", "p99"
    ));
    for ServeComparison { load, ours, theirs } in comparisons {
        let mut side = |name: &str, runs: &[LoadRun]| {
            if let Some(values) = SideResults::of(runs) {
                line(format!(
                    "{:<14} {name:>6}  {:>6}  {:>8.1}  {}  {}",
                    load.arrivals.to_string(),
                    format!(
                        "{}+{}",
                        load.shared_tokens + load.prompt_tokens,
                        load.generated_tokens
                    ),
                    values.throughput,
                    milliseconds(&values.first, 8),
                    milliseconds(&values.gaps, 7),
                ));
            }
        };
        side("ours", ours);
        side("theirs", theirs);
        if let Some((ours, theirs)) = SideResults::of(ours).zip(SideResults::of(theirs)) {
            let ratios = |ours: [f64; 3], theirs: [f64; 3], width: usize| {
                let ratios = ours.iter().zip(theirs).map(|(a, b)| format!("{:>width$.2}", a / b));
                ratios.collect::<Vec<_>>().join(" ")
            };
            line(format!(
                "{:<14} {:>6}  {:>6}  {:>8.2}  {}  {}",
                "",
                "ratio",
                "",
                ours.throughput / theirs.throughput,
                ratios(ours.first, theirs.first, 8),
                ratios(ours.gaps, theirs.gaps, 7),
            ));
        }
    }
    for ServeComparison { load, ours, theirs } in comparisons {
        for (name, runs) in [("ours", ours), ("theirs", theirs)] {
            if let Some(text) = shared_prefix(load, runs) {
                line(format!("{name}: {text}"));
            }
        }
    }
    out
}

/// The gain of the shared beginning of prompts.
pub(crate) fn shared_prefix(load: &Load, runs: &[LoadRun]) -> Option<String> {
    let (first, later) = ServeComparison::first_and_later(runs)?;
    (load.shared_tokens > 0).then(|| {
        format!(
            "{} shared tokens, {}: first token of the first request after {:.1} ms, of later ones \
             after {:.1} ms ({:.1} %)",
            load.shared_tokens,
            load.arrivals,
            first * 1e3,
            later * 1e3,
            later / first * 100.0
        )
    })
}

fn milliseconds(times_s: &[f64; 3], width: usize) -> String {
    let times = times_s.iter().map(|time| format!("{:>width$.1}", time * 1e3));
    times.collect::<Vec<_>>().join(" ")
}

/// The results of one side: generated tokens per second, and the 50th, 95th and 99th percentiles in
/// seconds.
pub(crate) struct SideResults {
    pub(crate) throughput: f64,
    pub(crate) first: [f64; 3],
    pub(crate) gaps: [f64; 3],
}

impl SideResults {
    /// `None` without a run. Answers of one token have no gaps, which count as 0.
    pub(crate) fn of(runs: &[LoadRun]) -> Option<Self> {
        let percentiles = |summary: Summary| [summary.median, summary.p95, summary.p99];
        Some(Self {
            throughput: ServeComparison::throughput(runs)?,
            first: percentiles(ServeComparison::first_token(runs)?),
            gaps: ServeComparison::gaps(runs).map(percentiles).unwrap_or_default(),
        })
    }
}

/// Formats all runs with all requests as JSON.
///
/// # Errors
///
/// [`Error::Json`] if a value cannot be encoded.
pub fn json(
    comparisons: &[ServeComparison],
    model: &str,
    options: &ServerOptions,
    hardware: &Hardware,
) -> Result<String, Error> {
    let all = json!({
        "model": model,
        "threads": options.threads,
        "slots": options.slots,
        "json_schema": options.json_schema,
        "hardware": hardware,
        "comparisons": comparisons,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// Formats one line of CSV per run.
///
/// # Errors
///
/// [`Error::Csv`] if a row cannot be encoded.
pub fn csv(comparisons: &[ServeComparison]) -> Result<String, Error> {
    let header = [
        "load",
        "side",
        "run",
        "requests",
        "shared_tokens",
        "prompt_tokens",
        "generated_tokens",
        "tokens_per_s",
        "ttft_p50_s",
        "ttft_p95_s",
        "ttft_p99_s",
        "itl_p50_s",
        "itl_p95_s",
        "itl_p99_s",
    ];
    let mut rows = Vec::new();
    for ServeComparison { load, ours, theirs } in comparisons {
        for (side, runs) in [("ours", ours), ("theirs", theirs)] {
            for (run, one) in runs.chunks(1).enumerate() {
                let Some(SideResults { throughput, first, gaps }) = SideResults::of(one) else {
                    continue;
                };
                let [ttft_p50, ttft_p95, ttft_p99] = first.map(|time| format!("{time:.6}"));
                let [itl_p50, itl_p95, itl_p99] = gaps.map(|time| format!("{time:.6}"));
                rows.push([
                    load.arrivals.to_string(),
                    side.to_owned(),
                    (run + 1).to_string(),
                    load.requests.to_string(),
                    load.shared_tokens.to_string(),
                    load.prompt_tokens.to_string(),
                    load.generated_tokens.to_string(),
                    format!("{throughput:.3}"),
                    ttft_p50,
                    ttft_p95,
                    ttft_p99,
                    itl_p50,
                    itl_p95,
                    itl_p99,
                ]);
            }
        }
    }
    csv_lines(header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::Arrivals;

    fn comparison() -> ServeComparison {
        let load = Load {
            arrivals: Arrivals::Concurrency(1),
            requests: 3,
            shared_tokens: 8,
            prompt_tokens: 2,
            generated_tokens: 4,
        };
        ServeComparison {
            load,
            ours: vec![LoadRun::sample(2.0), LoadRun::sample(2.0)],
            theirs: vec![LoadRun::sample(1.0), LoadRun::sample(1.0)],
        }
    }

    const OPTIONS: ServerOptions = ServerOptions {
        repetitions: 2,
        threads: 2,
        gpu: false,
        slots: 1,
        sequence_tokens: 30,
        json_schema: None,
    };

    #[test]
    fn the_table_has_both_sides_and_their_ratio() {
        let text = table(&[comparison()], "a.gguf", &OPTIONS, &Hardware::default());
        let lines: Vec<&str> = text.lines().skip(6).collect();
        assert_eq!(
            lines,
            [
                "1 client         ours    10+4      12.0      50.0    200.0    200.0     10.0    10.0    10.0",
                "1 client       theirs    10+4       6.0     100.0    400.0    400.0     20.0    20.0    20.0",
                "                ratio              2.00      0.50     0.50     0.50     0.50    0.50    0.50",
                "ours: 8 shared tokens, 1 client: first token of the first request after 200.0 ms, of later \
                 ones after 50.0 ms (25.0 %)",
                "theirs: 8 shared tokens, 1 client: first token of the first request after 400.0 ms, of \
                 later ones after 100.0 ms (25.0 %)",
            ]
        );
    }

    #[test]
    fn csv_and_json_have_every_run() {
        assert_eq!(csv(&[comparison()]).unwrap().lines().count(), 5);
        let text = json(&[comparison()], "a.gguf", &OPTIONS, &Hardware::default()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["comparisons"][0]["theirs"][1]["wall_s"], 2.0);
        assert_eq!(json["comparisons"][0]["load"]["arrivals"]["concurrency"], 1);
    }
}
