//! Importance matrices: how much the error of each column of a matrix counts.
//!
//! The importance of a column is the mean square of the activations that multiply it. The file form
//! is that of llama.cpp: a GGUF file with two tensors per matrix, `NAME.in_sum2` (sums of squares,
//! `[columns, experts]`) and `NAME.counts` (summed rows, `[1, experts]`), and the keys `imatrix.*`.
//! Its older `.dat` form can be read.

mod dat;

use std::collections::BTreeMap;
use std::path::Path;

use rf_gguf::{Gguf, GgufWriter, StringArray};
use rf_quant::DType;

use self::dat::{Dat, TensorEntry, floats};
use crate::error::Error;

const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// Sums of squared activations for the matrices of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// The texts that the activations come from, as they were named.
    pub datasets: Vec<String>,
    /// Tokens per chunk of those texts; 0 if unknown.
    pub chunk_tokens: u32,
    /// Chunks.
    pub num_chunks: u32,
    entries: BTreeMap<String, Sums>,
}

/// The sums of one tensor.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sums {
    /// `[matrices][columns]`: sums of squares.
    squares: Vec<f32>,
    /// Summed rows of each matrix: one per expert, or one.
    counts: Vec<f32>,
}

impl Imatrix {
    /// Reads a file of either form.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is damaged, or is no importance matrix.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unreadable = |source| {
            Error::Gguf(rf_gguf::Error::Io { action: "read", path: path.to_owned(), source })
        };
        let mut magic = [0; 4];
        let mut file = std::fs::File::open(path).map_err(unreadable)?;
        let is_gguf = std::io::Read::read_exact(&mut file, &mut magic).is_ok() && magic == *b"GGUF";
        if is_gguf {
            return Self::from_gguf(&Gguf::open(path)?);
        }
        let imatrix = Self::from_dat(&std::fs::read(path).map_err(unreadable)?);
        imatrix.map_err(|problem| Error::NotImatrix { path: path.to_owned(), problem })
    }

    /// Reads an open file of the GGUF form.
    ///
    /// # Errors
    ///
    /// If the file is not an importance matrix.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, Error> {
        let path = gguf.paths().first().cloned().unwrap_or_default();
        Self::of_tensors(gguf).map_err(|problem| Error::NotImatrix { path, problem })
    }

    fn from_dat(bytes: &[u8]) -> Result<Self, String> {
        let Dat { entries, num_chunks, dataset } = dat::parse(bytes)?;
        let datasets = dataset.into_iter().collect();
        let mut imatrix = Self { datasets, num_chunks, ..Self::default() };
        for TensorEntry { name, calls, values } in entries {
            // Without calls the values are the means.
            imatrix.insert(&name, values, vec![calls.max(1) as f32])?;
        }
        Ok(imatrix)
    }

    fn of_tensors(gguf: &Gguf) -> Result<Self, String> {
        let metadata = gguf.metadata();
        let number = |key| metadata.u32(key).map_err(|error| error.to_string());
        let datasets = metadata.strings(DATASETS).map_err(|error| error.to_string())?;
        let mut imatrix = Self {
            datasets: datasets.into_iter().flat_map(StringArray::iter).map(str::to_owned).collect(),
            chunk_tokens: number(CHUNK_SIZE)?.unwrap_or(0),
            num_chunks: number(CHUNK_COUNT)?.unwrap_or(0),
            entries: BTreeMap::new(),
        };
        for tensor in gguf.tensors() {
            let Some(name) = tensor.name().strip_suffix(SUMS) else { continue };
            let counts = gguf.tensor(&format!("{name}{COUNTS}"));
            let counts = counts.ok_or_else(|| format!("'{name}' has sums and no counts"))?;
            let values = |tensor: &rf_gguf::TensorInfo| match tensor.dtype() {
                Ok(DType::F32) => Ok(floats(&gguf.data(tensor))),
                _ => Err(format!("tensor '{}' is not F32", tensor.name())),
            };
            imatrix.insert(name, values(tensor)?, values(counts)?)?;
        }
        if imatrix.entries.is_empty() {
            return Err(format!("it has no tensor whose name ends in '{SUMS}'"));
        }
        Ok(imatrix)
    }

    fn insert(&mut self, name: &str, squares: Vec<f32>, counts: Vec<f32>) -> Result<(), String> {
        if counts.is_empty() || squares.is_empty() || !squares.len().is_multiple_of(counts.len()) {
            let (sums, counts) = (squares.len(), counts.len());
            return Err(format!("'{name}' has {sums} sums for {counts} counts"));
        }
        if squares.iter().chain(&counts).any(|x| !x.is_finite() || *x < 0.0) {
            return Err(format!("'{name}' has a sum that is negative or not finite"));
        }
        self.entries.insert(name.to_owned(), Sums { squares, counts });
        Ok(())
    }

    /// Adds the sums of one tensor: `squares` `[matrices][columns]` over `counts` `[matrices]`
    /// rows. A tensor without experts is one matrix.
    ///
    /// # Errors
    ///
    /// [`Error::ImatrixShape`] if the tensor has sums of another shape already.
    pub fn add(&mut self, name: &str, squares: &[f32], counts: &[f32]) -> Result<(), Error> {
        let Some(sums) = self.entries.get_mut(name) else {
            let sums = Sums { squares: squares.to_vec(), counts: counts.to_vec() };
            self.entries.insert(name.to_owned(), sums);
            return Ok(());
        };
        // Files of other tools have one count for all experts.
        if sums.counts.len() == 1 {
            sums.counts = vec![sums.counts[0]; counts.len()];
        }
        let spread = if counts.len() == 1 { sums.counts.len() } else { 1 };
        if sums.squares.len() != squares.len() || sums.counts.len() != counts.len() * spread {
            return Err(Error::ImatrixShape {
                name: name.to_owned(),
                expected: sums.squares.len(),
                actual: squares.len(),
            });
        }
        sums.squares.iter_mut().zip(squares).for_each(|(sum, x)| *sum += x);
        for (i, count) in sums.counts.iter_mut().enumerate() {
            *count += counts[i / spread];
        }
        Ok(())
    }

    /// Adds the sums of another importance matrix of the same model.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::add`].
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        // The older form counts chunks, not rows.
        let rows = if other.chunk_tokens == 0 { self.chunk_tokens.max(1) as f32 } else { 1.0 };
        for (name, sums) in &other.entries {
            let scaled = |values: &[f32]| values.iter().map(|x| x * rows).collect::<Vec<_>>();
            self.add(name, &scaled(&sums.squares), &scaled(&sums.counts))?;
        }
        self.datasets.extend(other.datasets.iter().cloned());
        self.num_chunks = self.num_chunks.saturating_add(other.num_chunks);
        self.chunk_tokens = self.chunk_tokens.max(other.chunk_tokens);
        Ok(())
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Tensors of which some experts were never selected, with the number of those experts.
    pub fn unseen_experts(&self) -> impl Iterator<Item = (&str, usize)> {
        let unseen = |sums: &Sums| sums.counts.iter().filter(|count| **count == 0.0).count();
        let entries = self.entries.iter().map(move |(name, sums)| (name.as_str(), unseen(sums)));
        entries.filter(|(_, unseen)| *unseen > 0)
    }

    /// The importance of the columns of a tensor of `matrices` matrices: mean squares,
    /// `[matrices][columns]`, and 1 for the columns of experts that no token selected. `None` if
    /// the file does not have the tensor.
    ///
    /// # Errors
    ///
    /// [`Error::ImatrixShape`] if the tensor has another shape.
    pub(crate) fn importance(
        &self,
        name: &str,
        (columns, matrices): (usize, usize),
    ) -> Result<Option<Vec<f32>>, Error> {
        let Some(Sums { squares, counts }) = self.entries.get(name) else { return Ok(None) };
        if squares.len() != columns * matrices {
            return Err(Error::ImatrixShape {
                name: name.to_owned(),
                expected: columns * matrices,
                actual: squares.len(),
            });
        }
        let of_count = squares.len() / counts.len();
        let means = squares.chunks(of_count).zip(counts).flat_map(|(squares, &count)| {
            squares.iter().map(move |sum| if count > 0.0 { sum / count } else { 1.0 })
        });
        Ok(Some(means.collect()))
    }

    /// Writes the GGUF form.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let mut writer = GgufWriter::new();
        writer.add("general.type", "imatrix")?;
        let datasets: StringArray = self.datasets.iter().map(String::as_str).collect();
        writer.add(DATASETS, datasets)?;
        writer.add(CHUNK_COUNT, self.num_chunks)?;
        writer.add(CHUNK_SIZE, self.chunk_tokens)?;
        for (name, Sums { squares, counts }) in &self.entries {
            let matrices = counts.len();
            let columns = squares.len() / matrices;
            let shape = |columns| [columns as u64, matrices as u64];
            writer.add_tensor(format!("{name}{SUMS}"), &shape(columns), DType::F32)?;
            writer.add_tensor(format!("{name}{COUNTS}"), &shape(1), DType::F32)?;
        }
        let mut values = self.entries.values().flat_map(|sums| [&sums.squares, &sums.counts]);
        writer.write_file(path, |_, out| {
            let values = values.next().into_iter().flatten();
            let bytes: Vec<u8> = values.flat_map(|x| x.to_le_bytes()).collect();
            Ok(out.write_all(&bytes)?)
        })?;
        Ok(())
    }
}
