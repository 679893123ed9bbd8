//! The properties of a model that the choice of formats depends on.

use rf_gguf::Gguf;

/// The properties of a model that the rules depend on.
#[derive(Debug)]
pub(crate) struct ModelShape {
    pub(crate) num_layers: usize,
    pub(crate) num_experts: usize,
    pub(crate) heads_per_kv_head: usize,
    pub(crate) num_attention_v: usize,
    /// True if the embedding table is also the output matrix.
    pub(crate) tied: bool,
    pub(crate) is_llama_70b: bool,
}

impl ModelShape {
    pub(crate) fn of(gguf: &Gguf) -> Result<Self, rf_gguf::Error> {
        let metadata = gguf.metadata();
        let architecture = metadata.str("general.architecture")?.unwrap_or_default();
        // Some models have one number per layer; the rules use the first.
        let number = |key: &str| {
            let key = format!("{architecture}.{key}");
            let value = metadata.get(&key)?;
            let number = match value.as_array() {
                Some(array) => array.integers()?.next()?,
                None => value.as_integer()?,
            };
            usize::try_from(number).ok()
        };
        let num_layers = number("block_count").unwrap_or(0);
        let num_heads = number("attention.head_count").unwrap_or(1);
        let num_kv_heads = number("attention.head_count_kv").unwrap_or(num_heads).max(1);
        let parts = || gguf.tensors().iter().map(|tensor| ModelPart::of(tensor.name()));
        Ok(Self {
            num_layers,
            num_experts: number("expert_count").unwrap_or(0),
            heads_per_kv_head: num_heads / num_kv_heads,
            num_attention_v: parts().filter(|&part| part == ModelPart::AttentionV).count(),
            tied: !parts().any(|part| part == ModelPart::Output),
            is_llama_70b: architecture == "llama" && num_layers == 80 && num_heads != num_kv_heads,
        })
    }
}

/// The parts of a model that the rules distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ModelPart {
    Output,
    Embedding,
    /// Includes joint matrices that contain the values.
    AttentionV,
    AttentionK,
    AttentionQ,
    AttentionOutput,
    FfnDown,
    FfnGate,
    FfnUp,
    Other,
}

impl ModelPart {
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::Embedding,
            _ if ["attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"]
                .iter()
                .any(|part| name.contains(part)) =>
            {
                Self::AttentionV
            }
            _ if name.contains("attn_k.weight") => Self::AttentionK,
            _ if name.contains("attn_q.weight") => Self::AttentionQ,
            _ if name.contains("attn_output.weight") => Self::AttentionOutput,
            _ if name.contains("ffn_up") => Self::FfnUp,
            _ if name.contains("ffn_gate") => Self::FfnGate,
            _ if name.contains("ffn_down") => Self::FfnDown,
            _ => Self::Other,
        }
    }
}

/// The number in `blk.NUMBER.`.
pub(crate) fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}
