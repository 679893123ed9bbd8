//! What each backend did, as a table on stderr.

use std::fmt::Write;
use std::time::Duration;

use rf_engine::Engine;
use rf_graph::BackendExecutionSummary;

use crate::terminal;

/// Has the engine take the time of every op from now on.
pub(crate) fn start(engine: &mut Engine) {
    if !engine.profile(true) {
        terminal::warn("what runs the model takes no times of ops");
    }
}

/// Prints what ran since [`start`], a table per backend.
pub(crate) fn report(engine: &Engine) {
    for summary in engine.summaries() {
        terminal::note(table(&summary).trim_end());
    }
}

/// The ops by the time they took, and what belongs to none.
fn table(summary: &BackendExecutionSummary) -> String {
    let BackendExecutionSummary { backend, batches, tokens, time, ops, input_bytes } = summary;
    let mut out = format!(
        "{backend}: {} ops in {batches} batches of {tokens} tokens, {:.3} ms\n",
        summary.op_count(),
        milliseconds(*time)
    );
    if *input_bytes > 0 {
        let bytes = terminal::bytes(*input_bytes);
        line(&mut out, format_args!("  activations that came from the other backend: {bytes}"));
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

/// In percent.
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
  activations that came from the other backend: 2.00 KiB
  op                   count           ms   share    us each
  matmul                   2        4.000   50.0%    2000.00
  add                      4        2.000   25.0%     500.00
  (no op)                           2.000   25.0%
";
        assert_eq!(table(&summary), expected);
    }
}
