//! `cargo xtask estimates`: how far estimated times are from published speeds.
//!
//! `benchmarks/peers/count_llama_cpp.py` counted what llama.cpp's kernels cost; this module sums
//! the estimates of a token and compares them with the speeds that others published.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rf_emu::cost::{Assumptions, Card, Cards, Costs, Estimate, LaunchBound};
use serde::Deserialize;

/// The layers of Llama 2 7B.
const LAYERS: u32 = 32;

/// The tokens of a prompt.
const PROMPT: f64 = 512.0;

/// The products of a token: names in the file of costs, and how often they run.
const DECODE: [(&str, u32); 4] = [
    ("vector Q4_0 4096x4096", 4 * LAYERS),
    ("vector Q4_0 gate and up 11008x4096", LAYERS),
    ("vector Q4_0 4096x11008", LAYERS),
    ("vector Q6_K 32000x4096", 1),
];

/// The products of a prompt.
const PREFILL: [(&str, u32); 4] = [
    ("matrix Q4_0 4096x4096", 4 * LAYERS),
    ("matrix Q4_0 11008x4096", 2 * LAYERS),
    ("matrix Q4_0 4096x11008", LAYERS),
    ("vector Q6_K 32000x4096", 1),
];

/// The other launches of a layer: quantisation of the inputs of products 6, norms 2, rotations 2,
/// the cache 1, attention 2, sums 2. Beyond the layers: a row of the embedding, a norm, a
/// quantisation.
const OTHER_LAUNCHES: u32 = 15 * LAYERS + 3;

/// A published speed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    card: String,
    /// Tokens per second.
    decode: f64,
    prefill: Option<f64>,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedList {
    published: Vec<Published>,
}

/// The files of the comparison.
struct Data {
    cards: Cards,
    costs: Vec<Costs>,
    published: Vec<Published>,
}

/// Prints the fit and the table of errors.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let data = Data::read(root)?;
    let (memory_share, error) = data.fit()?;
    let mut out = io::stdout().lock();
    let error = error * 100.0;
    writeln!(out, "fitted to decode: {memory_share:.2} of the bandwidth, error {error:.1} %\n")?;
    write!(out, "{}", data.table(&Assumptions::default())?)?;
    Ok(ExitCode::SUCCESS)
}

impl Data {
    fn read(root: &Path) -> Result<Self> {
        let read = |name| {
            let path = root.join("benchmarks/peers").join(name);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let published: PublishedList = toml::from_str(&read("llama_cpp_published.toml")?)?;
        Ok(Self {
            cards: Cards::known()?,
            costs: Costs::parse(&read("llama_cpp_costs.toml")?)?,
            published: published.published,
        })
    }

    /// The estimated time of products and the other launches, and the bound of most of it.
    fn seconds(
        &self,
        card: &Card,
        products: &[(&str, u32)],
        assumptions: &Assumptions,
    ) -> Result<(f64, LaunchBound)> {
        let mut sum: Option<Estimate> = None;
        for &(name, times) in products {
            let mut of_family = self.costs.iter().filter(|costs| costs.kernel == name);
            let one = of_family.find_map(|costs| card.estimate(costs, assumptions));
            let one = one.with_context(|| format!("no costs of '{name}' for {}", card.name))?;
            let all = Estimate { seconds: one.seconds * f64::from(times), bound: one.bound };
            sum = Some(sum.map_or(all, |sum| sum.with(all)));
        }
        let sum = sum.context("no products")?;
        let other = f64::from(OTHER_LAUNCHES) * assumptions.launch_seconds;
        Ok((sum.seconds + other, sum.bound))
    }

    /// The share of the bandwidth, in hundredths, with the smallest mean square of the logarithm of
    /// the ratio to the published speeds of decode, and the root of that mean.
    fn fit(&self) -> Result<(f64, f64)> {
        let mut best = (1.0, f64::INFINITY);
        for share in 30..=100 {
            let memory_share = f64::from(share) / 100.0;
            let assumptions = Assumptions { memory_share, ..Assumptions::default() };
            let mut squares = 0.0;
            for published in &self.published {
                let card = self.cards.named(&published.card)?;
                let (seconds, _) = self.seconds(card, &DECODE, &assumptions)?;
                squares += (published.decode * seconds).ln().powi(2);
            }
            let error = (squares / self.published.len() as f64).sqrt();
            if error < best.1 {
                best = (memory_share, error);
            }
        }
        Ok(best)
    }

    /// The table of docs/emulator.md.
    fn table(&self, assumptions: &Assumptions) -> Result<String> {
        let mut text = "| card | decode: estimate | published | error | prefill: estimate | bound \
                        | published | error | source |\n|---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
        for Published { card: name, decode, prefill, source } in &self.published {
            let card = self.cards.named(name)?;
            let (seconds, _) = self.seconds(card, &DECODE, assumptions)?;
            let estimate = 1.0 / seconds;
            let error = percent(estimate, *decode);
            write!(text, "| {name} | {estimate:.0} | {decode:.0} | {error} ")?;
            let (seconds, bound) = self.seconds(card, &PREFILL, assumptions)?;
            let estimate = PROMPT / seconds;
            write!(text, "| {estimate:.0} | {} ", bound.name())?;
            match prefill {
                Some(prefill) => write!(text, "| {prefill:.0} | {} ", percent(estimate, *prefill))?,
                None => text.push_str("| none | "),
            }
            writeln!(text, "| {source} |")?;
        }
        Ok(text)
    }
}

/// The error of an estimate relative to the published value.
fn percent(estimate: f64, published: f64) -> String {
    format!("{:+.0} %", (estimate / published - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Data {
        Data::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap()
    }

    #[test]
    fn the_documented_table_is_that_of_the_committed_counts() {
        let table = data().table(&Assumptions::default()).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/emulator.md");
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(&table), "docs/emulator.md needs this table:\n{table}");
    }

    #[test]
    fn the_default_share_of_the_bandwidth_is_the_fitted_one() {
        let (share, error) = data().fit().unwrap();
        assert!((share - Assumptions::default().memory_share).abs() < 1e-9, "{share}");
        assert!(error < 0.1, "{error}");
    }
}
