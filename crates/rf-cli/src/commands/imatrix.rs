//! `rf-cli imatrix`: makes an importance matrix, which `quantize --imatrix` reads.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use rf_convert::Imatrix;
use rocmforge::OpenModel;
use rocmforge::device::{Device, DeviceOptions};
use rocmforge::engine::EncodeOptions;

use crate::args::{ComputeArgs, ModelArgs};
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::{device, loading, sources, terminal};

/// Arguments of `rf-cli imatrix`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs a text that is typical of the model's use, and sums the squares of the activations by which each column of \
each matrix of the layers is multiplied. The text is cut into chunks of the context size; an incomplete last \
chunk is left out. The CPU computes the chunks. The output file has llama.cpp's GGUF form.

Examples:
  rf-cli imatrix -m model-F16.gguf -f text.txt -o imatrix.gguf
  rf-cli quantize --imatrix imatrix.gguf model-F16.gguf model-IQ2_XS.gguf IQ2_XS
  rf-cli imatrix --in-file a.gguf --in-file b.gguf -o both.gguf")]
pub(crate) struct ImatrixArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Read the text from FILE; - for standard input. Without -f, only merge the files of --in-file
    #[arg(short, long, value_name = "FILE", required_unless_present = "in_file")]
    file: Option<PathBuf>,
    /// Write the importance matrix to FILE, which is replaced if it exists
    #[arg(
        short,
        long,
        visible_alias = "output-file",
        value_name = "FILE",
        default_value = "imatrix.gguf"
    )]
    output: PathBuf,
    /// Add the sums of the importance matrix in FILE (repeatable)
    #[arg(long, value_name = "FILE")]
    in_file: Vec<PathBuf>,
    /// Compute at most N chunks; -1 for all
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    chunks: i64,
    /// Cut the text into chunks of N tokens; 0 = trained context [default: 512, or the trained
    /// context if it is shorter]
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli imatrix`.
pub(crate) fn imatrix(arguments: &ImatrixArgs) -> Result<()> {
    let named = [&arguments.file, &arguments.model.model].into_iter().flatten();
    let inputs = named.chain(&arguments.in_file).map(PathBuf::as_path);
    sources::check_is_no_input(&arguments.output, inputs)?;
    let mut imatrix = Imatrix::default();
    let started = Instant::now();
    if let Some(file) = &arguments.file {
        let bytes = sources::file_bytes(file)?;
        let model = loading::ModelFile::of(&arguments.model)?;
        sources::check_is_no_input(&arguments.output, model.path.as_deref())?;
        let open = loading::open_windows(model.loader(), &arguments.compute, arguments.ctx_size)?;
        measure(&open, &bytes, arguments, &mut imatrix)?;
        imatrix.datasets.push(file.display().to_string());
    }
    for file in &arguments.in_file {
        let other = Imatrix::open(file).map_err(|error| bad_input!("{error}"))?;
        imatrix.merge(&other).map_err(|error| bad_input!("{}: {error}", file.display()))?;
    }
    for (tensor, experts) in imatrix.unseen_experts() {
        terminal::warn(format_args!(
            "no token selected {experts} experts of '{}', so their columns count equally: give a longer text",
            tensor.escape_debug()
        ));
    }
    imatrix.write_file(&arguments.output)?;
    terminal::note(format_args!(
        "{}: {} tensors, {} chunks, in {:.1} s",
        arguments.output.display(),
        imatrix.len(),
        imatrix.num_chunks,
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Computes the chunks of a text.
fn measure(
    open: &OpenModel,
    text: &[u8],
    arguments: &ImatrixArgs,
    imatrix: &mut Imatrix,
) -> Result<()> {
    let tokenizer = open.model().tokenizer();
    let encode = EncodeOptions::PLAIN.with_add_special(true);
    let mut ids = tokenizer.encode_bytes(text, encode);
    let chunk_tokens = open.context_tokens();
    let most = usize::try_from(arguments.chunks).unwrap_or(usize::MAX);
    let num_chunks = (ids.len() / chunk_tokens).min(most);
    if num_chunks == 0 {
        return Err(bad_input!(
            "{} tokens give no chunk of {chunk_tokens}: give a longer text, a smaller -c, or more --chunks",
            ids.len()
        ));
    }
    loading::warn_of_unused_overrides(open.model());
    let device =
        DeviceOptions::default().with_device(Device::Cpu).with_cpu(arguments.compute.cpu()?);
    let backend = device::open(device)?.cpu()?;
    let mut activations = open.activations(&backend, &mut |_| ())?;
    let progress = terminal::count_progress("chunks", num_chunks as u64);
    let watch = Watch::new();
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    for chunk in ids.chunks_exact_mut(chunk_tokens).take(num_chunks) {
        if watch.requested() {
            progress.finish_and_clear();
            return Err(Interrupted.into());
        }
        if let Some(bos) = bos {
            chunk[0] = bos;
        }
        activations.add(chunk)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    for (tensor, sums) in activations.sums() {
        let squares: Vec<f32> = sums.squares.iter().map(|&sum| sum as f32).collect();
        let rows: Vec<f32> = sums.rows.iter().map(|&rows| rows as f32).collect();
        imatrix.add(tensor, &squares, &rows)?;
    }
    (imatrix.num_chunks, imatrix.chunk_tokens) = (num_chunks as u32, chunk_tokens as u32);
    Ok(())
}
