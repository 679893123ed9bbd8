//! Tables of the ops of each backend.

use std::fmt::Write;
use std::time::Duration;

use rf_profile::roofline::{self, MachineLimits, OpMeasurement, RooflineVerdict};
use rocmforge::engine::BackendExecutionSummary;

use crate::failure::sentence;
use crate::terminal;

/// The ops by their time, then the limit of each, or the reason why limits are unknown.
pub(crate) fn report(
    summary: &BackendExecutionSummary,
    limits: Result<&MachineLimits, &anyhow::Error>,
) -> String {
    let mut out = table(summary);
    out.push('\n');
    match limits {
        Ok(limits) => limits_and_verdicts(&mut out, summary, limits),
        Err(error) => {
            line(&mut out, format_args!("limits were not measured: {}", sentence(error)));
        }
    }
    out
}

fn limits_and_verdicts(
    out: &mut String,
    summary: &BackendExecutionSummary,
    limits: &MachineLimits,
) {
    let metric = |value: Option<f64>, unit: f64, name: &str| {
        value.map(|value| format!("{:.1} {name}", value / unit))
    };
    let metrics = [
        metric(limits.bandwidth_bytes_per_s, 1e9, "GB/s"),
        metric(limits.f32_operations_per_s, 1e9, "Gops/s in f32"),
        metric(limits.int8_operations_per_s, 1e9, "Gops/s in int8"),
        metric(limits.transfer_bytes_per_s, 1e9, "GB/s between host and device"),
        metric(limits.launch_s, 1e-6, "us for a launch"),
    ];
    let metrics: Vec<String> = metrics.into_iter().flatten().collect();
    line(out, format_args!("limits: {} ({})", metrics.join(", "), limits.source));
    out.push_str(&roofline::table(&verdicts(summary, limits)));
}

/// The ops compared with the limits.
pub(crate) fn verdicts(
    summary: &BackendExecutionSummary,
    limits: &MachineLimits,
) -> Vec<RooflineVerdict> {
    let ops = summary.ops.iter().filter(|(_, op)| op.count > 0 && !op.time.is_zero());
    let ops: Vec<OpMeasurement> = ops
        .map(|(name, op)| OpMeasurement {
            name: (*name).to_owned(),
            count: op.count,
            time: op.time,
            bytes: op.cost.bytes as f64,
            f32_operations: op.cost.f32_operations as f64,
            int8_operations: op.cost.int8_operations as f64,
            launches: op.launches,
            ..OpMeasurement::default()
        })
        .collect();
    limits.judge(&ops)
}

/// The ops by their time, and the time outside of ops.
fn table(summary: &BackendExecutionSummary) -> String {
    let BackendExecutionSummary { backend, batches, tokens, time, ops, input_bytes } = summary;
    let mut out = format!(
        "{backend}: {} ops in {batches} batches of {tokens} tokens, {:.3} ms\n",
        summary.op_count(),
        milliseconds(*time)
    );
    if *input_bytes > 0 {
        let bytes = terminal::bytes(*input_bytes);
        line(&mut out, format_args!("  activations received from the other backend: {bytes}"));
    }
    line(
        &mut out,
        format_args!("  {:<16} {:>9} {:>12} {:>7} {:>10}", "op", "count", "ms", "share", "us each"),
    );
    let mut sorted: Vec<_> = ops.iter().collect();
    sorted.sort_by_key(|(_, op)| std::cmp::Reverse(op.time));
    for (name, op) in sorted {
        let each = 1e3 * milliseconds(op.time) / op.count.max(1) as f64;
        let (ms, share) = (milliseconds(op.time), share(op.time, *time));
        line(
            &mut out,
            format_args!("  {name:<16} {:>9} {ms:>12.3} {share:>6.1}% {each:>10.2}", op.count),
        );
    }
    let in_ops: Duration = ops.values().map(|op| op.time).sum();
    let rest = time.saturating_sub(in_ops);
    let (ms, share) = (milliseconds(rest), share(rest, *time));
    line(&mut out, format_args!("  {:<16} {:>9} {ms:>12.3} {share:>6.1}%", "(no op)", ""));
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    _ = writeln!(out, "{text}");
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A part in percent of the whole.
fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { 100.0 * part.as_secs_f64() / whole.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dearest_op_comes_first_and_the_rest_last() {
        let mut summary = BackendExecutionSummary {
            backend: "CPU".into(),
            batches: 2,
            tokens: 5,
            time: Duration::from_millis(8),
            input_bytes: 2048,
            ..BackendExecutionSummary::default()
        };
        summary.add_op("add", 4, Duration::from_millis(2));
        summary.add_op("matmul", 2, Duration::from_millis(4));
        let expected = "\
CPU: 6 ops in 2 batches of 5 tokens, 8.000 ms
  activations received from the other backend: 2.00 KiB
  op                   count           ms   share    us each
  matmul                   2        4.000   50.0%    2000.00
  add                      4        2.000   25.0%     500.00
  (no op)                           2.000   25.0%
";
        assert_eq!(table(&summary), expected);
    }

    #[test]
    fn each_op_is_held_against_the_limits() {
        let mut summary = BackendExecutionSummary::default();
        summary.add_op("matmul", 2, Duration::from_millis(4));
        // 20 MB in 4 ms are 5 GB/s, of 6.
        let cost = rocmforge::engine::OpCost {
            bytes: 20_000_000,
            f32_operations: 0,
            int8_operations: 1_000_000,
        };
        summary.add_cost("matmul", cost, 0);
        summary.add_op("never", 0, Duration::ZERO);
        let limits = MachineLimits {
            source: "a test".to_owned(),
            bandwidth_bytes_per_s: Some(6e9),
            int8_operations_per_s: Some(1e12),
            ..MachineLimits::default()
        };
        let text = report(&summary, Ok(&limits));
        assert!(text.contains("limits: 6.0 GB/s, 1000.0 Gops/s in int8 (a test)"), "{text}");
        let row = text.lines().last().unwrap();
        assert!(row.starts_with("matmul") && row.contains("bandwidth"), "{text}");
        assert!(row.ends_with("5.0 of 6.0 GB/s (83 %)"), "{text}");
        let unknown = report(&summary, Err(&anyhow::anyhow!("no memory")));
        assert!(unknown.ends_with("limits were not measured: no memory\n"), "{unknown}");
    }
}
