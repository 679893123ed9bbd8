//! Values and weights of a graph: their ids and shapes.

/// A value of the graph: a matrix `[rows, width]` of f32 with one row per token (or per output
/// row).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in [`Graph::values`](crate::Graph::values).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A weight of the program: a matrix `[rows, columns]` in any format, or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub(crate) u32);

impl WeightId {
    /// Position in [`Program::weights`](crate::Program::weights).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Kind of row; the number of rows is known only per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// One row per token of the batch.
    Token,
    /// One row per requested row of logits.
    Output,
}

/// How a backend may store a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// As f32, `[rows, width]`.
    F32,
    /// As the left operand of the matmuls that read it, in the form of their kernels: int8 with
    /// scales for quantised weights, f32 for float weights, or both. No other op reads it.
    MatMulOperand,
}

/// Shape of a value: `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueShape {
    /// Kind of the rows.
    pub rows: RowKind,
    /// Number of columns.
    pub width: usize,
    /// Storage form. Only [`fuse`](crate::fuse()) sets a form other than [`Storage::F32`].
    pub storage: Storage,
}
