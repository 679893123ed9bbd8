//! `rf-cli quantize`: converts a model to another quantisation format.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use rf_convert::{Conversion, Error, Imatrix, Mix, Options};
use rf_gguf::Gguf;

use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli quantize`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(after_help = after_help())]
pub(crate) struct QuantizeArgs {
    /// Read this model, preferably in F16, BF16 or F32 (any part of a split model)
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Write this file, and replace it if it exists
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Convert to this format or mix, by name or number (see below)
    #[arg(value_name = "TYPE")]
    mix: Mix,
    /// Convert with N threads; 0 for all cores
    #[arg(short, long, visible_alias = "nthreads", value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Quantise tensors that are already quantised, which loses more than quantising the original
    #[arg(long)]
    allow_requantize: bool,
    /// Convert every matrix to the format of TYPE, without finer formats for sensitive tensors
    #[arg(long)]
    pure: bool,
    /// Keep the format of the output matrix
    #[arg(long)]
    leave_output_tensor: bool,
    /// Weight errors by the importance of the columns in FILE, which `rf-cli imatrix` or
    /// llama-imatrix made
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Print the format of each tensor and write nothing
    #[arg(long)]
    dry_run: bool,
}

fn after_help() -> String {
    use std::fmt::Write as _;
    let mut text = String::from("Types, with the bits per weight of most tensors:\n");
    for mix in Mix::ALL {
        let number = mix.file_type().map(|number| number.to_string()).unwrap_or_default();
        let _ = writeln!(text, "  {number:>2}  {:<10}  {}", mix.name(), mix.about());
    }
    text.push_str(
        "\nFormats are chosen as llama.cpp chooses them: sensitive tensors get more bits, and rows that are no \
         multiple of 256 get Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, Q4_0 for Q3_K, Q2_K and the ternary formats, IQ4_NL for the \
         other IQ formats.\n\n\
         Examples:\n  \
         rf-cli quantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M\n  \
         rf-cli quantize --imatrix imatrix.gguf model-F16.gguf model-IQ3_XXS.gguf IQ3_XXS\n  \
         rf-cli quantize --dry-run model-F16.gguf out.gguf Q3_K_M",
    );
    text
}

/// Runs `rf-cli quantize`.
pub(crate) fn quantize(arguments: &QuantizeArgs) -> Result<()> {
    let gguf = Gguf::open(&arguments.input)?;
    let imatrix = arguments.imatrix.as_ref().map(Imatrix::open).transpose();
    let imatrix = imatrix.map_err(|error| failure(error, arguments))?;
    let options = Options {
        imatrix: imatrix.as_ref(),
        pure: arguments.pure,
        leave_output: arguments.leave_output_tensor,
        allow_requantize: arguments.allow_requantize,
    };
    let conversion = Conversion::plan(&gguf, &arguments.output, arguments.mix, options)
        .map_err(|error| failure(error, arguments))?;
    if arguments.dry_run {
        return print_tensors(&conversion);
    }

    let started = Instant::now();
    let progress = terminal::byte_progress("quantising", conversion.input_bytes());
    let watch = Watch::new();
    let result = conversion.write(arguments.threads, |bytes| {
        progress.inc(bytes);
        if watch.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish_and_clear();
    result.map_err(|error| failure(error, arguments))?;
    summarise(&conversion, arguments, started);
    Ok(())
}

/// The error with the option or file of the command line that it is about.
fn failure(error: Error, arguments: &QuantizeArgs) -> anyhow::Error {
    match error {
        Error::Gguf(error) => error.into(),
        Error::Cancelled => Interrupted.into(),
        Error::NoTensors => bad_input!("{}: {error}", arguments.input.display()),
        Error::AlreadyQuantized { .. } => bad_input!("{error}, or give --allow-requantize"),
        Error::NeedsImatrix { .. } => bad_input!(
            "{error}: make one of this model with 'rf-cli imatrix' and give it with --imatrix"
        ),
        Error::Threads { source, .. } => {
            anyhow::Error::new(source).context("cannot start the threads: give a smaller --threads")
        }
        error => bad_input!("{error}"),
    }
}

fn print_tensors(conversion: &Conversion<'_>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for row in conversion.tensors() {
        let tensor = row.tensor;
        let fallback = row.fallback_from.map(|dtype| format!("  (rows do not fit {dtype})"));
        writeln!(
            out,
            "{:<36} {:>20}  {:>10} -> {:<10} {:>12}{}",
            tensor.name().escape_debug().to_string(),
            format!("{:?}", tensor.shape()),
            tensor.ty().to_string(),
            row.dtype,
            terminal::bytes(row.size_bytes),
            fallback.unwrap_or_default(),
        )?;
    }
    writeln!(out, "all tensors: {}", terminal::bytes(conversion.output_bytes()))?;
    Ok(())
}

fn summarise(conversion: &Conversion<'_>, arguments: &QuantizeArgs, started: Instant) {
    let tensors: Vec<_> = conversion.tensors().collect();
    let fallbacks = tensors.iter().filter(|row| row.fallback_from.is_some()).count();
    if fallbacks > 0 {
        terminal::note(format_args!(
            "{fallbacks} of {} tensors have rows that do not fit the format and got one with smaller blocks",
            tensors.len()
        ));
    }
    let elements: u64 = tensors.iter().map(|row| row.tensor.elements()).sum();
    let size = |bytes: u64| {
        let bits = bytes as f64 * 8.0 / elements as f64;
        format!("{} ({bits:.2} bits per weight)", terminal::bytes(bytes))
    };
    terminal::note(format_args!(
        "{}: {}, from {}, in {:.1} s",
        Palette::stderr().bold(arguments.output.display()),
        size(conversion.output_bytes()),
        size(conversion.input_bytes()),
        started.elapsed().as_secs_f64()
    ));
}
