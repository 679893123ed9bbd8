//! The report as one self-contained HTML file: it loads nothing, and all values are visible without
//! scripts.
//!
//! The templates are in `templates/`. They escape all text; only the SVG of the plots is inserted
//! as it is, and plotters escapes the text in it.
//!
//! askama checks fields and templates at compile time and escapes by default; `rf-template`, which
//! renders chat templates, does neither. plotters writes no CSS classes, so each colour of a plot
//! has a rule in `report.css`.

mod distribution;
mod history;
mod load;
mod plot;
mod roofline;
mod summary;
mod tables;
mod units;

use askama::Template;

pub use self::load::render_loads;

use self::history::RunHistory;
use self::roofline::RooflinePlot;
use self::summary::Card;
use self::tables::{ComparisonTable, SuiteTable};
use crate::Error;
use crate::results::{Report, Run, TargetCheck, TargetOutcome};

/// The data of `templates/report.html` and the templates that it includes.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    hardware: String,
    subtitle: String,
    run: &'a Run,
    cards: Vec<Card>,
    comparison: Option<ComparisonTable<'a>>,
    targets: &'a [TargetCheck],
    roofline: Option<RooflinePlot>,
    suites: Vec<SuiteTable>,
    history: RunHistory,
    environment: Vec<(String, String)>,
}

/// Renders the page.
///
/// # Errors
///
/// [`Error::Report`] if a plot or a template fails.
pub fn render(report: &Report<'_>) -> Result<String, Error> {
    let run = report.run;
    let suites = run.suites().into_iter().map(|suite| tables::suite(run, suite));
    let page = Page {
        hardware: run.hardware.name(run.device),
        subtitle: summary::subtitle(run),
        run,
        cards: summary::cards(report),
        comparison: report.comparison.map(tables::comparison),
        targets: report.targets,
        roofline: roofline::roofline(run)?,
        suites: suites.collect::<Result<_, _>>()?,
        history: history::history(report)?,
        environment: summary::environment(run),
    };
    let html = page.render().map_err(|error| Error::Report(error.to_string()))?;
    Ok(printable(&html))
}

/// Replaces the control characters that HTML does not allow.
fn printable(html: &str) -> String {
    let is_invalid = |c: char| c.is_control() && c != '\n' && c != '\t';
    html.replace(is_invalid, "\u{FFFD}")
}

#[cfg(test)]
mod tests {
    use rf_oracle::rf_graph::OpCost;
    use rf_profile::baseline::{
        Better, Build, DeviceKind, Hardware, Metrics, ModelId, Timestamp, Verdict,
    };
    use rf_profile::roofline::MachineLimits;

    use super::*;
    use crate::Suite;
    use crate::results::{self, FORMAT, Measured, PhaseTime, Skipped, VERSION};

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

    /// A run with every part that a page can show. Its names are hostile.
    fn run(ms: f64, day: i64) -> Run {
        let limits = MachineLimits {
            source: "a test".to_owned(),
            bandwidth_bytes_per_s: Some(20e9),
            f32_operations_per_s: Some(100e9),
            int8_operations_per_s: Some(400e9),
            ..MachineLimits::default()
        };
        let cost = OpCost { bytes: 9_000_000, f32_operations: 0, int8_operations: 33_000_000 };
        let rounds = [vec![ms, ms * 1.02, ms * 0.99], vec![ms * 1.01, ms, ms * 1.3]];
        let mut matmul = measured("matmul/q4_0/4096x4096/rows=1", Suite::Matmul, &rounds, cost);
        matmul.roofline = results::roofline(&limits, cost, ms / 1e3);
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
        let report = Report {
            run: &now,
            comparison: Some(&comparison),
            targets: &targets,
            history: &history,
        };
        render(&report).unwrap()
    }

    #[test]
    fn a_page_has_every_part() {
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
            ">NOT MEASURED</",
            "matmul/q4_0/4096x4096/rows=1",
            "AVX-512 VNNI, 2 threads",
            "The run was interrupted",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    /// Each row of the comparison has the benchmark's name and its verdict in words.
    #[test]
    fn every_benchmark_has_its_verdict() {
        let page = page();
        let start = page.find("id=\"comparison\"").unwrap();
        let section = page[start..].split("</section>").next().unwrap();
        let rows: Vec<String> =
            section.split("<tr>").skip(2).map(|row| row.replace("<wbr>", "")).collect();
        assert_eq!(rows.len(), 2, "{section}");
        for name in ["matmul/q4_0/4096x4096/rows=1", "inference/&#60;/script"] {
            let row = rows.iter().find(|row| row.contains(name)).unwrap();
            assert!(row.contains(">Regression</span>") && row.contains("+100 %"), "{row}");
        }
        assert!(section.contains("2 <span class=\"badge v-Regression\">Regression</span>"));
    }

    #[test]
    fn names_from_files_are_escaped() {
        let page = page();
        assert!(!page.contains("<img") && !page.contains("onerror=\""));
        assert_eq!(page.matches("</script>").count(), 1, "the page has one script");
        let escaped = "&#60;/script&#62;&#60;img src=x onerror=&#34;alert(1)&#34;&#62;&#38;&#39;";
        assert!(page.contains(escaped));
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = page();
        for fetch in ["http://", "https://", "src=\"", "url(", "@import", "<link"] {
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
        // The first piece precedes all tags, and the second one is the document type.
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
    fn control_characters_are_replaced() {
        let mut run = run(1.0, 1);
        run.backend = "a\u{0}b".to_owned();
        let report = Report { run: &run, comparison: None, targets: &[], history: &[] };
        let page = render(&report).unwrap();
        assert!(page.contains("a\u{FFFD}b") && !page.contains('\u{0}'));
    }

    #[test]
    fn an_empty_run_is_a_page() {
        let mut empty = run(1.0, 1);
        empty.results.clear();
        empty.limits = MachineLimits::default();
        let report = Report { run: &empty, comparison: None, targets: &[], history: &[] };
        let page = render(&report).unwrap();
        assert!(page.contains("0 <small>benchmarks</small>"), "{page}");
        assert!(page.contains("No roofline:"));
        for figure in ["NaN", "inf"] {
            assert!(
                !page.contains(&format!("\"{figure}")) && !page.contains(&format!(">{figure}"))
            );
        }
    }
}
