//! The header, the summary and the environment of a run.

use rf_profile::baseline::Verdict;

use super::units::{FormattedValue, rate};
use crate::Suite;
use crate::results::{GpuWatch, Measured, Report, Run, TargetOutcome};

/// A value of the summary.
pub(super) struct Card {
    pub(super) label: &'static str,
    pub(super) value: FormattedValue,
    /// The class for colours, or nothing.
    pub(super) class: &'static str,
}

/// The line below the title.
pub(super) fn subtitle(run: &Run) -> String {
    let mut facts = vec![run.backend.clone(), run.timestamp.to_string().replace(['T', 'Z'], " ")];
    if !run.build.revision.is_empty() {
        facts.push(format!("revision {}", run.build.revision));
    }
    if run.quick {
        facts.push("quick subset".to_owned());
    }
    facts.iter().map(|fact| fact.trim()).collect::<Vec<_>>().join(" · ")
}

/// The most important values of a report.
pub(super) fn cards(report: &Report<'_>) -> Vec<Card> {
    let run = report.run;
    let card = |label, value| Card { label, value, class: "" };
    let mut cards =
        vec![card("measured", FormattedValue::text(run.results.len().to_string(), "benchmarks"))];
    if let Some(comparison) = report.comparison {
        let regressions = comparison.count(Verdict::Regression);
        let improved = comparison.count(Verdict::Improved);
        let inconclusive = comparison.count(Verdict::Inconclusive);
        let others = format!("regressions, {improved} improved, {inconclusive} inconclusive");
        let value = FormattedValue::text(regressions.to_string(), others);
        let class = match (regressions, improved) {
            (1.., _) => "bad",
            (_, 1..) => "good",
            _ => "",
        };
        cards.push(Card { label: "comparison with the baseline", value, class });
    }
    if !report.targets.is_empty() {
        let outcomes = || report.targets.iter().map(|target| &target.outcome);
        let failed = outcomes().filter(|o| matches!(o, TargetOutcome::Fail(_))).count();
        let passed = outcomes().filter(|o| matches!(o, TargetOutcome::Pass(_))).count();
        let value = FormattedValue::text(failed.to_string(), format!("failed, {passed} passed"));
        cards.push(Card { label: "targets", value, class: if failed > 0 { "bad" } else { "" } });
    }
    for (label, measured) in headlines(run) {
        let value = measured.metrics.value();
        cards.extend(
            value.map(|value| card(label, FormattedValue::new(value, &measured.metrics.unit))),
        );
    }
    let bandwidth = run.limits.bandwidth_bytes_per_s;
    cards.extend(bandwidth.map(|limit| card("memory bandwidth limit", rate(limit, "B"))));
    let compute = run.limits.operations_per_s().map(|(_, limit)| limit).reduce(f64::max);
    cards.extend(compute.map(|limit| card("compute limit", rate(limit, "ops"))));
    cards
}

/// The best-known metrics of the inference suite.
fn headlines(run: &Run) -> Vec<(&'static str, &Measured)> {
    let find = |end: &str| {
        let mut inference =
            run.results.iter().filter(|measured| measured.suite == Suite::Inference);
        inference.find(|measured| measured.name.ends_with(end))
    };
    let found = [
        ("decode throughput, batch 1", find("decode/batch=1")),
        ("prefill throughput, 512 tokens", find("prefill/tokens=512")),
        ("TTFT, 512 tokens", find("ttft/tokens=512")),
    ];
    found.into_iter().filter_map(|(label, measured)| Some((label, measured?))).collect()
}

/// Lists the hardware and build that the results depend on, as names and values.
pub(super) fn environment(run: &Run) -> Vec<(String, String)> {
    let (hardware, build) = (&run.hardware, &run.build);
    let threads = match hardware.cpu_threads {
        0 => String::new(),
        threads => format!("{threads} hardware threads"),
    };
    let join = |parts: &[&str]| {
        let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    };
    let memory = match hardware.memory_bytes {
        0 => String::new(),
        bytes => FormattedValue::new(bytes as f64, "bytes").joined(),
    };
    let model = run.model.as_ref().map(|model| format!("{} ({})", model.name, model.hash));
    let facts = [
        ("backend", run.backend.clone()),
        ("CPU", join(&[&hardware.cpu, &hardware.cpu_arch, &threads])),
        ("GPU", join(&[&hardware.gpu, &hardware.gfx])),
        ("GPU runtime", join(&[&hardware.rocm, &hardware.driver])),
        ("memory", memory),
        ("system", hardware.os.clone()),
        ("compiler", hardware.rustc.clone()),
        ("build", join(&[&build.version, &build.revision, &build.profile, &build.features])),
        ("model", model.unwrap_or_default()),
        ("limits", run.limits.source.clone()),
        ("start", run.timestamp.to_string()),
    ];
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
    facts.chain(run.monitor.iter().map(gpu_state)).filter(|(_, value)| !value.is_empty()).collect()
}

/// The state of a GPU during the run.
fn gpu_state(gpu: &GpuWatch) -> (String, String) {
    let peak =
        |bytes| format!("peak memory {}", FormattedValue::new(bytes as f64, "bytes").joined());
    let values = [
        gpu.busy_percent.map(|busy| format!("{busy:.0} % busy")),
        gpu.peak_vram_bytes.map(peak),
        gpu.clock_mhz.map(|clock| format!("{clock:.0} MHz")),
        gpu.temperature_c.map(|temperature| format!("peak {temperature:.0} °C")),
        gpu.power_w.map(|power| format!("{power:.0} W")),
        gpu.throttled.as_ref().map(|evidence| format!("throttled: {evidence}")),
    ];
    let values: Vec<String> = values.into_iter().flatten().collect();
    (format!("GPU {} state", gpu.gpu), format!("{} ({})", values.join(", "), gpu.source))
}
