//! `rf-cli info`: shows the contents of a model file.

mod adapter;
mod companion;
mod report;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use self::report::FileReport;
#[cfg(feature = "gpu")]
pub(super) use self::report::ModelKeys;
pub(super) use self::report::metadata_json;
use crate::args::{ComputeArgs, ModelArgs};
use crate::hub::Companions;
use crate::loading::ModelFile;
use crate::terminal;
use terminal::Palette;

/// Arguments of `rf-cli info`.
#[derive(Debug, Args)]
#[command(after_help = "\
Works on every GGUF file, including vocabularies, adapters, control vectors, projectors, importance matrices and \
models that are not supported. For the latter it lists the problems. The memory need is that of the CPU backend with the given options.

Examples:
  rf-cli info model.gguf
  rf-cli info --tensors model.gguf
  rf-cli info -c 32768 --json model.gguf")]
pub(crate) struct InfoArgs {
    /// Show this model file [default: the built-in demo model]
    #[arg(value_name = "FILE", conflicts_with = "model")]
    file: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Compute the memory need for N tokens of context; 0 = trained context
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// List all metadata
    #[arg(long)]
    metadata: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli info`.
pub(crate) fn info(arguments: &InfoArgs) -> Result<()> {
    let file =
        ModelFile::of(&arguments.model)?.or_path(arguments.file.as_deref(), Companions::None)?;
    let gguf = file.open()?;
    let report = FileReport::of(gguf, arguments.ctx_size, &arguments.compute)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&mut out, &report, arguments)?;
    }
    out.flush()?;
    Ok(())
}

fn print(out: &mut impl Write, report: &FileReport, arguments: &InfoArgs) -> io::Result<()> {
    let palette = Palette::stdout();
    let heading = report.file.as_deref().unwrap_or("built-in demo model");
    let heading = terminal::shown(heading);
    writeln!(
        out,
        "{} (GGUF version {}, {})",
        palette.bold(heading),
        report.gguf_version,
        terminal::bytes(report.file_bytes)
    )?;
    for (name, value) in report.lines() {
        writeln!(out, "  {}{value}", palette.dim(format_args!("{name:<16}")))?;
    }
    if !report.types.is_empty() {
        writeln!(out, "  {}", palette.dim("tensors"))?;
    }
    for ty in &report.types {
        writeln!(
            out,
            "    {:<14}{:>6} tensors {:>12}{}",
            ty.name,
            ty.tensors,
            terminal::bytes(ty.bytes),
            if ty.supported { String::new() } else { palette.yellow("  not supported") }
        )?;
    }
    if arguments.tensors {
        writeln!(out, "{}", palette.bold("tensors"))?;
        for tensor in &report.tensors {
            let (shape, size) = (format!("{:?}", tensor.shape), terminal::bytes(tensor.bytes));
            let name = terminal::shown(&tensor.name);
            writeln!(out, "  {name:<40} {shape:>22} {:>10} {size:>12}", tensor.ty)?;
        }
    }
    if arguments.metadata {
        writeln!(out, "{}", palette.bold("metadata"))?;
        for (key, value) in &report.metadata {
            let (key, value) = (terminal::shown(key), terminal::shown(&value.to_string()));
            writeln!(out, "  {key} = {value}")?;
        }
    }
    for problem in &report.problems {
        let problem = terminal::shown(problem);
        writeln!(out, "{} {problem}", palette.yellow("problem:"))?;
    }
    Ok(())
}
