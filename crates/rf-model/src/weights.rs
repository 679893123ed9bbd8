//! Weights by name, with the shapes that follow from the metadata.

use std::sync::Arc;

use rf_gguf::{Gguf, TensorData};
use rf_graph::{GraphBuilder, Weight, WeightBytes, WeightId};

use crate::error::Error;

/// Tensors of a file, as weights of a graph.
///
/// | tensor | shape `[rows, columns]` |
/// |---|---|
/// | `token_embd.weight`, `output.weight` | `[vocab_size, hidden_size]` |
/// | `output_norm.weight`, `blk.N.attn_norm.weight`, `blk.N.ffn_norm.weight` | `[hidden_size]` |
/// | `blk.N.attn_q.weight` | `[num_heads · head_dim, hidden_size]` |
/// | `blk.N.attn_k.weight`, `blk.N.attn_v.weight` | `[num_kv_heads · head_dim, hidden_size]` |
/// | `blk.N.attn_q_norm.weight`, `blk.N.attn_k_norm.weight` | `[head_dim]` |
/// | `blk.N.attn_output.weight` | `[hidden_size, num_heads · head_dim]` |
/// | `blk.N.ffn_gate.weight`, `blk.N.ffn_up.weight` | `[intermediate_size, hidden_size]` |
/// | `blk.N.ffn_down.weight` | `[hidden_size, intermediate_size]` |
/// | `blk.N.ffn_gate_inp.weight` | `[experts, hidden_size]` |
/// | `blk.N.ffn_{gate,up,down}_exps.weight` | `[experts]` of the above |
/// | `rope_freqs.weight` | `[dims / 2]` |
pub(crate) struct Weights<'a> {
    pub(crate) gguf: &'a Gguf,
    pub(crate) graph: GraphBuilder,
}

struct Mapped(TensorData);

impl WeightBytes for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn release(&self) {
        self.0.release();
    }
}

impl Weights<'_> {
    /// A required matrix.
    pub(crate) fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<WeightId, Error> {
        let weight = self.load(name, &[columns, rows])?;
        Ok(self.graph.weight(weight))
    }

    /// A required vector.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<WeightId, Error> {
        let weight = self.load(name, &[len])?;
        Ok(self.graph.weight(weight))
    }

    /// An optional vector.
    pub(crate) fn optional_vector(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<WeightId>, Error> {
        self.gguf.tensor(name).is_some().then(|| self.vector(name, len)).transpose()
    }

    /// A stack of matrices `[count, rows, columns]`, one weight each.
    pub(crate) fn experts(
        &mut self,
        name: &str,
        count: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<WeightId>, Error> {
        let (data, dtype) = self.data(name, &[columns, rows, count])?;
        let bytes = data.len() / count;
        (0..count)
            .map(|i| {
                let part = data.slice(i * bytes..(i + 1) * bytes).unwrap_or_else(|| data.clone());
                let weight = Weight::new(
                    format!("{name}[{i}]"),
                    dtype,
                    rows,
                    columns,
                    Arc::new(Mapped(part)),
                );
                let weight =
                    weight.ok_or_else(|| self.shape_error(name, &[columns, rows, count]))?;
                Ok(self.graph.weight(weight))
            })
            .collect()
    }

    /// The values of a small optional tensor.
    pub(crate) fn values(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        if self.gguf.tensor(name).is_none() {
            return Ok(None);
        }
        Ok(Some(self.load(name, &[len])?.row_f32(0)))
    }

    fn load(&self, name: &str, shape: &[usize]) -> Result<Weight, Error> {
        let (data, dtype) = self.data(name, shape)?;
        let (columns, rows) = (shape[0], shape.get(1).copied().unwrap_or(1));
        Weight::new(name, dtype, rows, columns, Arc::new(Mapped(data)))
            .ok_or_else(|| self.shape_error(name, shape))
    }

    /// Bytes and type of a tensor, whose shape is checked (contiguous axis first).
    fn data(&self, name: &str, shape: &[usize]) -> Result<(TensorData, rf_graph::DType), Error> {
        let tensor = self.gguf.required_tensor(name)?;
        let found = tensor.shape().iter().copied();
        // Trailing axes of length 1 are ignored.
        let longest = shape.len().max(tensor.shape().len());
        let padded = |axes: &mut dyn Iterator<Item = u64>| {
            axes.chain(std::iter::repeat(1)).take(longest).collect::<Vec<_>>()
        };
        if padded(&mut found.into_iter()) != padded(&mut shape.iter().map(|n| *n as u64)) {
            return Err(self.shape_error(name, shape));
        }
        Ok((self.gguf.data(tensor), tensor.dtype()?))
    }

    fn shape_error(&self, name: &str, expected: &[usize]) -> Error {
        Error::Shape {
            name: name.into(),
            found: self.gguf.tensor(name).map(|t| t.shape().to_vec()).unwrap_or_default(),
            expected: expected.iter().map(|n| *n as u64).collect(),
        }
    }
}
