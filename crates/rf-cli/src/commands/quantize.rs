//! `rf-cli quantize`: a model in another format.

pub(crate) mod mixes;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use rayon::prelude::*;
use rf_gguf::{Gguf, GgufWriter, MXFP6_LAYOUT_KEY, TensorInfo, TensorPlan};
use rf_quant::DType;

use self::mixes::{Choices, MIXES, Mix, Target};
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli quantize`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(after_help = after_help())]
pub(crate) struct QuantizeArgs {
    /// Model to read, best in F16, BF16 or F32 (any part of a split model)
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// File to write; replaced when it exists
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Format or mix, by name or number (see below)
    #[arg(value_name = "TYPE")]
    mix: Mix,
    /// Threads; all cores if left out or 0
    #[arg(short, long, visible_alias = "nthreads", value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Quantise again what is quantised already, which loses more than quantising the original
    #[arg(long)]
    allow_requantize: bool,
    /// Every matrix in the format of TYPE, with no finer ones for sensitive tensors
    #[arg(long)]
    pure: bool,
    /// Leave the output matrix as it is
    #[arg(long)]
    leave_output_tensor: bool,
    /// Show what each tensor would become, and write nothing
    #[arg(long)]
    dry_run: bool,
}

fn after_help() -> String {
    use std::fmt::Write as _;
    let mut text = String::from("Types, with the bits per weight of most tensors:\n");
    for mix in &MIXES {
        let number = mix.file_type.map(|number| number.to_string()).unwrap_or_default();
        let _ = writeln!(text, "  {number:>2}  {:<10}  {}", mix.name, mix.about);
    }
    text.push_str(
        "\nFormats are chosen as llama.cpp chooses them: sensitive tensors get more bits, and rows that are no \
         multiple of 256 get Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, Q4_0 for Q3_K and Q2_K.\n\n\
         Examples:\n  \
         rf-cli quantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M\n  \
         rf-cli quantize --dry-run model-F16.gguf out.gguf Q3_K_M",
    );
    text
}

/// Runs `rf-cli quantize`.
pub(crate) fn quantize(arguments: &QuantizeArgs) -> Result<()> {
    let gguf = Gguf::open(&arguments.input)?;
    refuse_to_replace_input(&gguf, &arguments.output)?;
    if gguf.tensors().is_empty() {
        return Err(bad_input!(
            "{}: the file has no tensors, only a vocabulary: give a model",
            arguments.input.display()
        ));
    }
    gguf.check_types()?;
    let choices = Choices { pure: arguments.pure, leave_output: arguments.leave_output_tensor };
    let targets = arguments.mix.targets(&gguf, choices)?;
    check_requantisation(&gguf, &targets, arguments.allow_requantize)?;
    if arguments.dry_run {
        return print_targets(&gguf, &targets);
    }

    let writer = plan(&gguf, &arguments.mix, &targets)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(arguments.threads)
        .build()
        .context("cannot start the threads: give a smaller --threads")?;
    let started = Instant::now();
    let total_bytes = gguf.tensors().iter().map(|tensor| tensor.size_bytes() as u64).sum();
    let progress = terminal::byte_progress("quantising", total_bytes);
    let watch = Watch::new();
    let converter = Converter { pool: &pool, progress: &progress, watch: &watch };
    let result =
        writer.write_file(&arguments.output, |plan, out| converter.tensor(&gguf, plan, out));
    progress.finish_and_clear();
    if watch.requested() {
        return Err(Interrupted.into());
    }
    result?;
    summarise(&gguf, &writer, &targets, arguments, started);
    Ok(())
}

fn refuse_to_replace_input(gguf: &Gguf, output: &Path) -> Result<()> {
    let Ok(target) = output.canonicalize() else {
        return Ok(()); // It does not exist yet.
    };
    for path in gguf.paths() {
        if path.canonicalize().is_ok_and(|path| path == target) || same_file(path, &target) {
            return Err(bad_input!(
                "'{}' is the model that is read: write to another file",
                output.display()
            ));
        }
    }
    Ok(())
}

#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    identity(a).is_some() && identity(a) == identity(b)
}

#[cfg(not(unix))]
fn same_file(_: &Path, _: &Path) -> bool {
    false
}

fn check_requantisation(gguf: &Gguf, targets: &[Target], allowed: bool) -> Result<()> {
    let is_float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    for (tensor, target) in gguf.tensors().iter().zip(targets) {
        let dtype = tensor.dtype()?;
        if !allowed && dtype != target.dtype && !is_float(dtype) {
            return Err(bad_input!(
                "tensor '{}' is already quantised ({dtype}), and quantising it again loses quality: \
                 start from an F16, BF16 or F32 file, or give --allow-requantize",
                tensor.name().escape_debug()
            ));
        }
    }
    Ok(())
}

/// The new file without its data.
fn plan(gguf: &Gguf, mix: &Mix, targets: &[Target]) -> Result<GgufWriter, rf_gguf::Error> {
    const FILE_TYPE: &str = "general.file_type";
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().iter() {
        // The new file is whole, has its own type, and gets the MXFP6 key where it needs it.
        if !key.starts_with("split.") && key != FILE_TYPE && key != MXFP6_LAYOUT_KEY {
            writer.add(key, value.clone())?;
        }
    }
    writer.set("general.quantization_version", 2_u32)?;
    if let Some(file_type) = mix.file_type {
        writer.add(FILE_TYPE, file_type)?;
    }
    for (tensor, target) in gguf.tensors().iter().zip(targets) {
        writer.add_tensor(tensor.name(), tensor.shape(), target.dtype)?;
    }
    Ok(writer)
}

/// Values that a thread converts at once: whole blocks of every format, small enough for its cache.
const PIECE: usize = 32 * 1024;

/// Pieces between two writes: 8 MiB of floats at most.
const PIECES_AT_ONCE: usize = 64;

struct Converter<'a> {
    pool: &'a rayon::ThreadPool,
    progress: &'a ProgressBar,
    watch: &'a Watch,
}

impl Converter<'_> {
    fn tensor(
        &self,
        gguf: &Gguf,
        plan: &TensorPlan,
        out: &mut dyn Write,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let tensor = gguf.required_tensor(plan.name())?;
        let (from, to) = (tensor.dtype()?, plan.dtype());
        let data = gguf.data(tensor);
        // Blocks do not cross rows, so neither rows nor experts matter here.
        let bytes_of =
            |dtype: DType, values: usize| values / dtype.block_elements() * dtype.block_bytes();
        let mut converted = Vec::new();
        for chunk in data.chunks(bytes_of(from, PIECE * PIECES_AT_ONCE)) {
            if self.watch.requested() {
                return Err(Interrupted.into());
            }
            if from == to {
                out.write_all(chunk)?;
            } else {
                let values = chunk.len() / from.block_bytes() * from.block_elements();
                converted.resize(bytes_of(to, values), 0);
                let pieces = chunk.par_chunks(bytes_of(from, PIECE));
                let outs = converted.par_chunks_mut(bytes_of(to, PIECE));
                self.pool.install(|| {
                    pieces.zip(outs).try_for_each_init(
                        || vec![0.0; PIECE],
                        |floats, (piece, out)| {
                            let values = piece.len() / from.block_bytes() * from.block_elements();
                            let floats = &mut floats[..values];
                            rf_quant::dequantize(from, piece, floats)?;
                            rf_quant::quantize(to, floats, out)
                        },
                    )
                })?;
                out.write_all(&converted)?;
            }
            self.progress.inc(chunk.len() as u64);
        }
        data.release();
        Ok(())
    }
}

fn print_targets(gguf: &Gguf, targets: &[Target]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut total_bytes = 0;
    for (tensor, target) in gguf.tensors().iter().zip(targets) {
        let size_bytes = new_bytes(tensor, target.dtype);
        total_bytes += size_bytes;
        let instead = target.instead_of.map(|dtype| format!("  (rows do not fit {dtype})"));
        writeln!(
            out,
            "{:<36} {:>20}  {:>10} -> {:<10} {:>12}{}",
            tensor.name().escape_debug().to_string(),
            format!("{:?}", tensor.shape()),
            tensor.ty().to_string(),
            target.dtype,
            terminal::bytes(size_bytes),
            instead.unwrap_or_default(),
        )?;
    }
    writeln!(out, "all tensors: {}", terminal::bytes(total_bytes))?;
    Ok(())
}

fn new_bytes(tensor: &TensorInfo, dtype: DType) -> u64 {
    tensor.elements() / dtype.block_elements() as u64 * dtype.block_bytes() as u64
}

fn summarise(
    gguf: &Gguf,
    writer: &GgufWriter,
    targets: &[Target],
    arguments: &QuantizeArgs,
    started: Instant,
) {
    let fallbacks = targets.iter().filter(|target| target.instead_of.is_some()).count();
    if fallbacks > 0 {
        terminal::note(format_args!(
            "{fallbacks} of {} tensors have rows that do not fit the format and got one with smaller blocks",
            targets.len()
        ));
    }
    let elements: u64 = gguf.tensors().iter().map(TensorInfo::elements).sum();
    let size = |bytes: u64| {
        let bits = bytes as f64 * 8.0 / elements as f64;
        format!("{} ({bits:.2} bits per weight)", terminal::bytes(bytes))
    };
    let old_bytes = gguf.tensors().iter().map(|tensor| tensor.size_bytes() as u64).sum();
    let new_bytes = writer.tensors().iter().map(TensorPlan::size_bytes).sum();
    terminal::note(format_args!(
        "{}: {}, from {}, in {:.1} s",
        Palette::stderr().bold(arguments.output.display()),
        size(new_bytes),
        size(old_bytes),
        started.elapsed().as_secs_f64()
    ));
}
