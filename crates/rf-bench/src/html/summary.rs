//! The head of the page, what stands out, and what was measured on.

use std::fmt::Write;

use rf_profile::baseline::Verdict;

use super::figures::{figure, in_words, rate};
use super::{put, suite_name, suites, text};
use crate::Suite;
use crate::results::{Measured, Report, Run, TargetOutcome};

/// Title, machine, time, and the way through the page.
pub(super) fn header(out: &mut String, report: &Report<'_>) {
    let run = report.run;
    put!(out, "<header><div class=\"inner\">\n<p class=\"kicker\">ROCmForge benchmarks</p>\n");
    put!(out, "<h1>{}</h1>\n", text(&run.hardware.name(run.device)));
    let mut facts = vec![run.backend.clone(), run.timestamp.to_string().replace(['T', 'Z'], " ")];
    if !run.build.revision.is_empty() {
        facts.push(format!("revision {}", run.build.revision));
    }
    if run.quick {
        facts.push("quick subset".to_owned());
    }
    put!(out, "<p class=\"facts\">{}</p>\n<nav>", text(&facts.join(" · ")));
    if report.comparison.is_some() {
        put!(out, "<a href=\"#comparison\">comparison</a>");
    }
    if !report.targets.is_empty() {
        put!(out, "<a href=\"#targets\">targets</a>");
    }
    put!(out, "<a href=\"#roofline\">roofline</a>");
    for suite in suites(report) {
        let name = suite_name(suite);
        put!(out, "<a href=\"#{name}\">{name}</a>");
    }
    put!(
        out,
        "<a href=\"#history\">history</a><a href=\"#environment\">environment</a></nav>\n</div></header>\n"
    );
}

/// A handful of figures.
pub(super) fn at_a_glance(out: &mut String, report: &Report<'_>) {
    let run = report.run;
    if !run.missing.is_empty() {
        put!(
            out,
            "<p class=\"warning\" role=\"status\">This run ended early: {} of its benchmarks were not measured, see <a \
             href=\"#unmeasured\">below</a>.</p>\n",
            run.missing.len()
        );
    }
    put!(out, "<section class=\"cards\" aria-label=\"At a glance\">\n");
    let count = run.results.len();
    let unit = if count == 0 { "nothing was measured" } else { "benchmarks" };
    card(out, "measured", (&count.to_string(), unit), "");
    if let Some(comparison) = report.comparison {
        let (worse, better) =
            (comparison.count(Verdict::Regression), comparison.count(Verdict::Improved));
        let kind = match (worse, better) {
            (1.., _) => "bad",
            (_, 1..) => "good",
            _ => "",
        };
        let (figure, rest) = match worse {
            0 => (better, "better, 0 worse".to_owned()),
            _ => (worse, format!("worse, {better} better")),
        };
        card(out, "against the baseline", (&figure.to_string(), &rest), kind);
    }
    if !report.targets.is_empty() {
        let count = |wanted: fn(&TargetOutcome) -> bool| {
            report.targets.iter().filter(|target| wanted(&target.outcome)).count()
        };
        let missed = count(|outcome| matches!(outcome, TargetOutcome::Fail(_)));
        let met = count(|outcome| matches!(outcome, TargetOutcome::Pass(_)));
        let kind = if missed > 0 { "bad" } else { "" };
        let rest = format!("missed, {met} met");
        card(out, "targets", (&missed.to_string(), &rest), kind);
    }
    for (label, measured) in headlines(run) {
        if let Some(value) = measured.metrics.value() {
            let (value, unit) = figure(value, &measured.metrics.unit);
            card(out, label, (&value, &unit), "");
        }
    }
    if let Some(bandwidth) = run.limits.bandwidth_bytes_per_s {
        limit_card(out, "limit of memory", &rate(bandwidth, "B"));
    }
    let best = run.limits.operations_per_s().map(|(_, limit)| limit).reduce(f64::max);
    if let Some(best) = best {
        limit_card(out, "limit of arithmetic", &rate(best, "ops"));
    }
    put!(out, "</section>\n");
}

/// What people ask for first, of the suite of whole models.
fn headlines(run: &Run) -> Vec<(&'static str, &Measured)> {
    let find = |wanted: &str| {
        run.results
            .iter()
            .find(|measured| measured.suite == Suite::Inference && measured.name.ends_with(wanted))
    };
    let found = [
        ("decode, one sequence", find("decode/batch=1")),
        ("prompt of 512 tokens", find("prefill/tokens=512")),
        ("first token after 512", find("ttft/tokens=512")),
    ];
    found.into_iter().filter_map(|(label, measured)| Some((label, measured?))).collect()
}

fn limit_card(out: &mut String, label: &str, rate: &str) {
    card(out, label, rate.split_once(' ').unwrap_or((rate, "")), "");
}

/// A figure, its unit smaller, and what it is.
fn card(out: &mut String, label: &str, (value, unit): (&str, &str), kind: &str) {
    put!(
        out,
        "<div class=\"card {kind}\"><div class=\"value\">{} <small>{}</small></div><div class=\"label\">{}</div></div>
",
        text(value),
        text(unit),
        text(label)
    );
}

/// Everything that a figure depends on.
pub(super) fn environment(out: &mut String, run: &Run) {
    put!(out, "<section id=\"environment\"><h2>Environment</h2>\n<dl class=\"facts-list\">\n");
    let hardware = &run.hardware;
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
        bytes => in_words(bytes as f64, "bytes"),
    };
    let model = run.model.as_ref().map(|model| format!("{} ({})", model.name, model.hash));
    let build = &run.build;
    for (name, value) in [
        ("computed by", run.backend.clone()),
        ("CPU", join(&[&hardware.cpu, &hardware.cpu_arch, &threads])),
        ("GPU", join(&[&hardware.gpu, &hardware.gfx])),
        ("GPU runtime", join(&[&hardware.rocm, &hardware.driver])),
        ("memory", memory),
        ("system", hardware.os.clone()),
        ("compiler", hardware.rustc.clone()),
        ("build", join(&[&build.version, &build.revision, &build.profile, &build.features])),
        ("model", model.unwrap_or_default()),
        ("limits", run.limits.source.clone()),
        ("begun", run.timestamp.to_string()),
    ] {
        if !value.is_empty() {
            put!(out, "<div><dt>{name}</dt><dd>{}</dd></div>\n", text(&value));
        }
    }
    for watch in &run.monitor {
        let figures = [
            watch.busy_percent.map(|busy| format!("{busy:.0} % busy")),
            watch.peak_vram_bytes.map(|bytes| in_words(bytes as f64, "bytes") + " in use at most"),
            watch.clock_mhz.map(|clock| format!("{clock:.0} MHz")),
            watch.temperature_c.map(|heat| format!("{heat:.0} °C at most")),
            watch.power_w.map(|power| format!("{power:.0} W")),
            watch.throttled.as_ref().map(|how| format!("held back: {how}")),
        ];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        put!(
            out,
            "<div><dt>GPU {} beside the run</dt><dd>{} ({})</dd></div>\n",
            watch.gpu,
            text(&figures.join(", ")),
            text(&watch.source)
        );
    }
    put!(out, "</dl></section>\n");
}

/// How to read it.
pub(super) fn footer(out: &mut String) {
    put!(
        out,
        "<footer><div class=\"inner\"><p>Figures are medians. Spread is the share of the median that a repetition may differ by. \
         “Of limit” is the least time that the measured limits of this machine allow, over the median: 100 % cannot be beaten, but \
         by data that caches serve. Strips show samples relative to their median, a row for each round; an arrow points to \
         samples beyond the scale.</p><p>Made by <code>cargo xtask bench --format html</code>.</p></div></footer>\n"
    );
}
