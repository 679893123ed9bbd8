//! `rf-cli gguf split` and `rf-cli gguf merge`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use rf_convert::{Limit, Split};
use rf_gguf::Gguf;

use super::copied::{copied, failure, without_extension};
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli gguf split`.
#[derive(Debug, Args)]
#[command(after_help = "\
The first part has the metadata. Give any part to a command, and it finds the others in the same folder.

Examples:
  rf-cli gguf split --split-max-size 4G model.gguf
  rf-cli gguf split --split-max-tensors 256 --no-tensor-first-split model.gguf out/model")]
pub(crate) struct SplitArgs {
    /// Split this model
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Write STEM-00001-of-0000N.gguf and so on [default: IN without .gguf]
    #[arg(value_name = "STEM")]
    stem: Option<PathBuf>,
    /// Put at most SIZE bytes of tensors into a part, as in 500M or 4G (powers of 1000). A larger
    /// tensor is alone in its part
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "split_max_tensors")]
    split_max_size: Option<u64>,
    /// Put at most N tensors into a part
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = tensors)]
    split_max_tensors: usize,
    /// Put no tensors into the first part, only the metadata
    #[arg(long)]
    no_tensor_first_split: bool,
    /// Print the parts and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `rf-cli gguf merge`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  rf-cli gguf merge model-00001-of-00003.gguf model.gguf")]
pub(crate) struct MergeArgs {
    /// Merge the model of which this is a part
    #[arg(value_name = "PART")]
    part: PathBuf,
    /// Write it to this file
    #[arg(value_name = "OUT")]
    output: PathBuf,
}

/// Runs `rf-cli gguf split`.
pub(super) fn split(arguments: &SplitArgs) -> Result<()> {
    let gguf = Gguf::open(&arguments.input)?;
    let limit = match arguments.split_max_size {
        Some(bytes) => Limit::Bytes(bytes),
        None => Limit::Tensors(arguments.split_max_tensors),
    };
    let stem = arguments.stem.as_deref().unwrap_or(&arguments.input);
    let stem = without_extension(stem);
    let plan = Split::plan(&gguf, stem, limit, arguments.no_tensor_first_split)
        .map_err(|error| failure(error, &gguf))?;
    if !arguments.dry_run {
        copied(&gguf, |progress| plan.write(progress))?;
    }
    let mut out = io::stdout().lock();
    for part in plan.parts() {
        let (path, bytes) = (shown(part.path), terminal::bytes(part.bytes));
        writeln!(out, "{path}  {:>5} tensors {bytes:>12}", part.tensors)?;
    }
    Ok(())
}

/// Runs `rf-cli gguf merge`.
pub(super) fn merge(arguments: &MergeArgs) -> Result<()> {
    let gguf = Gguf::open(&arguments.part)?;
    copied(&gguf, |progress| rf_convert::merge(&gguf, &arguments.output, progress))?;
    terminal::note(format_args!(
        "{}: {} tensors from {} parts",
        Palette::stderr().bold(shown(&arguments.output)),
        gguf.tensors().len(),
        gguf.paths().len()
    ));
    Ok(())
}

fn shown(path: &Path) -> String {
    terminal::shown(&path.display().to_string())
}

/// Parses a size as llama-gguf-split does: powers of 1000.
fn size(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "expected a whole number with M or G, as in 500M or 4G";
    let (number, unit) = if let Some(number) = text.strip_suffix(['M', 'm']) {
        (number, 1_000_000)
    } else if let Some(number) = text.strip_suffix(['G', 'g']) {
        (number, 1_000_000_000)
    } else {
        return Err(EXPECTED);
    };
    let number: u64 = number.parse().map_err(|_| EXPECTED)?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0).ok_or(EXPECTED)
}

fn tensors(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("expected a whole number of 1 or more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1000() {
        assert_eq!(size("500M"), Ok(500_000_000));
        assert_eq!(size("4g"), Ok(4_000_000_000));
        for text in ["", "4", "G", "0G", "-1G", "1.5G", "4GB", "99999999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
