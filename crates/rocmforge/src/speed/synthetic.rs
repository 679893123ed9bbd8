//! Synthetic models: the layers of Llama, with weights of one format and without meaning.

use rf_gguf::{Gguf, GgufWriter, StringArray, TensorPlan};
use rf_quant::{DType, quantize_to_vec};

use crate::error::Error;

/// Tokens of the context: room for the steps of a measurement.
pub(super) const CONTEXT_TOKENS: usize = 128;
/// Elements of an attention head.
const HEAD: u64 = 64;
/// Heads for queries per head for keys and values.
const GROUP: u64 = 4;
/// Tokens of the vocabulary.
const TOKENS: u64 = 256;

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelShape {
    layers: u64,
    hidden: u64,
    inner: u64,
}

impl ModelShape {
    /// Many ops with little to read.
    pub(super) const SMALL: Self = Self { layers: 16, hidden: 256, inner: 512 };
    /// Usual proportions.
    pub(super) const WIDE: Self = Self { layers: 1, hidden: 2048, inner: 6144 };
    /// Other proportions: larger matrices and fewer of them.
    pub(super) const OTHER: Self = Self { layers: 1, hidden: 3072, inner: 12288 };

    /// The shape with as many layers as have `bytes` bytes of weights, at least one.
    pub(super) fn filled(self, dtype: DType, bytes: u64) -> Self {
        let elements: u64 = self.matrices().iter().map(|(_, shape)| shape[0] * shape[1]).sum();
        let layer = elements / dtype.block_elements() as u64 * dtype.block_bytes() as u64;
        Self { layers: bytes.div_ceil(layer), ..self }
    }

    /// The matrices of a layer.
    fn matrices(self) -> [(&'static str, [u64; 2]); 7] {
        let Self { hidden, inner, .. } = self;
        [
            ("attn_q", [hidden, hidden]),
            ("attn_k", [hidden, hidden / GROUP]),
            ("attn_v", [hidden, hidden / GROUP]),
            ("attn_output", [hidden, hidden]),
            ("ffn_gate", [hidden, inner]),
            ("ffn_up", [hidden, inner]),
            ("ffn_down", [inner, hidden]),
        ]
    }

    /// The model.
    pub(super) fn model(self, dtype: DType) -> Result<Gguf, Error> {
        let mut writer = GgufWriter::new();
        writer.add("general.architecture", "llama")?;
        for (key, value) in [
            ("context_length", CONTEXT_TOKENS as u64),
            ("embedding_length", self.hidden),
            ("block_count", self.layers),
            ("feed_forward_length", self.inner),
            ("attention.head_count", self.hidden / HEAD),
            ("attention.head_count_kv", self.hidden / HEAD / GROUP),
        ] {
            writer.add(format!("llama.{key}"), value)?;
        }
        let tokens: StringArray = (0..TOKENS).map(|id| format!("<{id}>")).collect();
        let mut kinds = vec![1_i32; TOKENS as usize];
        kinds[0] = 2;
        writer
            .add("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)?
            .add("tokenizer.ggml.model", "llama")?
            .add("tokenizer.ggml.tokens", tokens)?
            .add("tokenizer.ggml.scores", vec![0.0_f32; TOKENS as usize])?
            .add("tokenizer.ggml.token_type", kinds)?
            .add_tensor("token_embd.weight", &[self.hidden, TOKENS], dtype)?
            .add_tensor("output_norm.weight", &[self.hidden], DType::F32)?;
        for layer in 0..self.layers {
            for norm in ["attn_norm", "ffn_norm"] {
                writer.add_tensor(
                    format!("blk.{layer}.{norm}.weight"),
                    &[self.hidden],
                    DType::F32,
                )?;
            }
            for (name, shape) in self.matrices() {
                writer.add_tensor(format!("blk.{layer}.{name}.weight"), &shape, dtype)?;
            }
        }
        let bytes = writer.tensors().iter().map(TensorPlan::size_bytes).sum::<u64>();
        let mut file = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0) + (1 << 20));
        writer.write_to(&mut file, |tensor, out| {
            let columns = usize::try_from(tensor.shape()[0])?;
            let row = row(tensor.dtype(), columns)?;
            for _ in 0..tensor.shape().get(1).copied().unwrap_or(1) {
                out.write_all(&row)?;
            }
            Ok(())
        })?;
        Ok(Gguf::from_bytes(file)?)
    }
}

/// A row of small values. That all rows are alike does not matter: what a kernel does, does not
/// depend on values.
fn row(dtype: DType, columns: usize) -> Result<Vec<u8>, rf_quant::Error> {
    let value = |column: usize| ((column * 37 % 101) as f32 - 50.0) / 2000.0;
    let values: Vec<f32> = (0..columns).map(value).collect();
    quantize_to_vec(dtype, &values)
}
