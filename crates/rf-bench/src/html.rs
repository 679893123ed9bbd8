//! The report as one HTML file: nothing is fetched, plots are SVG, and all of it is there with scripts off.
//!
//! Text from files (names, hardware, notes) goes through [`text`] on its way into the page.

mod distribution;
mod figures;
mod history;
mod phases;
mod roofline;
mod scale;
mod summary;
mod tables;

use std::fmt::{self, Write};

use crate::Suite;
use crate::results::Report;

/// Adds to a page; writing into a String cannot fail.
macro_rules! put {
    ($out:expr, $($arguments:tt)*) => { _ = write!($out, $($arguments)*) };
}
use put;

/// The page.
pub fn render(report: &Report<'_>) -> String {
    let run = report.run;
    let mut out = String::new();
    let title = format!("{} · {}", run.hardware.name(run.device), run.timestamp);
    put!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    // Should a name get past the escaping, it could still load and send nothing.
    put!(
        out,
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n"
    );
    put!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    put!(out, "<meta name=\"color-scheme\" content=\"light dark\">\n");
    put!(out, "<title>ROCmForge benchmarks · {}</title>\n", text(&title));
    put!(out, "<style>\n{}</style>\n</head>\n<body>\n", include_str!("html/style.css"));
    summary::header(&mut out, report);
    put!(out, "<main>\n");
    summary::at_a_glance(&mut out, report);
    if let Some(comparison) = report.comparison {
        tables::comparison(&mut out, comparison);
    }
    tables::targets(&mut out, report.targets);
    roofline::section(&mut out, run);
    for suite in suites(report) {
        tables::suite(&mut out, run, suite);
    }
    history::section(&mut out, report);
    tables::unmeasured(&mut out, run);
    summary::environment(&mut out, run);
    put!(out, "</main>\n");
    summary::footer(&mut out);
    put!(out, "<script>\n{}</script>\n</body>\n</html>\n", include_str!("html/filter.js"));
    out
}

/// The suites that ran, in the order of their results.
fn suites(report: &Report<'_>) -> Vec<Suite> {
    let mut suites: Vec<Suite> = Vec::new();
    for measured in &report.run.results {
        if !suites.contains(&measured.suite) {
            suites.push(measured.suite);
        }
    }
    suites
}

/// A suite's name in headings and anchors.
fn suite_name(suite: Suite) -> &'static str {
    match suite {
        Suite::Matmul => "matmul",
        Suite::Attention => "attention",
        Suite::Dequant => "dequant",
        Suite::Inference => "inference",
        Suite::Memory => "memory",
        Suite::Launch => "launch",
    }
}

/// Text that means itself in HTML, in attributes too.
fn text(text: &str) -> Escaped<'_> {
    Escaped(text)
}

/// A benchmark's name, which may break behind its slashes.
fn name(name: &str) -> String {
    text(name).to_string().replace('/', "/<wbr>")
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Not allowed in HTML, nor of use to a reader.
                c if c.is_control() && c != '\n' && c != '\t' => f.write_char('\u{FFFD}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rf_graph::OpCost;
    use rf_profile::baseline::{
        Better, Build, DeviceKind, Hardware, Metrics, ModelId, Timestamp, Verdict,
    };
    use rf_profile::roofline::Limits;

    use super::*;
    use crate::results::{
        FORMAT, Measured, PhaseTime, Run, Skipped, TargetCheck, TargetOutcome, VERSION, roofline,
    };

    const HOSTILE: &str = "</script><img src=x onerror=\"alert(1)\">&'";

    fn measured(name: &str, suite: Suite, rounds: &[Vec<f64>], cost: OpCost) -> Measured {
        Measured {
            name: name.to_owned(),
            suite,
            metrics: Metrics::from_rounds("ms", Better::Lower, rounds).unwrap(),
            rounds: rounds.to_vec(),
            cost,
            roofline: None,
            phases: Vec::new(),
            metadata: [("note".to_owned(), HOSTILE.to_owned())].into(),
        }
    }

    /// A run in which everything stands that a page can show; names are hostile.
    fn run(ms: f64, day: i64) -> Run {
        let limits = Limits {
            source: "a test".to_owned(),
            bandwidth_bytes_per_s: Some(20e9),
            f32_operations_per_s: Some(100e9),
            int8_operations_per_s: Some(400e9),
            ..Limits::default()
        };
        let cost = OpCost { bytes: 9_000_000, f32_operations: 0, int8_operations: 33_000_000 };
        let rounds = [vec![ms, ms * 1.02, ms * 0.99], vec![ms * 1.01, ms, ms * 1.3]];
        let mut matmul = measured("matmul/q4_0/4096x4096/rows=1", Suite::Matmul, &rounds, cost);
        matmul.roofline = roofline(&limits, cost, ms / 1e3);
        let mut prompt =
            measured(&format!("inference/{HOSTILE}"), Suite::Inference, &rounds, OpCost::default());
        prompt.phases = vec![
            PhaseTime { name: "prefill".to_owned(), ms: 0.9 * ms },
            PhaseTime { name: HOSTILE.to_owned(), ms: 0.1 * ms },
        ];
        Run {
            format: FORMAT.to_owned(),
            version: VERSION,
            timestamp: Timestamp::from_unix(86_400 * day),
            hardware: Hardware { cpu: HOSTILE.to_owned(), cpu_threads: 2, ..Hardware::default() },
            build: Build { revision: format!("rev{day}"), ..Build::default() },
            device: DeviceKind::Cpu,
            backend: "AVX-512 VNNI, 2 threads".to_owned(),
            model: Some(ModelId { name: HOSTILE.to_owned(), hash: "abc".to_owned() }),
            quick: true,
            limits,
            results: vec![matmul, prompt],
            skipped: vec![Skipped {
                name: "launch/graph".to_owned(),
                suite: Suite::Launch,
                why: HOSTILE.to_owned(),
            }],
            missing: vec![HOSTILE.to_owned()],
            monitor: Vec::new(),
        }
    }

    fn page() -> String {
        let (before, now) = (run(1.0, 100), run(2.0, 200));
        let comparison = before.baselines().compare(&now.baselines(), &now.hardware, 0.1);
        assert_eq!(comparison.count(Verdict::Regression), 2);
        let targets = [TargetCheck {
            name: "TTFT at 512 tokens".to_owned(),
            wanted: "< 200 ms".to_owned(),
            needs: HOSTILE.to_owned(),
            outcome: TargetOutcome::NotMeasured(HOSTILE.to_owned()),
        }];
        let history = [before.without_samples()];
        render(&Report {
            run: &now,
            comparison: Some(&comparison),
            targets: &targets,
            history: &history,
        })
    }

    #[test]
    fn a_page_has_every_part_and_says_verdicts_in_words() {
        let page = page();
        for part in [
            "id=\"comparison\"",
            "id=\"targets\"",
            "id=\"roofline\"",
            "id=\"matmul\"",
            "id=\"inference\"",
            "id=\"history\"",
            "id=\"unmeasured\"",
            "id=\"environment\"",
            ">Regression</",
            ">NOT MEASURED</",
            "matmul/q4_0/4096x4096/rows=1",
            "AVX-512 VNNI, 2 threads",
            "ended early",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn names_from_files_stay_text() {
        let page = page();
        assert!(!page.contains("<img") && !page.contains("onerror=\""));
        // Our own script alone.
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(
            page.contains(
                "&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;&#39;"
            )
        );
        assert_eq!(text("a\u{0}b").to_string(), "a\u{FFFD}b");
    }

    #[test]
    fn a_page_fetches_nothing() {
        let page = page();
        for fetch in ["http://", "https://", "src=\"", "url(", "@import", "<link"] {
            // The namespace of SVG is a name, not an address; inline SVG needs none.
            assert!(!page.contains(fetch), "{fetch}");
        }
    }

    #[test]
    fn tags_are_closed_in_order() {
        const VOID: [&str; 2] = ["meta", "wbr"];
        let page = page();
        let (before, rest) = page.split_once("<style>").unwrap();
        let body = rest.split_once("</style>").unwrap().1;
        let body = body.split_once("<script>").unwrap().0;
        let markup = format!("{before}{body}");
        let mut open: Vec<&str> = Vec::new();
        // The first piece stands before any tag, the second is the type of the document.
        for tag in markup.split('<').skip(2) {
            let tag = tag.split('>').next().unwrap();
            let name = tag.split([' ', '\n']).next().unwrap();
            if let Some(closed) = name.strip_prefix('/') {
                assert_eq!(open.pop(), Some(closed), "</{closed}>");
            } else if !tag.ends_with('/') && !VOID.contains(&name) {
                open.push(name);
            }
        }
        assert_eq!(open, ["html", "body"]);
    }

    #[test]
    fn an_empty_run_is_a_page() {
        let mut empty = run(1.0, 1);
        empty.results.clear();
        empty.limits = Limits::default();
        let page = render(&Report { run: &empty, comparison: None, targets: &[], history: &[] });
        assert!(page.contains("nothing was measured"), "{page}");
        for figure in ["NaN", "inf"] {
            assert!(
                !page.contains(&format!("\"{figure}")) && !page.contains(&format!(">{figure}"))
            );
        }
    }
}
