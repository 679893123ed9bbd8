//! The costs of the kernels of a program: annotated instructions, estimated times.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rf_emu::cost::{Assumptions, Card, Cards, Costs, Estimate};

/// The file of the costs in the folder that the stand-in writes.
pub(super) const FILE: &str = "costs.toml";

/// Prints the instructions of the kernels whose names contain `annotate`, and the estimates for the
/// card `estimate`; an empty text stands for all.
pub(super) fn print(folder: &Path, annotate: Option<&str>, estimate: Option<&str>) -> Result<()> {
    let read = |name| {
        let path = folder.join(name);
        let missing = || format!("{}: the program ended without writing costs", path.display());
        fs::read_to_string(&path).with_context(missing)
    };
    let costs =
        Costs::parse(&read(FILE)?).with_context(|| folder.join(FILE).display().to_string())?;
    let mut out = io::stdout().lock();
    if let Some(kernel) = annotate {
        let listing = read("listing.txt")?;
        let chosen: Vec<_> = sections(&listing).filter(|(name, _)| name.contains(kernel)).collect();
        ensure!(!chosen.is_empty(), "no kernel that ran has '{kernel}' in its name");
        for (_, section) in chosen {
            writeln!(out, "{section}")?;
        }
    }
    if let Some(card) = estimate {
        let cards = Cards::known()?;
        let chosen: Vec<_> = if card.is_empty() {
            cards.iter().filter(|card| costs.iter().any(|costs| fits(card, costs))).collect()
        } else {
            vec![cards.named(card)?]
        };
        write!(out, "{}", table(&costs, &chosen)?)?;
    }
    writeln!(out, "costs of kernels: {}", folder.join("costs.html").display())?;
    Ok(())
}

/// The kernels of a listing: name and text.
fn sections(listing: &str) -> impl Iterator<Item = (&str, &str)> {
    listing.split("\n\n").filter_map(|section| {
        let name = section.strip_prefix("kernel ")?.split_once(" (")?.0;
        Some((name, section))
    })
}

fn fits(card: &Card, costs: &Costs) -> bool {
    card.estimate(costs, &Assumptions::default()).is_some()
}

/// A table of estimated times per kernel and card.
fn table(costs: &[Costs], cards: &[&Card]) -> Result<String> {
    let names: Vec<_> = cards.iter().map(|card| card.name.as_str()).collect();
    let assumptions = Assumptions::default();
    // The estimates of each kernel in the order of the cards.
    let mut kernels: BTreeMap<&str, (u64, Vec<Option<Estimate>>)> = BTreeMap::new();
    for costs in costs {
        let (launches, sums) =
            kernels.entry(&costs.kernel).or_insert_with(|| (0, vec![None; cards.len()]));
        *launches += costs.launches;
        for (sum, card) in sums.iter_mut().zip(cards) {
            let estimate = card.estimate(costs, &assumptions).with_context(|| {
                format!(
                    "{} is of another family than the code that ran ({})",
                    card.name, costs.arch
                )
            })?;
            *sum = Some(match *sum {
                None => estimate,
                Some(sum) => sum.with(estimate),
            });
        }
    }
    let mut rows: Vec<_> = kernels.into_iter().collect();
    let seconds = |estimate: &Option<Estimate>| estimate.map_or(0.0, |estimate| estimate.seconds);
    rows.sort_by(|left, right| {
        let first = |row: &(_, (_, Vec<_>))| row.1.1.first().map_or(0.0, seconds);
        first(right).total_cmp(&first(left))
    });
    let mut text = format!("estimate, not measured, in ms: {}\n", names.join(", "));
    write!(text, "{:>9}", "launches")?;
    for name in &names {
        write!(text, " {name:>24}")?;
    }
    writeln!(text, "  kernel")?;
    let mut totals = vec![0.0; cards.len()];
    for (kernel, (launches, estimates)) in rows {
        write!(text, "{launches:>9}")?;
        for (total, estimate) in totals.iter_mut().zip(&estimates) {
            *total += seconds(estimate);
            let bound = estimate.map_or("", |estimate| estimate.bound.name());
            write!(text, " {:>10.3} {bound:<13}", seconds(estimate) * 1e3)?;
        }
        writeln!(text, "  {kernel}")?;
    }
    write!(text, "{:>9}", "")?;
    for total in totals {
        write!(text, " {:>10.3} {:<13}", total * 1e3, "")?;
    }
    writeln!(text, "  estimate of all kernels")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: &str = r#"
[[launches]]
kernel = "small"
arch = "gfx1201"
workgroups = 64
waves = 1
launches = 2
instructions = 100
requested_bytes = 0
cache_bytes = 0
group_bytes = 0
memory_bytes = 0
conflict_cycles = 0
[launches.cycles]
vector = 0
transcendental = 0
matrix = 0
scalar = 0
scalar_memory = 0
vector_memory = 0
lds = 0
branch = 0
other = 0
"#;

    #[test]
    fn tables_call_every_time_an_estimate() {
        let small = Costs::parse(COSTS).unwrap();
        let large =
            COSTS.replace("small", "large").replace("memory_bytes = 0", "memory_bytes = 64000000");
        let costs = [small, Costs::parse(&large).unwrap()].concat();
        let cards = Cards::known().unwrap();
        let card = cards.named("RX 9070 XT").unwrap();
        let text = table(&costs, &[card]).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "estimate, not measured, in ms: RX 9070 XT");
        assert!(lines[2].contains(" memory ") && lines[2].ends_with("large"), "{text}");
        assert!(lines[3].ends_with("small"), "{text}");
        assert!(lines[4].ends_with("estimate of all kernels"), "{text}");
        let error = table(&costs, &[cards.named("RX 7600").unwrap()]).unwrap_err().to_string();
        assert!(error.contains("RX 7600 is of another family"), "{error}");
    }

    #[test]
    fn listings_are_split_at_kernels() {
        let listing = "kernel a (gfx1100), 1 launches\nx\n\nkernel b (gfx1100), 2 launches\ny\n";
        let names: Vec<_> = sections(listing).map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
