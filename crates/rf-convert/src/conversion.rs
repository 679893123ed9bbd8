//! The conversion of one model to one file.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rf_gguf::{Gguf, GgufWriter, MXFP6_LAYOUT_KEY, TensorInfo, TensorPlan};
use rf_quant::DType;

use crate::error::Error;
use crate::imatrix::Imatrix;
use crate::mix::Mix;
use crate::model::ModelPart;
use crate::rules::{Options, TensorFormat, targets};

/// A planned conversion: the format of each tensor is chosen, nothing is written.
#[derive(Debug)]
pub struct Conversion<'a> {
    gguf: &'a Gguf,
    output: PathBuf,
    targets: Vec<TensorFormat>,
    /// Importance of the columns of each tensor.
    importance: Vec<Option<Importance>>,
    writer: GgufWriter,
}

/// The importance of the columns of a tensor.
#[derive(Debug)]
struct Importance {
    columns: usize,
    /// Values of one matrix.
    matrix: usize,
    /// `[matrices][columns]`.
    values: Vec<f32>,
}

/// The conversion of one tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorConversion<'a> {
    /// The tensor of the input.
    pub tensor: &'a TensorInfo,
    /// Format of the tensor in the output.
    pub dtype: DType,
    /// The format that the mix selects, if the rows are not whole blocks of it.
    pub fallback_from: Option<DType>,
    /// The size of its data in the output.
    pub size_bytes: u64,
}

impl<'a> Conversion<'a> {
    /// Chooses the format of every tensor of `gguf` and checks that the conversion to the file
    /// `output` is possible.
    ///
    /// # Errors
    ///
    /// When `output` is a file of the input, the input has no tensors or tensors of an unsupported
    /// type, a quantised tensor would be quantised again without [`Options::allow_requantize`], or
    /// a tensor needs an importance that [`Options::imatrix`] does not have.
    pub fn plan(
        gguf: &'a Gguf,
        output: impl Into<PathBuf>,
        mix: Mix,
        options: &Options<'_>,
    ) -> Result<Self, Error> {
        let output = output.into();
        if is_part_of(gguf, &output) {
            return Err(Error::OutputIsInput { path: output });
        }
        if gguf.tensors().is_empty() {
            return Err(Error::NoTensors);
        }
        gguf.check_types()?;
        let targets = targets(&mix, gguf, options)?;
        if !options.allow_requantize {
            check_requantization(gguf, &targets)?;
        }
        let importance = gguf.tensors().iter().zip(&targets);
        let importance = importance
            .map(|(tensor, target)| importance_of(tensor, target.dtype, &mix, options.imatrix));
        let importance = importance.collect::<Result<_, _>>()?;
        let writer = declare(gguf, &mix, &targets, options.imatrix)?;
        Ok(Self { gguf, output, targets, importance, writer })
    }

    /// The tensors in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = TensorConversion<'_>> {
        let rows = self.gguf.tensors().iter().zip(&self.targets).zip(self.writer.tensors());
        rows.map(|((tensor, target), plan)| TensorConversion {
            tensor,
            dtype: target.dtype,
            fallback_from: target.fallback_from,
            size_bytes: plan.size_bytes(),
        })
    }

    /// The bytes of tensor data in the input.
    pub fn input_bytes(&self) -> u64 {
        self.gguf.tensors().iter().map(|tensor| tensor.size_bytes() as u64).sum()
    }

    /// The bytes of tensor data in the output.
    pub fn output_bytes(&self) -> u64 {
        self.writer.tensors().iter().map(TensorPlan::size_bytes).sum()
    }

    /// Writes the output file with `threads` threads; 0 means one per core.
    ///
    /// `progress` receives the bytes of input that were converted since its last call. When it
    /// breaks, the conversion stops and leaves no file.
    ///
    /// # Errors
    ///
    /// [`Error::Threads`] when the threads do not start, [`Error::Cancelled`] when `progress`
    /// breaks, and [`Error::Gguf`] when a value cannot be stored in its format or the file cannot
    /// be written.
    pub fn write(
        &self,
        threads: usize,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Error::Threads { threads, source: error.into() })?;
        let mut converter = Converter { gguf: self.gguf, pool, progress, cancelled: false };
        let mut importance = self.importance.iter();
        let result = self.writer.write_file(&self.output, |plan, out| {
            converter.tensor(plan, importance.next().and_then(Option::as_ref), out)
        });
        if converter.cancelled {
            return Err(Error::Cancelled);
        }
        Ok(result?)
    }
}

fn is_part_of(gguf: &Gguf, output: &Path) -> bool {
    gguf.paths().iter().any(|path| is_same_file(path, output))
}

/// Returns true if two paths name the same existing file, also by links.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    // A file that does not exist yet is no other file.
    let (Ok(full_a), Ok(full_b)) = (a.canonicalize(), b.canonicalize()) else { return false };
    full_a == full_b || is_hard_link(&full_a, &full_b)
}

#[cfg(unix)]
fn is_hard_link(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    identity(a).is_some() && identity(a) == identity(b)
}

#[cfg(not(unix))]
fn is_hard_link(_: &Path, _: &Path) -> bool {
    false
}

fn check_requantization(gguf: &Gguf, targets: &[TensorFormat]) -> Result<(), Error> {
    for (tensor, target) in gguf.tensors().iter().zip(targets) {
        let dtype = tensor.dtype()?;
        if dtype != target.dtype && !dtype.is_float() {
            return Err(Error::AlreadyQuantized { name: tensor.name().to_owned(), dtype });
        }
    }
    Ok(())
}

/// The importance of the columns of a tensor that is quantised to `dtype`.
fn importance_of(
    tensor: &TensorInfo,
    dtype: DType,
    mix: &Mix,
    imatrix: Option<&Imatrix>,
) -> Result<Option<Importance>, Error> {
    let (name, shape) = (tensor.name(), tensor.shape());
    if tensor.dtype()? == dtype || dtype.is_float() {
        return Ok(None);
    }
    let length = |axis: usize| shape.get(axis).map_or(1, |&length| length as usize);
    let (columns, rows) = (length(0), length(1));
    let found = match imatrix {
        Some(imatrix) => imatrix.importance(name, (columns, length(2) * length(3)))?,
        None => None,
    };
    // Of these, a token reads one row or the errors of all rows count the same.
    let is_exempt = matches!(ModelPart::of(name), ModelPart::Embedding | ModelPart::Output);
    if found.is_none() && mix.needs_importance(dtype) && !is_exempt {
        let (name, is_missing) = (name.to_owned(), imatrix.is_some());
        return Err(Error::NeedsImatrix { name, dtype, is_missing });
    }
    Ok(found.map(|values| Importance { columns, matrix: columns * rows, values }))
}

/// The new file without its data.
fn declare(
    gguf: &Gguf,
    mix: &Mix,
    targets: &[TensorFormat],
    imatrix: Option<&Imatrix>,
) -> Result<GgufWriter, rf_gguf::Error> {
    const FILE_TYPE: &str = "general.file_type";
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().iter() {
        // The new file is not split, has its own type, and gets the MXFP6 key from the writer.
        if !key.starts_with("split.") && key != FILE_TYPE && key != MXFP6_LAYOUT_KEY {
            writer.add(key, value.clone())?;
        }
    }
    writer.set("general.quantization_version", 2_u32)?;
    if let Some(file_type) = mix.file_type() {
        writer.add(FILE_TYPE, file_type)?;
    }
    if let Some(imatrix) = imatrix {
        if let Some(dataset) = imatrix.datasets.first() {
            writer.set("quantize.imatrix.dataset", dataset.as_str())?;
        }
        writer.set("quantize.imatrix.entries_count", imatrix.len() as u32)?;
        writer.set("quantize.imatrix.chunks_count", imatrix.num_chunks)?;
    }
    for (tensor, target) in gguf.tensors().iter().zip(targets) {
        writer.add_tensor(tensor.name(), tensor.shape(), target.dtype)?;
    }
    Ok(writer)
}

/// Values that a thread converts at a time: whole blocks of every format that fit into its cache.
pub(crate) const PIECE: usize = 32 * 1024;

/// Pieces between two writes: at most 8 MiB of floats.
const PIECES_PER_WRITE: usize = 64;

struct Converter<'a, P> {
    gguf: &'a Gguf,
    pool: rayon::ThreadPool,
    progress: P,
    cancelled: bool,
}

impl<P: FnMut(u64) -> ControlFlow<()>> Converter<'_, P> {
    fn tensor(
        &mut self,
        plan: &TensorPlan,
        importance: Option<&Importance>,
        out: &mut dyn Write,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let tensor = self.gguf.required_tensor(plan.name())?;
        let (from, to) = (tensor.dtype()?, plan.dtype());
        let data = self.gguf.data(tensor);
        let (mut converted, mut first) = (Vec::new(), 0);
        for chunk in data.chunks(bytes_of(from, PIECE * PIECES_PER_WRITE)) {
            if from == to {
                if from.is_float() {
                    self.pool.install(|| check_floats(from, chunk))?;
                }
                out.write_all(chunk)?;
            } else {
                converted.resize(bytes_of(to, values_of(from, chunk)), 0);
                let importance = importance.map(|importance| (importance, first));
                self.pool
                    .install(|| convert((from, chunk), (to, &mut converted[..]), importance))?;
                out.write_all(&converted)?;
            }
            first += values_of(from, chunk);
            if (self.progress)(chunk.len() as u64).is_break() {
                self.cancelled = true;
                return Err(Error::Cancelled.into());
            }
        }
        data.release();
        Ok(())
    }
}

/// Converts whole blocks in parallel. Blocks do not cross rows, so the shape does not matter. The
/// importance has the index of the first value in the tensor.
fn convert(
    (from, bytes): (DType, &[u8]),
    (to, out): (DType, &mut [u8]),
    importance: Option<(&Importance, usize)>,
) -> Result<(), rf_quant::Error> {
    let pieces = bytes.par_chunks(bytes_of(from, PIECE));
    let outs = out.par_chunks_mut(bytes_of(to, PIECE));
    pieces.zip(outs).enumerate().try_for_each_init(
        || (vec![0.0; PIECE], Vec::new()),
        |(floats, weights), (index, (piece, out))| {
            let floats = &mut floats[..values_of(from, piece)];
            rf_quant::dequantize(from, piece, floats)?;
            check_finite(to, floats)?;
            let Some((importance, first)) = importance else {
                return rf_quant::quantize(to, floats, out);
            };
            importance.fill(first + index * PIECE, floats.len(), weights);
            rf_quant::quantize_weighted(to, floats, weights, out)
        },
    )
}

impl Importance {
    /// The importance of `count` values from the value `first` of the tensor on.
    fn fill(&self, mut first: usize, count: usize, out: &mut Vec<f32>) {
        out.clear();
        while out.len() < count {
            let column = first % self.columns;
            let len = (self.columns - column).min(count - out.len());
            let start = first / self.matrix * self.columns + column;
            out.extend_from_slice(&self.values[start..start + len]);
            first += len;
        }
    }
}

/// Checks that floats which are copied are finite.
fn check_floats(dtype: DType, bytes: &[u8]) -> Result<(), rf_quant::Error> {
    bytes.par_chunks(bytes_of(dtype, PIECE)).try_for_each_init(
        || vec![0.0; PIECE],
        |floats, piece| {
            let floats = &mut floats[..values_of(dtype, piece)];
            rf_quant::dequantize(dtype, piece, floats)?;
            check_finite(dtype, floats)
        },
    )
}

/// Float formats store NaN and infinity, but a model with them is damaged.
fn check_finite(dtype: DType, values: &[f32]) -> Result<(), rf_quant::Error> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => {
            Err(rf_quant::Error::NonFinite { dtype, index, nan: values[index].is_nan() })
        }
        None => Ok(()),
    }
}

pub(crate) const fn bytes_of(dtype: DType, values: usize) -> usize {
    values / dtype.block_elements() * dtype.block_bytes()
}

pub(crate) const fn values_of(dtype: DType, bytes: &[u8]) -> usize {
    bytes.len() / dtype.block_bytes() * dtype.block_elements()
}
