//! Weights: a shape, a format and shared bytes.

use std::borrow::Cow;
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

/// A matrix `[rows, columns]` (a vector is one row) in any format. It may be a [part](Self::part)
/// of a larger one, whose bytes it shares.
#[derive(Clone)]
pub struct Weight {
    name: String,
    dtype: DType,
    rows: usize,
    columns: usize,
    data: Arc<dyn WeightBytes>,
    /// The place of the first row in the data.
    start: usize,
    /// Bytes from one row to the next.
    stride: usize,
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
        let stride = dtype.row_bytes(columns)?;
        let bytes = stride.checked_mul(rows)?;
        (data.bytes().len() == bytes).then(|| Self {
            name: name.into(),
            dtype,
            rows,
            columns,
            data,
            start: 0,
            stride,
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

    /// The number of bytes of all rows.
    pub fn size_bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// The bytes of all rows. They are copied if they are apart from each other, as those of some
    /// columns of a larger weight are.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        self.rows_bytes(0..self.rows)
    }

    /// The bytes of some rows. They are copied if they are apart from each other.
    ///
    /// # Panics
    ///
    /// If there are no such rows.
    pub fn rows_bytes(&self, rows: Range<usize>) -> Cow<'_, [u8]> {
        assert!(rows.start <= rows.end && rows.end <= self.rows);
        let row_bytes = self.row_bytes();
        if row_bytes < self.stride {
            return Cow::Owned(rows.flat_map(|row| self.row(row)).copied().collect());
        }
        let first = self.start + rows.start * row_bytes;
        Cow::Borrowed(&self.data.bytes()[first..][..rows.len() * row_bytes])
    }

    /// The bytes of one row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[u8] {
        assert!(row < self.rows);
        &self.data.bytes()[self.start + row * self.stride..][..self.row_bytes()]
    }

    fn row_bytes(&self) -> usize {
        self.dtype.row_bytes(self.columns).expect("a row is a whole number of blocks")
    }

    /// The weight of some rows and columns, which shares the bytes of this one.
    ///
    /// Returns `None` if there are no such rows or columns, or the columns do not begin and end
    /// where blocks do.
    pub fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Option<Self> {
        let is_inside = |range: &Range<usize>, len| range.start <= range.end && range.end <= len;
        if !is_inside(&rows, self.rows) || !is_inside(&columns, self.columns) {
            return None;
        }
        let before = self.dtype.row_bytes(columns.start)?;
        self.dtype.row_bytes(columns.len())?;
        Some(Self {
            rows: rows.len(),
            columns: columns.len(),
            start: self.start + rows.start * self.stride + before,
            ..self.clone()
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_has_the_rows_and_columns_of_the_whole() {
        let values: Vec<f32> = (0..24_u8).map(f32::from).collect();
        let whole = Weight::f32("w", 4, 6, values);
        let part = whole.part(1..4, 2..6).unwrap().part(1..3, 1..3).unwrap();
        assert_eq!((part.rows(), part.columns(), part.size_bytes()), (2, 2, 16));
        assert_eq!([part.row_f32(0), part.row_f32(1)], [[15.0, 16.0], [21.0, 22.0]]);
        assert_eq!(&*part.bytes(), [part.row(0), part.row(1)].concat());
        assert!(matches!(whole.part(1..3, 0..6).unwrap().bytes(), Cow::Borrowed(_)));
        assert!(whole.part(3..5, 0..6).is_none() && whole.part(0..4, 2..7).is_none());
    }

    #[test]
    fn blocks_are_not_divided() {
        let bytes = vec![0; DType::Q8_0.row_bytes(96).unwrap()];
        let whole = Weight::new("w", DType::Q8_0, 1, 96, Arc::new(bytes)).unwrap();
        assert_eq!(whole.part(0..1, 32..96).unwrap().columns(), 64);
        assert!(whole.part(0..1, 16..48).is_none() && whole.part(0..1, 32..48).is_none());
    }
}
