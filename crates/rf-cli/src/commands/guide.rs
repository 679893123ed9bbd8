//! `rf-cli` without a command: what this machine is, which models fit, and a line to copy.

use std::io::{self, Write};

use anyhow::Result;
use rocmforge::device::{DeviceOptions, Isa, Placement};
use rocmforge::hub::{Product, ShortName};

use crate::terminal::{self, Palette};
use crate::{device, version};

/// Families in the order in which they are proposed.
const PROPOSED: [&str; 4] = ["qwen3.5", "gemma4", "gpt-oss", "llama3.2"];
/// Memory besides the weights: the KV cache of some thousand tokens, the activations, the program.
const BESIDES_GB: f64 = 1.0;

/// Prints the guide.
pub(crate) fn guide() -> Result<()> {
    let placement = device::open(DeviceOptions::default())?;
    let free_bytes = placement.available_memory_bytes()?;
    write_guide(&mut io::stdout().lock(), &placement, free_bytes)?;
    Ok(())
}

fn write_guide(out: &mut impl Write, placement: &Placement, free_bytes: Option<u64>) -> Result<()> {
    let palette = Palette::stdout();
    writeln!(out, "{}\n", palette.bold(format!("ROCmForge {}", version::short())))?;
    match placement.gpus() {
        [] => {
            let threads = std::thread::available_parallelism()?;
            writeln!(out, "  CPU     {}, {threads} threads", Isa::best())?;
            writeln!(out, "  GPU     none is usable: `rf-cli doctor` names the reason")?;
        }
        gpus => {
            for gpu in gpus {
                writeln!(out, "  GPU     {gpu}")?;
            }
        }
    }
    let free = free_bytes.map_or_else(|| "unknown".to_owned(), terminal::bytes);
    writeln!(out, "  Memory  {free} free")?;
    let proposals = proposals(free_bytes);
    if !proposals.is_empty() {
        writeln!(out, "\n{}", palette.bold("Models that fit"))?;
        for name in proposals {
            let command = format!("rf-cli run {name}");
            writeln!(out, "  {command:32}{} GB to download", name.download_gb())?;
        }
    }
    writeln!(
        out,
        "\n{}\n  {:32}chat with the built-in demo model\n  {:32}all models that fit, and their speed\n  \
         {:32}a server with a chat page\n  {:32}all commands",
        palette.bold("Or"),
        "rf-cli run",
        "rf-cli fit",
        "rf-cli serve",
        "rf-cli --help",
    )?;
    Ok(())
}

/// The largest model of each family that fits.
fn proposals(free_bytes: Option<u64>) -> Vec<&'static ShortName> {
    let largest = |family: &&str| {
        let models = ShortName::all().iter().filter(|name| name.family() == *family);
        let text = models
            .filter(|name| name.product() == Product::Text)
            .filter(|name| fits(name, free_bytes));
        text.max_by(|a, b| a.download_gb().total_cmp(&b.download_gb()))
    };
    PROPOSED.iter().filter_map(largest).collect()
}

/// Returns true if a model fits by the size of its download. `rf-cli fit NAME` computes it.
pub(super) fn fits(name: &ShortName, free_bytes: Option<u64>) -> bool {
    let free_gb = free_bytes.map_or(0.0, |bytes| bytes as f64 / 1e9);
    name.download_gb() + BESIDES_GB <= free_gb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_models_that_fit_are_proposed() {
        let names = |gb: u64| -> Vec<&str> {
            proposals(Some(gb * 1_000_000_000)).into_iter().map(ShortName::name).collect()
        };
        assert!(names(1).is_empty());
        assert_eq!(names(8), ["qwen3.5:9b", "gemma4:e4b", "llama3.2:3b"]);
        assert_eq!(names(16), ["qwen3.5:9b", "gemma4:12b", "gpt-oss:20b", "llama3.2:3b"]);
        assert_eq!(proposals(None), Vec::<&ShortName>::new());
        // Every family of the list exists.
        assert_eq!(names(1000).len(), PROPOSED.len());
    }
}
