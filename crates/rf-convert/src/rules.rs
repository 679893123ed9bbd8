//! The choice of a format for each tensor, by the rules of llama.cpp.
//!
//! Sensitive tensors get finer formats than the rest. Rows that are not whole blocks get a format
//! with smaller blocks.

use std::collections::HashMap;
use std::str::FromStr;

use regex::Regex;

use rf_gguf::{Gguf, TensorInfo};
use rf_quant::{DType, Family};

use crate::imatrix::Imatrix;
use crate::mix::{Mix, Recipe};
use crate::model::{ModelPart, ModelShape, layer_of};
use crate::parts::TensorPlace;

/// Changes to the rules of a mix.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options<'a> {
    /// Store every matrix in the base format of the mix.
    pub pure: bool,
    /// Keep the output matrix as it is.
    pub leave_output: bool,
    /// Quantise tensors again that are quantised already.
    pub allow_requantize: bool,
    /// The importance of the columns.
    pub imatrix: Option<&'a Imatrix>,
    /// The format of the output matrix, instead of that of the mix.
    pub output_type: Option<DType>,
    /// The format of the token embedding, instead of that of the mix.
    pub embedding_type: Option<DType>,
    /// Formats of tensors by their names, instead of those of the mix. The first match counts.
    pub tensor_types: Vec<TensorType>,
}

impl<'a> Options<'a> {
    /// Sets [`pure`](Self::pure).
    #[must_use]
    pub fn with_pure(mut self, pure: bool) -> Self {
        self.pure = pure;
        self
    }

    /// Sets [`leave_output`](Self::leave_output).
    #[must_use]
    pub fn with_leave_output(mut self, leave_output: bool) -> Self {
        self.leave_output = leave_output;
        self
    }

    /// Sets [`allow_requantize`](Self::allow_requantize).
    #[must_use]
    pub fn with_allow_requantize(mut self, allow_requantize: bool) -> Self {
        self.allow_requantize = allow_requantize;
        self
    }

    /// Sets [`imatrix`](Self::imatrix).
    #[must_use]
    pub fn with_imatrix(mut self, imatrix: impl Into<Option<&'a Imatrix>>) -> Self {
        self.imatrix = imatrix.into();
        self
    }

    /// Sets [`output_type`](Self::output_type).
    #[must_use]
    pub fn with_output_type(mut self, output_type: impl Into<Option<DType>>) -> Self {
        self.output_type = output_type.into();
        self
    }

    /// Sets [`embedding_type`](Self::embedding_type).
    #[must_use]
    pub fn with_embedding_type(mut self, embedding_type: impl Into<Option<DType>>) -> Self {
        self.embedding_type = embedding_type.into();
        self
    }

    /// Sets [`tensor_types`](Self::tensor_types).
    #[must_use]
    pub fn with_tensor_types(mut self, tensor_types: Vec<TensorType>) -> Self {
        self.tensor_types = tensor_types;
        self
    }
}

/// The format of the tensors whose name has a match.
#[derive(Clone, Debug)]
pub struct TensorType {
    pattern: Regex,
    dtype: DType,
}

impl TensorType {
    /// Returns true if the name of a tensor has a match.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.is_match(name)
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.pattern, self.dtype)
    }
}

impl FromStr for TensorType {
    type Err = String;

    /// Parses `attn_v=q6_k`: a regular expression and the name of a format.
    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, name) = text
            .rsplit_once('=')
            .ok_or("expected a regular expression and a format, as in attn_v=q6_k")?;
        let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
        Ok(Self { pattern, dtype: format_of_name(name)? })
    }
}

/// The format called `name`, in any case.
///
/// # Errors
///
/// If there is none; the message lists those that exist.
pub fn format_of_name(name: &str) -> Result<DType, String> {
    let found = DType::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<_> = DType::ALL.into_iter().map(DType::name).collect();
        format!("unknown format '{}': the formats are {}", name.escape_debug(), names.join(", "))
    })
}

/// The chosen format of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorFormat {
    pub(crate) dtype: DType,
    /// The format of the rules, if the rows are not whole blocks of it.
    pub(crate) fallback_from: Option<DType>,
}

/// The format of each tensor of `gguf`, in the order of the file.
///
/// # Errors
///
/// When a tensor has an unsupported type.
pub(crate) fn targets(
    mix: &Mix,
    gguf: &Gguf,
    options: &Options<'_>,
) -> Result<Vec<TensorFormat>, rf_gguf::Error> {
    let tensors = gguf.tensors();
    let shape = ModelShape::of(gguf)?;
    let mut targets = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        targets.push(TensorFormat { dtype: tensor.dtype()?, fallback_from: None });
    }
    // llama.cpp counts layers in this order, whatever the order of the file.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&index| (layer_of(tensors[index].name()), tensors[index].name()));
    let mut seen = Seen::default();
    for index in order {
        let tensor = &tensors[index];
        if is_quantized(tensor, options) {
            let by_mix = if options.pure || mix.is_float() {
                mix.base
            } else {
                // Also for tensors with a format of their own: the rules count them.
                mix.by_rules(tensor, &shape, &mut seen, options.imatrix.is_some())
            };
            let wanted = options.of_tensor(tensor.name()).unwrap_or(by_mix);
            targets[index] = fitting(wanted, tensor.shape()[0]);
        }
    }
    Ok(targets)
}

impl Options<'_> {
    /// The format that the options ask for.
    fn of_tensor(&self, name: &str) -> Option<DType> {
        let rule = self.tensor_types.iter().find(|rule| rule.pattern.is_match(name));
        match name {
            "output.weight" if self.output_type.is_some() => self.output_type,
            "token_embd.weight" if self.embedding_type.is_some() => self.embedding_type,
            _ => rule.map(|rule| rule.dtype),
        }
    }
}

impl Mix {
    fn by_rules(
        &self,
        tensor: &TensorInfo,
        shape: &ModelShape,
        seen: &mut Seen,
        has_imatrix: bool,
    ) -> DType {
        let part = ModelPart::of(tensor.name());
        if part == ModelPart::Output || (shape.tied && part == ModelPart::Embedding) {
            return self
                .output(tensor.shape()[0].is_multiple_of(self.base.block_elements() as u64));
        }
        if self.recipe == Recipe::Mxfp4Moe {
            let experts = tensor.shape().get(2).is_some_and(|&count| count > 1);
            return if experts { DType::Mxfp4 } else { DType::Q8_0 };
        }
        let index = seen.count(part);
        // Experts of one layer are several tensors in old files.
        let named = layer_of(tensor.name()).filter(|_| shape.num_experts > 1);
        self.matrix(shape, TensorPlace { part, index, layer: named.unwrap_or(index), has_imatrix })
    }
}

/// The number of tensors of each part so far, in the order of layers.
#[derive(Default)]
struct Seen(HashMap<ModelPart, usize>);

impl Seen {
    /// The tensors of a part before this one.
    fn count(&mut self, part: ModelPart) -> usize {
        let count = self.0.entry(part).or_default();
        *count += 1;
        *count - 1
    }
}

/// Returns true if a mix changes the tensor: only large matrices, not small and sensitive ones.
fn is_quantized(tensor: &TensorInfo, options: &Options<'_>) -> bool {
    let name = tensor.name();
    let axes = tensor.shape().iter().rposition(|&length| length > 1).map_or(1, |axis| axis + 1);
    axes >= 2
        && name.ends_with("weight")
        && !KEPT.iter().any(|part| name.contains(part))
        && !matches!(name, "position_embd.weight" | "token_types.weight")
        && !(options.leave_output && name == "output.weight")
}

/// Name fragments of matrices that no mix changes: norms, routers, convolutions and small matrices
/// of some architectures.
#[rustfmt::skip]
const KEPT: [&str; 31] = [
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
    "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", ".rel_pos",
    ".patch_embd", ".patch_merger", "a.rvq.codebook",
];

/// `wanted`, or the nearest format whose blocks fill rows of `columns` values.
fn fitting(wanted: DType, columns: u64) -> TensorFormat {
    let fits = |dtype: DType| columns.is_multiple_of(dtype.block_elements() as u64);
    if fits(wanted) {
        return TensorFormat { dtype: wanted, fallback_from: None };
    }
    let smaller_blocks = match wanted {
        DType::Q2K | DType::Q3K | DType::Tq1_0 | DType::Tq2_0 | DType::Q1_0 | DType::Q2_0 => {
            DType::Q4_0
        }
        DType::Iq4Xs | DType::Nvfp4 => DType::Iq4Nl,
        _ if wanted.family() == Family::Codebook => DType::Iq4Nl,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        _ => DType::F16,
    };
    let dtype = if fits(smaller_blocks) { smaller_blocks } else { DType::F16 };
    TensorFormat { dtype, fallback_from: Some(wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fill_blocks_get_smaller_ones() {
        let dtype = |wanted, columns| fitting(wanted, columns).dtype;
        assert_eq!(dtype(DType::Q4K, 512), DType::Q4K);
        for (wanted, smaller) in [
            (DType::Q2K, DType::Q4_0),
            (DType::Q3K, DType::Q4_0),
            (DType::Iq4Xs, DType::Iq4Nl),
            (DType::Iq2Xs, DType::Iq4Nl),
            (DType::Tq1_0, DType::Q4_0),
            (DType::Q4K, DType::Q5_0),
            (DType::Q5K, DType::Q5_1),
            (DType::Q6K, DType::Q8_0),
        ] {
            assert_eq!(dtype(wanted, 896), smaller);
            assert_eq!(dtype(wanted, 100), DType::F16);
        }
        assert_eq!(dtype(DType::Q4_0, 100), DType::F16);
        assert_eq!(dtype(DType::Q1_0, 864), DType::Q4_0);
        assert_eq!(dtype(DType::Nvfp4, 864), DType::Iq4Nl);
        assert_eq!(fitting(DType::Q4K, 896).fallback_from, Some(DType::Q4K));
    }
}
