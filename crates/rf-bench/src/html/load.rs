//! The page of a benchmark of servers: throughput and latencies of each load, and the shares of
//! requests that were served within a time.

use std::ops::Range;
use std::slice;

use askama::Template;
use plotters::prelude::{ChartBuilder, Color, LineSeries};
use rf_profile::baseline::{DeviceKind, Hardware};

use super::plot::palette::{ACCENT, ATTENTION, MUTED, RULE};
use super::plot::{self, Area, Drawn, text_style};
use super::units::{DASH, FormattedValue};
use crate::Error;
use crate::serve::{
    Load, LoadRun, RequestTimes, ServeComparison, ServerOptions, SideResults, shared_prefix,
};

const SIZE: (u32, u32) = (560, 260);

/// The most points of a line. More do not show at this size.
const MOST_POINTS: usize = 400;

/// Times of a request in seconds.
type Times = fn(&RequestTimes) -> &[f64];

/// The data of `templates/load.html`.
#[derive(Template)]
#[template(path = "load.html")]
struct Page<'a> {
    hardware: String,
    facts: String,
    model: &'a str,
    loads: Vec<LoadSection>,
}

/// The results of a load.
struct LoadSection {
    id: String,
    name: String,
    requests: String,
    sides: Vec<Side>,
    /// Plots with their titles.
    plots: Vec<(&'static str, String)>,
    notes: Vec<String>,
}

/// The results of a server: columns of a table.
struct Side {
    name: &'static str,
    class: &'static str,
    throughput: String,
    first: Vec<String>,
    gaps: Vec<String>,
}

/// Renders the page of a benchmark of servers.
///
/// # Errors
///
/// [`Error::Report`] if a plot or the template fails.
pub fn render_loads(
    comparisons: &[ServeComparison],
    model: &str,
    options: &ServerOptions,
    hardware: &Hardware,
) -> Result<String, Error> {
    let device = if options.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
    let facts = [
        hardware.os.clone(),
        format!("{} threads", options.threads),
        format!("{} sequences at a time", options.slots),
    ];
    let sections = (1..).zip(comparisons).map(|(number, comparison)| section(number, comparison));
    let page = Page {
        hardware: hardware.name(device),
        facts: facts.join(" · "),
        model,
        loads: sections.collect::<Result<_, _>>()?,
    };
    let html = page.render().map_err(|error| Error::Report(error.to_string()))?;
    Ok(super::printable(&html))
}

fn section(number: usize, comparison: &ServeComparison) -> Result<LoadSection, Error> {
    let ServeComparison { load, ours, theirs } = comparison;
    let sides = [("rf-cli", "s-ours", ours), ("llama-server", "s-theirs", theirs)];
    let measured = || sides.iter().filter(|(_, _, runs)| !runs.is_empty());
    let kinds: [(_, Times); 3] = [
        ("Time to the first token", |request| slice::from_ref(&request.first_token_s)),
        ("Time between tokens", |request| &request.gaps_s),
        ("Time of a request", |request| slice::from_ref(&request.total_s)),
    ];
    let sorted = |runs: &[LoadRun], times: Times| {
        let requests = runs.iter().flat_map(|run| &run.requests);
        let mut times: Vec<f64> = requests.flat_map(times).copied().collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let plots = kinds.into_iter().filter_map(|(title, times)| {
        let times = sides.map(|(_, _, runs)| sorted(runs, times));
        let longest = times.iter().flatten().copied().fold(0.0, f64::max);
        (longest > 0.0).then(|| Ok((title, cumulative(&times, longest)?)))
    });
    let name = load.arrivals.to_string();
    let notes = measured().filter_map(|(name, _, runs)| {
        shared_prefix(load, runs).map(|text| format!("{name}: {text}"))
    });
    Ok(LoadSection {
        id: format!("load-{number}"),
        requests: describe(load, ours.len()),
        sides: measured().filter_map(|&(name, class, runs)| Side::of(name, class, runs)).collect(),
        plots: plots.collect::<Result<_, Error>>()?,
        notes: notes.collect(),
        name,
    })
}

fn describe(load: &Load, runs: usize) -> String {
    let Load { requests, shared_tokens, prompt_tokens, generated_tokens, .. } = load;
    let shared =
        if *shared_tokens > 0 { format!("{shared_tokens} shared and ") } else { String::new() };
    format!(
        "{runs} runs of {requests} requests: prompts of {shared}{prompt_tokens} tokens, answers of \
         {generated_tokens}"
    )
}

impl Side {
    fn of(name: &'static str, class: &'static str, runs: &[LoadRun]) -> Option<Self> {
        let SideResults { throughput, first, gaps } = SideResults::of(runs)?;
        let time = |seconds: &f64| {
            if *seconds > 0.0 {
                FormattedValue::new(*seconds, "s").joined()
            } else {
                DASH.to_owned()
            }
        };
        Some(Self {
            name,
            class,
            throughput: format!("{throughput:.1}"),
            first: first.iter().map(time).collect(),
            gaps: gaps.iter().map(time).collect(),
        })
    }
}

/// Draws the share of times below each time, a line per server. The times are sorted.
fn cumulative(times: &[Vec<f64>], longest_s: f64) -> Result<String, Error> {
    let ms = |seconds: f64| seconds * 1e3;
    let plot = plot::draw(SIZE, |area| draw(area, times, 0.0..ms(longest_s) * 1.02))?;
    Ok(plot.svg)
}

fn draw(area: &Area<'_>, times: &[Vec<f64>], x: Range<f64>) -> Drawn<Vec<plot::Mark>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).margin_right(20).x_label_area_size(40).y_label_area_size(48);
    let mut chart = builder.build_cartesian_2d(x, 0.0..1.0)?;
    chart
        .configure_mesh()
        .bold_line_style(RULE)
        .light_line_style(RULE.mix(0.0))
        .axis_style(RULE)
        .label_style(text_style(13, MUTED))
        .axis_desc_style(text_style(13, MUTED))
        .x_labels(6)
        .y_labels(5)
        .x_desc("ms")
        .y_label_formatter(&|share| format!("{:.0} %", 100.0 * share))
        .draw()?;
    for (times, colour) in times.iter().zip([ACCENT, ATTENTION]) {
        let count = times.len();
        let step = count.div_ceil(MOST_POINTS).max(1);
        let last = count.checked_sub(1);
        let shown = (0..count).filter(|index| index % step == 0 || Some(*index) == last);
        let points = shown.flat_map(|index| {
            let x = 1e3 * times[index];
            let share = |index: usize| index as f64 / count as f64;
            [(x, share(index)), (x, share(index + 1))]
        });
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::Arrivals;

    const HOSTILE: &str = "</script><img src=x onerror=\"alert(1)\">&'";

    fn page(theirs: Vec<LoadRun>) -> String {
        let load = Load {
            arrivals: Arrivals::Concurrency(2),
            requests: 3,
            shared_tokens: 6,
            prompt_tokens: 4,
            generated_tokens: 4,
        };
        let options = ServerOptions::new(2, false, &[load]);
        let hardware = Hardware { cpu: HOSTILE.to_owned(), ..Hardware::default() };
        let comparison = ServeComparison {
            load,
            ours: vec![LoadRun::sample(2.0), LoadRun::sample(2.0)],
            theirs,
        };
        render_loads(&[comparison], HOSTILE, &options, &hardware).unwrap()
    }

    #[test]
    fn a_page_has_the_results_and_plots_of_every_load() {
        let page = page(vec![LoadRun::sample(1.0)]);
        for part in [
            "<h2>2 clients</h2>",
            "2 runs of 3 requests: prompts of 6 shared and 4 tokens, answers of 4",
            ">rf-cli</td>",
            ">llama-server</td>",
            // 12 tokens in a second, and in two.
            ">12.0</td>",
            ">6.0</td>",
            ">50.00 ms</td>",
            "6 shared tokens",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("<svg").count(), 3);
        for colour in ["#2456C7", "#C8641B"] {
            let lines = page.matches(&format!("stroke=\"{colour}\" stroke-width")).count();
            assert_eq!(lines, 3, "a line per server and plot");
        }
    }

    #[test]
    fn a_page_loads_nothing_and_escapes_names() {
        let page = page(Vec::new());
        assert!(!page.contains("llama-server</td>") && !page.contains("<img"), "{page}");
        assert!(page.contains("&#60;/script&#62;&#60;img"));
        for fetch in ["http://", "https://", "src=\"", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(fetch), "{fetch}");
        }
        assert!(!page.contains("NaN"));
    }
}
