//! Models of random numbers: with recurrent layers, and with a block for further tokens (MTP).

use rf_cpu::CpuBackend;
use rf_engine::{Engine, EngineOptions, Model, Outputs, SequenceInput};
use rf_gguf::{Array, Gguf, GgufWriter, Value};
use rf_graph::{Backend, DType};
use rf_oracle::case::Numbers;

use crate::support::{ENGINE, VOCAB_SIZE, tiny};

/// The shape of a model: layers, keys, and tensors with the layers that have them.
pub(crate) struct Shape {
    pub(crate) architecture: &'static str,
    pub(crate) layers: u32,
    keys: &'static [(&'static str, u32)],
    /// `attention.head_count_kv` by layer.
    kv_heads: &'static [u32],
    /// `feed_forward_length` by layer.
    feed_forward: &'static [u32],
    tensors: &'static [(&'static str, &'static [u64], &'static [usize])],
    /// The layer that the block for further tokens is like, if there is a block. The layers then
    /// change the residual so little that the block is often right.
    mtp_like: Option<usize>,
}

pub(crate) const HIDDEN: u64 = 64;

/// Two convolutions, then attention, then a convolution.
pub(crate) const LFM2: Shape = Shape {
    architecture: "lfm2",
    layers: 4,
    keys: &[("attention.head_count", 2), ("rope.dimension_count", 32), ("shortconv.l_cache", 3)],
    kv_heads: &[0, 0, 1, 0],
    feed_forward: &[96; 4],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("shortconv.in_proj.weight", &[HIDDEN, 3 * HIDDEN], &[0, 1, 3]),
        ("shortconv.conv.weight", &[3, HIDDEN], &[0, 1, 3]),
        ("shortconv.out_proj.weight", &[HIDDEN, HIDDEN], &[0, 1, 3]),
        ("attn_q.weight", &[HIDDEN, 64], &[2]),
        ("attn_k.weight", &[HIDDEN, 32], &[2]),
        ("attn_v.weight", &[HIDDEN, 32], &[2]),
        ("attn_q_norm.weight", &[32], &[2]),
        ("attn_k_norm.weight", &[32], &[2]),
        ("attn_output.weight", &[64, HIDDEN], &[2]),
        ("ffn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("ffn_gate.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_up.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_down.weight", &[96, HIDDEN], &[0, 1, 2, 3]),
    ],
    mtp_like: None,
};

/// Gated delta rules, and gated attention in every second layer.
pub(crate) const QWEN35: Shape = Shape {
    architecture: "qwen35",
    layers: 4,
    keys: &[
        ("attention.head_count", 2),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("rope.dimension_count", 16),
        ("full_attention_interval", 2),
        ("ssm.conv_kernel", 4),
        ("ssm.group_count", 2),
        ("ssm.time_step_rank", 4),
        ("ssm.state_size", 16),
        ("ssm.inner_size", 96),
    ],
    kv_heads: &[1; 4],
    feed_forward: &[96; 4],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("attn_qkv.weight", &[HIDDEN, 160], &[0, 2]),
        ("attn_gate.weight", &[HIDDEN, 96], &[0, 2]),
        ("ssm_conv1d.weight", &[4, 160], &[0, 2]),
        ("ssm_dt.bias", &[4], &[0, 2]),
        ("ssm_a", &[4], &[0, 2]),
        ("ssm_alpha.weight", &[HIDDEN, 4], &[0, 2]),
        ("ssm_beta.weight", &[HIDDEN, 4], &[0, 2]),
        ("ssm_norm.weight", &[24], &[0, 2]),
        ("ssm_out.weight", &[96, HIDDEN], &[0, 2]),
        ("attn_q.weight", &[HIDDEN, 128], &[1, 3]),
        ("attn_k.weight", &[HIDDEN, 32], &[1, 3]),
        ("attn_v.weight", &[HIDDEN, 32], &[1, 3]),
        ("attn_q_norm.weight", &[32], &[1, 3]),
        ("attn_k_norm.weight", &[32], &[1, 3]),
        ("attn_output.weight", &[64, HIDDEN], &[1, 3]),
        ("post_attention_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("ffn_gate.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_up.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_down.weight", &[96, HIDDEN], &[0, 1, 2, 3]),
    ],
    mtp_like: None,
};

/// Delta rules with a decay per channel, and latent attention in every second layer.
const KIMI_LINEAR: Shape = Shape {
    architecture: "kimi-linear",
    layers: 4,
    keys: &[
        ("attention.head_count", 2),
        ("attention.key_length_mla", 24),
        ("attention.value_length_mla", 16),
        ("attention.kv_lora_rank", 32),
        ("rope.dimension_count", 8),
        ("kda.head_dim", 16),
        ("ssm.conv_kernel", 4),
    ],
    kv_heads: &[0, 1, 0, 1],
    feed_forward: &[96; 4],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("attn_q.weight", &[HIDDEN, 32], &[0, 2]),
        ("attn_k.weight", &[HIDDEN, 32], &[0, 2]),
        ("attn_v.weight", &[HIDDEN, 32], &[0, 2]),
        ("ssm_conv1d_q.weight", &[4, 1, 32], &[0, 2]),
        ("ssm_conv1d_k.weight", &[4, 1, 32], &[0, 2]),
        ("ssm_conv1d_v.weight", &[4, 1, 32], &[0, 2]),
        ("ssm_f_a.weight", &[HIDDEN, 16], &[0, 2]),
        ("ssm_f_b.weight", &[16, 32], &[0, 2]),
        ("ssm_dt.bias", &[32], &[0, 2]),
        ("ssm_a", &[1, 2], &[0, 2]),
        ("ssm_beta.weight", &[HIDDEN, 2], &[0, 2]),
        ("ssm_g_a.weight", &[HIDDEN, 16], &[0, 2]),
        ("ssm_g_b.weight", &[16, 32], &[0, 2]),
        ("ssm_norm.weight", &[16], &[0, 2]),
        ("attn_q.weight", &[HIDDEN, 48], &[1, 3]),
        ("attn_kv_a_mqa.weight", &[HIDDEN, 40], &[1, 3]),
        ("attn_kv_a_norm.weight", &[32], &[1, 3]),
        ("attn_k_b.weight", &[16, 32, 2], &[1, 3]),
        ("attn_v_b.weight", &[32, 16, 2], &[1, 3]),
        ("attn_output.weight", &[32, HIDDEN], &[0, 1, 2, 3]),
        ("ffn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("ffn_gate.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_up.weight", &[HIDDEN, 96], &[0, 1, 2, 3]),
        ("ffn_down.weight", &[96, HIDDEN], &[0, 1, 2, 3]),
    ],
    mtp_like: None,
};

/// A state space, a feed-forward layer, attention, and a state space.
pub(crate) const NEMOTRON_H: Shape = Shape {
    architecture: "nemotron_h",
    layers: 4,
    keys: &[
        ("attention.head_count", 2),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("ssm.conv_kernel", 4),
        ("ssm.group_count", 2),
        ("ssm.time_step_rank", 4),
        ("ssm.state_size", 16),
        ("ssm.inner_size", 96),
    ],
    kv_heads: &[0, 0, 1, 0],
    feed_forward: &[0, 96, 0, 0],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1, 2, 3]),
        ("ssm_in.weight", &[HIDDEN, 260], &[0, 3]),
        ("ssm_conv1d.weight", &[4, 160], &[0, 3]),
        ("ssm_conv1d.bias", &[160], &[0, 3]),
        ("ssm_dt.bias", &[4], &[0, 3]),
        ("ssm_a", &[1, 4], &[0, 3]),
        ("ssm_d", &[1, 4], &[0, 3]),
        ("ssm_norm.weight", &[48, 2], &[0, 3]),
        ("ssm_out.weight", &[96, HIDDEN], &[0, 3]),
        ("ffn_up.weight", &[HIDDEN, 96], &[1]),
        ("ffn_down.weight", &[96, HIDDEN], &[1]),
        ("attn_q.weight", &[HIDDEN, 64], &[2]),
        ("attn_k.weight", &[HIDDEN, 32], &[2]),
        ("attn_v.weight", &[HIDDEN, 32], &[2]),
        ("attn_output.weight", &[64, HIDDEN], &[2]),
    ],
    mtp_like: None,
};

/// State spaces only: there are no keys and values.
pub(crate) const MAMBA2: Shape = Shape {
    architecture: "mamba2",
    layers: 2,
    keys: &[
        ("attention.head_count", 0),
        ("ssm.conv_kernel", 4),
        ("ssm.group_count", 1),
        ("ssm.time_step_rank", 2),
        ("ssm.state_size", 16),
        ("ssm.inner_size", 80),
    ],
    kv_heads: &[0; 2],
    feed_forward: &[0; 2],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1]),
        ("ssm_in.weight", &[HIDDEN, 194], &[0, 1]),
        ("ssm_conv1d.weight", &[4, 112], &[0, 1]),
        ("ssm_conv1d.bias", &[112], &[0, 1]),
        ("ssm_dt.bias", &[2], &[0, 1]),
        ("ssm_a", &[1, 2], &[0, 1]),
        ("ssm_d", &[1, 2], &[0, 1]),
        ("ssm_norm.weight", &[80], &[0, 1]),
        ("ssm_out.weight", &[80, HIDDEN], &[0, 1]),
    ],
    mtp_like: None,
};

pub(crate) const SHAPES: [Shape; 5] = [LFM2, QWEN35, KIMI_LINEAR, NEMOTRON_H, MAMBA2];

/// Attention with norms of queries and keys.
const QWEN3_MTP: Shape = Shape {
    architecture: "qwen3",
    layers: 2,
    keys: &[("attention.head_count", 2)],
    kv_heads: &[1; 2],
    feed_forward: &[96; 2],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1]),
        ("attn_q.weight", &[HIDDEN, 64], &[0, 1]),
        ("attn_k.weight", &[HIDDEN, 32], &[0, 1]),
        ("attn_v.weight", &[HIDDEN, 32], &[0, 1]),
        ("attn_q_norm.weight", &[32], &[0, 1]),
        ("attn_k_norm.weight", &[32], &[0, 1]),
        ("attn_output.weight", &[64, HIDDEN], &[0, 1]),
        ("ffn_norm.weight", &[HIDDEN], &[0, 1]),
        ("ffn_gate.weight", &[HIDDEN, 96], &[0, 1]),
        ("ffn_up.weight", &[HIDDEN, 96], &[0, 1]),
        ("ffn_down.weight", &[96, HIDDEN], &[0, 1]),
    ],
    mtp_like: Some(1),
};

/// Windows of a page in all layers, that of the block too.
const COHERE2_MTP: Shape = Shape {
    architecture: "cohere2",
    keys: &[("attention.head_count", 2), ("attention.sliding_window", 16)],
    tensors: &[
        ("attn_norm.weight", &[HIDDEN], &[0, 1]),
        ("attn_q.weight", &[HIDDEN, 64], &[0, 1]),
        ("attn_k.weight", &[HIDDEN, 32], &[0, 1]),
        ("attn_v.weight", &[HIDDEN, 32], &[0, 1]),
        ("attn_output.weight", &[64, HIDDEN], &[0, 1]),
        ("ffn_gate.weight", &[HIDDEN, 96], &[0, 1]),
        ("ffn_up.weight", &[HIDDEN, 96], &[0, 1]),
        ("ffn_down.weight", &[96, HIDDEN], &[0, 1]),
    ],
    ..QWEN3_MTP
};

/// Models with a block for further tokens, the last one with recurrent layers.
pub(crate) const WITH_MTP: [Shape; 3] =
    [QWEN3_MTP, COHERE2_MTP, Shape { mtp_like: Some(3), ..QWEN35 }];

impl Shape {
    pub(crate) fn model(&self) -> Model {
        let mut writer = GgufWriter::new();
        let name = |key: &str| format!("{}.{key}", self.architecture);
        writer.add("general.architecture", self.architecture).unwrap();
        let blocks = u32::from(self.mtp_like.is_some());
        for (key, value) in [
            ("context_length", 8192),
            ("embedding_length", HIDDEN as u32),
            ("block_count", self.layers + blocks),
            ("nextn_predict_layers", blocks),
        ] {
            writer.add(name(key), value).unwrap();
        }
        for (key, value) in self.keys {
            writer.add(name(key), *value).unwrap();
        }
        for (key, list) in
            [("attention.head_count_kv", self.kv_heads), ("feed_forward_length", self.feed_forward)]
        {
            writer.add(name(key), Value::Array(Array::U32(list.to_vec()))).unwrap();
        }
        writer.add(name("attention.layer_norm_rms_epsilon"), 1e-5_f32).unwrap();
        let tokenizer = Gguf::open(tiny()).unwrap();
        for (key, value) in tokenizer.metadata().iter() {
            if key.starts_with("tokenizer.") {
                writer.add(key, value.clone()).unwrap();
            }
        }
        let norm = if self.architecture == "lfm2" { "token_embd_norm" } else { "output_norm" };
        writer.add_tensor("token_embd.weight", &[HIDDEN, VOCAB_SIZE as u64], DType::F32).unwrap();
        writer.add_tensor(format!("{norm}.weight"), &[HIDDEN], DType::F32).unwrap();
        for (stem, shape, layers) in self.tensors {
            let block = self.mtp_like.filter(|like| layers.contains(like));
            let block = block.map(|_| self.layers as usize);
            for layer in layers.iter().copied().chain(block) {
                writer.add_tensor(format!("blk.{layer}.{stem}"), shape, DType::F32).unwrap();
            }
        }
        if self.mtp_like.is_some() {
            writer.add_tensor("output.weight", &[HIDDEN, VOCAB_SIZE as u64], DType::F32).unwrap();
            let shapes: [(_, &[u64]); 3] =
                [("enorm", &[HIDDEN]), ("hnorm", &[HIDDEN]), ("eh_proj", &[2 * HIDDEN, HIDDEN])];
            for (stem, shape) in shapes {
                let name = format!("blk.{}.nextn.{stem}.weight", self.layers);
                writer.add_tensor(name, shape, DType::F32).unwrap();
            }
        }
        let mut numbers = Numbers::new(self.architecture);
        let mut bytes = Vec::new();
        let written = writer.write_to(&mut bytes, |tensor, out| {
            let columns = tensor.shape()[0] as usize;
            for index in 0..tensor.size_bytes() as usize / 4 {
                let element = [index / columns, index % columns];
                let value = self.element(tensor.name(), columns, element, numbers.normal());
                out.write_all(&value.to_le_bytes())?;
            }
            Ok(())
        });
        written.unwrap();
        Model::from_gguf(Gguf::from_bytes(bytes).unwrap()).unwrap()
    }

    /// An element of a tensor, from a normal number.
    fn element(&self, name: &str, columns: usize, [row, column]: [usize; 2], x: f32) -> f32 {
        let small = if self.mtp_like.is_some() { 0.15 } else { 1.0 };
        let x_of_row = x / (columns as f32).sqrt();
        match name {
            name if name.ends_with("norm.weight") => 1.0 + 0.2 * x,
            name if name.ends_with("ssm_a") => -x.exp(),
            name if name.contains("conv") => x,
            "token_embd.weight" if self.mtp_like.is_some() => x,
            // The block sees the embedding of the token, and little of the state.
            name if name.ends_with("eh_proj.weight") => {
                small * x_of_row + f32::from(u8::from(row == column))
            }
            name if ["attn_output.", "ffn_down.", "ssm_out."].iter().any(|n| name.contains(n)) => {
                small * x_of_row
            }
            _ => x_of_row,
        }
    }

    pub(crate) fn engine(&self, threads: usize, options: EngineOptions) -> Engine {
        self.engine_on(&threads_of_cpu(threads), options)
    }

    /// The logits of a text in two batches.
    pub(crate) fn logits_on(&self, backend: &dyn Backend, ids: &[u32]) -> Vec<f32> {
        let mut engine = self.engine_on(backend, ENGINE);
        let mut session = engine.session();
        let mut feed = |ids| {
            let feed = SequenceInput { session: &mut session, ids, outputs: Outputs::All };
            engine.forward(&mut [feed]).unwrap()
        };
        [feed(&ids[..50]), feed(&ids[50..])].concat()
    }

    pub(crate) fn engine_on(&self, backend: &dyn Backend, options: EngineOptions) -> Engine {
        Engine::load(self.model(), backend, options, &mut |_| ()).unwrap()
    }
}

pub(crate) fn threads_of_cpu(threads: usize) -> CpuBackend {
    rf_testing::engine::cpu(threads)
}
