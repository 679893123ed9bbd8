//! Tensors: names, shapes and data.

use std::fmt;
use std::sync::Arc;

use rf_quant::DType;

use crate::data::{FileBytes, TensorData};
use crate::error::Error;
use crate::tensor_type::TensorType;

/// The maximum number of axes of a tensor.
pub(crate) const MAX_DIMENSIONS: usize = 4;

/// One tensor of a model: name, shape, type and data. Cheap to clone except for the name.
#[derive(Clone)]
pub struct TensorInfo {
    pub(crate) name: Box<str>,
    pub(crate) shape: TensorShape,
    pub(crate) ty: TensorType,
    pub(crate) source: Arc<FileBytes>,
    // Always a valid range of `source`.
    pub(crate) start: usize,
    pub(crate) length_bytes: usize,
    /// The offset of the entry in the tensor table.
    pub(crate) entry_offset: u64,
}

impl TensorInfo {
    /// The name, such as `blk.0.attn_q.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One to four lengths, none of them zero; the first axis is the contiguous one.
    ///
    /// A weight that maps `n_in` values to `n_out` has shape `[n_in, n_out]`.
    pub fn shape(&self) -> &[u64] {
        self.shape.as_slice()
    }

    /// The type in the file, supported or not.
    pub const fn ty(&self) -> TensorType {
        self.ty
    }

    /// The format of the data.
    ///
    /// # Errors
    ///
    /// When rf-quant does not support the format. The error names tensor and type.
    pub fn dtype(&self) -> Result<DType, Error> {
        self.ty
            .dtype()
            .ok_or_else(|| Error::UnsupportedType { name: self.name.to_string(), ty: self.ty })
    }

    /// The number of values: the product of the shape.
    pub fn elements(&self) -> u64 {
        self.shape().iter().product()
    }

    /// The size of the data.
    ///
    /// For a type of unknown block size, the space up to the next tensor.
    pub const fn size_bytes(&self) -> usize {
        self.length_bytes
    }

    /// The offset of the data in its file.
    pub const fn file_offset(&self) -> u64 {
        self.start as u64
    }

    /// The stored bytes.
    pub fn data(&self) -> TensorData {
        TensorData::new(Arc::clone(&self.source), self.start..self.start + self.length_bytes)
    }
}

impl fmt::Debug for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorInfo")
            .field("name", &self.name)
            .field("shape", &self.shape())
            .field("ty", &self.ty)
            .field("start", &self.start)
            .field("length_bytes", &self.length_bytes)
            .finish_non_exhaustive()
    }
}

/// One to four axis lengths, stored inline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorShape {
    lengths: [u64; MAX_DIMENSIONS],
    count: u8,
}

impl TensorShape {
    /// The first [`MAX_DIMENSIONS`] of `lengths`. Callers check that there are no more.
    pub(crate) fn new(lengths: &[u64]) -> Self {
        let mut shape = Self { lengths: [1; MAX_DIMENSIONS], count: 0 };
        for (to, &from) in shape.lengths.iter_mut().zip(lengths) {
            *to = from;
            shape.count += 1;
        }
        shape
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.lengths[..usize::from(self.count)]
    }
}
