//! Weights: a shape, a format and shared bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rf_quant::DType;

/// The owner of a weight's bytes, such as a mapped file.
pub trait WeightBytes: Send + Sync {
    /// The blocks of all rows in order, as in GGUF.
    fn bytes(&self) -> &[u8];

    /// Signals that the bytes were copied and are not needed soon. The owner of a mapped file drops
    /// its pages. The bytes stay readable.
    fn release(&self) {}
}

impl WeightBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Format and shape of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightShape {
    /// Format of the elements.
    pub dtype: DType,
    /// Output features.
    pub rows: usize,
    /// Input features; for a norm weight, the number of elements that it normalises together.
    pub columns: usize,
}

/// A weight has a value that is NaN or infinite: results would be wrong, and activations rounded to
/// integers could hide it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "tensor '{tensor}' has a value that is not a number or infinite in row {row}: the file is \
     damaged, so download or convert it again"
)]
pub struct NonFiniteWeight {
    /// Name of the tensor.
    pub tensor: String,
    /// The first such row.
    pub row: usize,
}

/// A matrix `[rows, columns]` (a vector is one row) in any format.
#[derive(Clone)]
pub struct Weight {
    name: String,
    dtype: DType,
    rows: usize,
    columns: usize,
    data: Arc<dyn WeightBytes>,
}

impl Weight {
    /// A weight over existing bytes.
    ///
    /// Returns `None` if the size of `data` is not that of the shape in the format, or the columns
    /// are not a whole number of blocks.
    pub fn new(
        name: impl Into<String>,
        dtype: DType,
        rows: usize,
        columns: usize,
        data: Arc<dyn WeightBytes>,
    ) -> Option<Self> {
        let bytes = dtype.row_bytes(columns)?.checked_mul(rows)?;
        (data.bytes().len() == bytes).then(|| Self {
            name: name.into(),
            dtype,
            rows,
            columns,
            data,
        })
    }

    /// A weight of f32 values, row by row.
    ///
    /// # Panics
    ///
    /// If there are not `rows · columns` values.
    pub fn f32(
        name: impl Into<String>,
        rows: usize,
        columns: usize,
        values: impl AsRef<[f32]>,
    ) -> Self {
        let bytes: Vec<u8> = values.as_ref().iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(name, DType::F32, rows, columns, Arc::new(bytes))
            .expect("as many values as the shape says")
    }

    /// The tensor's name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Format of the bytes.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Format and shape.
    pub fn shape(&self) -> WeightShape {
        WeightShape { dtype: self.dtype, rows: self.rows, columns: self.columns }
    }

    /// The bytes of all rows.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// The bytes of one row.
    pub fn row(&self, row: usize) -> &[u8] {
        let row_bytes = self.bytes().len() / self.rows;
        &self.bytes()[row * row_bytes..][..row_bytes]
    }

    /// Checks that the values of some rows are finite. It reads the scales of block formats only.
    ///
    /// # Errors
    ///
    /// [`NonFiniteWeight`] with the first row that is not.
    ///
    /// # Panics
    ///
    /// If there are no such rows.
    pub fn check_finite(&self, rows: Range<usize>) -> Result<(), NonFiniteWeight> {
        for row in rows {
            let first = rf_quant::first_non_finite_block(self.dtype, self.row(row));
            if first.expect("a row is a whole number of blocks").is_some() {
                return Err(NonFiniteWeight { tensor: self.name.clone(), row });
            }
        }
        Ok(())
    }

    /// See [`WeightBytes::release`].
    pub fn release(&self) {
        self.data.release();
    }

    /// One row as f32.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row_f32(&self, row: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.columns];
        rf_quant::dequantize(self.dtype, self.row(row), &mut out)
            .expect("a row is a whole number of blocks");
        out
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} [{}, {}]", self.name, self.dtype, self.rows, self.columns)
    }
}
