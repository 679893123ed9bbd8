//! `rf-cli quantize`: converts a model to another quantisation format.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use rf_convert::{Conversion, Error, Imatrix, Mix, Options, TensorType};
use rf_gguf::Gguf;
use rf_quant::DType;

use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal::{self, Palette};
use crate::{args, sources};

/// Arguments of `rf-cli quantize`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(after_help = after_help())]
pub(crate) struct QuantizeArgs {
    #[arg(
        help = "Convert the model IN to the format or mix TYPE (see below) and write it to OUT. IN should be in \
                F16, BF16 or F32; for a split model, name any of its parts. OUT is replaced if it exists \
                [default OUT: ggml-model-TYPE.gguf in the folder of IN]"
    )]
    #[arg(value_names = ["IN", "OUT", "TYPE", "THREADS"], num_args = 2..=4, required = true)]
    words: Vec<String>,
    /// Convert with N threads [default: one per core, also for 0 and -1]
    #[arg(short, long, visible_alias = "nthreads", value_name = "N")]
    threads: Option<i64>,
    /// Store the output matrix in this format
    #[arg(long, value_name = "TYPE", value_parser = rf_convert::format_of_name)]
    output_tensor_type: Option<DType>,
    /// Store the token embedding in this format
    #[arg(long, value_name = "TYPE", value_parser = rf_convert::format_of_name)]
    token_embedding_type: Option<DType>,
    #[arg(
        help = "Store tensors whose name matches REGEX in the format TYPE, as in attn_v=q6_k (repeatable)"
    )]
    #[arg(long, value_name = "REGEX=TYPE")]
    tensor_type: Vec<TensorType>,
    /// Quantise tensors that are already quantised. This loses more than quantising the original
    #[arg(long)]
    allow_requantize: bool,
    /// Convert every matrix to the format of TYPE, without finer formats for sensitive tensors
    #[arg(long)]
    pure: bool,
    /// Keep the format of the output matrix
    #[arg(long)]
    leave_output_tensor: bool,
    /// Weight errors by the importance of the columns in FILE, an output of `rf-cli imatrix` or
    /// llama-imatrix
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
        "\nThe format of each tensor is chosen as in llama.cpp. Sensitive tensors get more bits. A tensor whose \
         rows are not a multiple of 256 gets another format: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, \
         Q4_0 for Q3_K, Q2_K and the ternary formats, IQ4_NL for the other IQ formats.\n\n\
         Examples:\n  \
         rf-cli quantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M\n  \
         rf-cli quantize --imatrix imatrix.gguf model-F16.gguf model-IQ3_XXS.gguf IQ3_XXS\n  \
         rf-cli quantize --dry-run model-F16.gguf out.gguf Q3_K_M",
    );
    text
}

/// The arguments that are no flags.
struct Files {
    input: PathBuf,
    output: PathBuf,
    mix: Mix,
    threads: Option<i64>,
}

impl QuantizeArgs {
    /// `IN [OUT] TYPE [THREADS]`, as llama-quantize reads them. Types may be numbers, too.
    fn files(&self) -> Result<Files> {
        let mix = |word: &str| word.parse::<Mix>().map_err(|error| bad_input!("{error}"));
        let number = |word: &str| word.parse::<i64>().ok();
        let (output, name, threads) = match self.words.as_slice() {
            [_, output, name, threads] => {
                let threads = number(threads).ok_or_else(|| {
                    let threads = terminal::shown(threads);
                    bad_input!("'{threads}' is not a number of threads")
                })?;
                (Some(output), name, Some(threads))
            }
            [_, name, threads] if mix(name).is_ok() && number(threads).is_some() => {
                (None, name, number(threads))
            }
            [_, output, name] => (Some(output), name, None),
            [_, name] => (None, name, None),
            _ => return Err(bad_input!("give IN, OUT and TYPE")),
        };
        let input = PathBuf::from(&self.words[0]);
        if name.eq_ignore_ascii_case("copy") {
            return Err(bad_input!(
                "COPY changes no tensor: join a split model with `rf-cli gguf merge`, and change metadata with \
                 `rf-cli gguf edit`"
            ));
        }
        let mix = mix(name)?;
        let output = match output {
            // A file of this name would surprise: the output cannot be a stream.
            Some(output) if output == "-" => {
                return Err(bad_input!(
                    "the output cannot be a stream, because it is not written in order: give a file"
                ));
            }
            Some(output) => PathBuf::from(output),
            None => input.with_file_name(format!("ggml-model-{}.gguf", mix.name())),
        };
        Ok(Files { input, output, mix, threads })
    }
}

/// Runs `rf-cli quantize`.
pub(crate) fn quantize(arguments: &QuantizeArgs) -> Result<()> {
    let files = arguments.files()?;
    let threads = args::threads(files.threads.or(arguments.threads))?.unwrap_or(0);
    let gguf = Gguf::open(&files.input)?;
    sources::check_is_no_input(&files.output, arguments.imatrix.as_deref())?;
    let imatrix = arguments.imatrix.as_ref().map(Imatrix::open).transpose();
    let imatrix = imatrix.map_err(|error| failure(error, &files))?;
    let options = Options::default()
        .with_imatrix(imatrix.as_ref())
        .with_pure(arguments.pure)
        .with_leave_output(arguments.leave_output_tensor)
        .with_allow_requantize(arguments.allow_requantize)
        .with_output_type(arguments.output_tensor_type)
        .with_embedding_type(arguments.token_embedding_type)
        .with_tensor_types(arguments.tensor_type.clone());
    let conversion = Conversion::plan(&gguf, &files.output, files.mix, &options)
        .map_err(|error| failure(error, &files))?;
    for rule in &arguments.tensor_type {
        if !gguf.tensors().iter().any(|tensor| rule.matches(tensor.name())) {
            let rule = terminal::shown(&rule.to_string());
            terminal::warn(format_args!("--tensor-type {rule} matches no tensor of the model"));
        }
    }
    if arguments.dry_run {
        return print_tensors(&conversion);
    }

    let started = Instant::now();
    let progress = terminal::byte_progress("quantising", conversion.input_bytes());
    let watch = Watch::new();
    let result = conversion.write(threads, |bytes| {
        progress.inc(bytes);
        if watch.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish_and_clear();
    result.map_err(|error| failure(error, &files))?;
    summarise(&conversion, &files, started);
    Ok(())
}

/// The error with the option or file of the command line that it is about.
fn failure(error: Error, files: &Files) -> anyhow::Error {
    match error {
        Error::Gguf(error) => error.into(),
        Error::Cancelled => Interrupted.into(),
        Error::NoTensors => bad_input!("{}: {error}", files.input.display()),
        Error::AlreadyQuantized { .. } => bad_input!("{error}, or give --allow-requantize"),
        // No text reaches the layers that predict further tokens (MTP), so no matrix has them.
        Error::NeedsImatrix { ref name, is_missing: true, .. } => {
            let block = name.split('.').take(2).collect::<Vec<_>>().join(r"\.");
            bad_input!(
                "{error}: give the tensors of the block a format that needs none, as in \
                 --tensor-type '^{}\\.=q8_0'",
                terminal::shown(&block)
            )
        }
        Error::NeedsImatrix { .. } => bad_input!(
            "{error}: make one of this model with 'rf-cli imatrix' and give it with --imatrix"
        ),
        Error::Threads { source, .. } => anyhow::Error::from_boxed(source)
            .context("cannot start the threads: give a smaller --threads"),
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
            terminal::shown(tensor.name()),
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

fn summarise(conversion: &Conversion<'_>, files: &Files, started: Instant) {
    let tensors: Vec<_> = conversion.tensors().collect();
    let fallbacks = tensors.iter().filter(|row| row.fallback_from.is_some()).count();
    if fallbacks > 0 {
        terminal::note(format_args!(
            "{fallbacks} of {} tensors got a format with smaller blocks, because their rows do not fit the format",
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
        Palette::stderr().bold(files.output.display()),
        size(conversion.output_bytes()),
        size(conversion.input_bytes()),
        started.elapsed().as_secs_f64()
    ));
}
