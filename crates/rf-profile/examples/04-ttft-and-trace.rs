//! Turns the spans of a program into a TTFT breakdown and a timeline for Perfetto.
//!
//! `cargo run -p rf-profile --example 04-ttft-and-trace`

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::hint::black_box;
use std::time::Duration;

use rf_profile::ttft::TtftBreakdown;
use rf_profile::{Error, SpanRecorder, Trace};
use tracing_subscriber::layer::SubscriberExt;

fn main() -> Result<(), Error> {
    let (recorder, log) = SpanRecorder::new();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(recorder), first_token);

    let ttft = TtftBreakdown::from_spans(&log.spans());
    println!("{}", ttft.format_table());
    println!("{}", ttft.optimization_summary());
    let target = Duration::from_millis(200);
    println!("TTFT within {target:?}: {:?}\n", ttft.meets_target(target));

    let mut trace = Trace::new();
    trace.add_spans("CPU", &log.spans());
    let path = std::env::temp_dir().join("rf-profile-trace.json");
    trace.save(&path)?;
    println!("open {} in https://ui.perfetto.dev", path.display());
    Ok(())
}

/// Does some work in the phases of an engine.
fn first_token() {
    tracing::info_span!("tokenize").in_scope(|| work(100));
    let prefill = tracing::info_span!("prefill", tokens = 512).entered();
    for layer in 0..4 {
        tracing::debug_span!("layer", layer).in_scope(|| work(1000));
    }
    drop(prefill);
    tracing::info_span!("sample").in_scope(|| work(50));
}

fn work(amount: u64) {
    black_box((0..amount * 1000).map(black_box).sum::<u64>());
}
