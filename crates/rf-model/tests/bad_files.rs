//! Files that contradict themselves or the architecture: the error names the key or tensor, what
//! was expected and what was found.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_gguf::{Gguf, GgufWriter, StringArray, Value};
use rf_model::{Head, ModelConfig, build};
use rf_quant::DType::F32;

/// A model of one layer, with zeros for weights.
#[derive(Clone)]
struct File {
    architecture: &'static str,
    keys: Vec<(&'static str, Value)>,
    tensors: Vec<(&'static str, Vec<u64>)>,
    /// The value of all elements of a tensor; 0 for others.
    filled: Option<(&'static str, f32)>,
    /// Tokens of the vocabulary, if the file has one.
    tokens: Option<usize>,
    head: Head,
}

impl File {
    fn llama() -> Self {
        Self {
            architecture: "llama",
            keys: vec![
                ("context_length", Value::U32(64)),
                ("embedding_length", Value::U32(8)),
                ("block_count", Value::U32(1)),
                ("feed_forward_length", Value::U32(16)),
                ("attention.head_count", Value::U32(2)),
                ("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
            ],
            tensors: vec![
                ("token_embd.weight", vec![8, 32]),
                ("output_norm.weight", vec![8]),
                ("blk.0.attn_norm.weight", vec![8]),
                ("blk.0.attn_q.weight", vec![8, 8]),
                ("blk.0.attn_k.weight", vec![8, 8]),
                ("blk.0.attn_v.weight", vec![8, 8]),
                ("blk.0.attn_output.weight", vec![8, 8]),
                ("blk.0.ffn_norm.weight", vec![8]),
                ("blk.0.ffn_gate.weight", vec![8, 16]),
                ("blk.0.ffn_up.weight", vec![8, 16]),
                ("blk.0.ffn_down.weight", vec![16, 8]),
            ],
            filled: None,
            tokens: None,
            head: Head::Logits,
        }
    }

    /// The tensors with experts instead of the dense layer.
    fn mixture() -> Self {
        Self::llama()
            .key("expert_count", Value::U32(4))
            .key("expert_used_count", Value::U32(2))
            .without("blk.0.ffn_gate.weight")
            .without("blk.0.ffn_up.weight")
            .without("blk.0.ffn_down.weight")
            .tensor("blk.0.ffn_gate_inp.weight", &[8, 4])
            .tensor("blk.0.ffn_gate_exps.weight", &[8, 16, 4])
            .tensor("blk.0.ffn_up_exps.weight", &[8, 16, 4])
            .tensor("blk.0.ffn_down_exps.weight", &[16, 8, 4])
    }

    /// A layer with a state space only.
    fn mamba2() -> Self {
        let llama = Self::llama();
        let mamba = Self { architecture: "mamba2", tensors: Vec::new(), ..llama };
        mamba
            .key("feed_forward_length", Value::U32(0))
            .key("attention.head_count", Value::U32(0))
            .key("ssm.conv_kernel", Value::U32(4))
            .key("ssm.inner_size", Value::U32(16))
            .key("ssm.state_size", Value::U32(8))
            .key("ssm.time_step_rank", Value::U32(2))
            .key("ssm.group_count", Value::U32(1))
            .tensor("token_embd.weight", &[8, 32])
            .tensor("output_norm.weight", &[8])
            .tensor("blk.0.attn_norm.weight", &[8])
            .tensor("blk.0.ssm_in.weight", &[8, 50])
            .tensor("blk.0.ssm_conv1d.weight", &[4, 32])
            .tensor("blk.0.ssm_conv1d.bias", &[32])
            .tensor("blk.0.ssm_dt.bias", &[2])
            .tensor("blk.0.ssm_a", &[1, 2])
            .tensor("blk.0.ssm_d", &[1, 2])
            .tensor("blk.0.ssm_norm.weight", &[16, 1])
            .tensor("blk.0.ssm_out.weight", &[16, 8])
    }

    /// A model whose MTP block is wanted.
    fn with_mtp() -> Self {
        let llama = Self::llama();
        let of_layer = llama.tensors.clone();
        let of_layer = of_layer.iter().filter_map(|(name, shape)| {
            let stem = name.strip_prefix("blk.0.")?;
            Some((&*format!("blk.1.{stem}").leak(), shape.clone()))
        });
        let mut file = llama
            .head(Head::LogitsAndMtp)
            .key("block_count", Value::U32(2))
            .key("nextn_predict_layers", Value::U32(1))
            .tensor("blk.1.nextn.enorm.weight", &[8])
            .tensor("blk.1.nextn.hnorm.weight", &[8])
            .tensor("blk.1.nextn.eh_proj.weight", &[16, 8]);
        file.tensors.extend(of_layer);
        file
    }

    fn head(self, head: Head) -> Self {
        Self { head, ..self }
    }

    fn key(mut self, name: &'static str, value: Value) -> Self {
        self.keys.retain(|(known, _)| *known != name);
        self.keys.push((name, value));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.keys.retain(|(known, _)| *known != name);
        self.tensors.retain(|(known, _)| *known != name);
        self
    }

    fn tensor(self, name: &'static str, shape: &[u64]) -> Self {
        let mut file = self.without(name);
        file.tensors.push((name, shape.to_vec()));
        file
    }

    fn gguf(&self) -> Gguf {
        let mut file = GgufWriter::new();
        file.add("general.architecture", self.architecture).unwrap();
        for (key, value) in &self.keys {
            file.add(format!("{}.{key}", self.architecture), value.clone()).unwrap();
        }
        if let Some(tokens) = self.tokens {
            let tokens: StringArray = (0..tokens).map(|id| id.to_string()).collect();
            file.add("tokenizer.ggml.tokens", tokens).unwrap();
        }
        for (name, shape) in &self.tensors {
            file.add_tensor(*name, shape, F32).unwrap();
        }
        let mut bytes = Vec::new();
        file.write_to(&mut bytes, |tensor, out| {
            let filled = self.filled.filter(|(name, _)| *name == tensor.name());
            let value = filled.map_or(0.0, |(_, value)| value);
            Ok(out.write_all(&value.to_le_bytes().repeat(tensor.size_bytes() as usize / 4))?)
        })
        .unwrap();
        Gguf::from_bytes(bytes).unwrap()
    }

    /// The error of loading, if there is one.
    fn error(&self) -> Option<String> {
        let gguf = self.gguf();
        let model = ModelConfig::from_gguf(&gguf)
            .and_then(|config| build(&gguf, &config, config.context_length, self.head));
        model.err().map(|error| error.to_string())
    }
}

#[track_caller]
fn check(file: &File, expected: &str) {
    assert_eq!(file.error().as_deref(), Some(expected));
}

#[test]
fn the_base_files_are_valid() {
    assert_eq!(File::llama().error(), None);
    assert_eq!(File::mixture().error(), None);
    assert_eq!(File::mamba2().error(), None);
}

#[test]
fn a_missing_tensor() {
    let file = File::llama().without("blk.0.attn_k.weight");
    check(&file, "the file has no tensor 'blk.0.attn_k.weight'");
    let file = File::mixture().without("blk.0.ffn_up_exps.weight");
    check(&file, "the file has no tensor 'blk.0.ffn_up_exps.weight'");
}

#[test]
fn a_tensor_of_another_shape() {
    let file = File::llama().tensor("blk.0.attn_q.weight", &[8, 12]);
    check(&file, "tensor 'blk.0.attn_q.weight' has shape [8, 12], expected [8, 8]");
    let file = File::mixture().tensor("blk.0.ffn_down_exps.weight", &[16, 8, 3]);
    check(&file, "tensor 'blk.0.ffn_down_exps.weight' has shape [16, 8, 3], expected [16, 8, 4]");
    let file = File::llama().tensor("blk.0.attn_q.bias", &[4]);
    check(&file, "tensor 'blk.0.attn_q.bias' has shape [4], expected [8]");
}

#[test]
fn one_tensor_for_q_k_and_v() {
    let file = File::llama()
        .without("blk.0.attn_q.weight")
        .without("blk.0.attn_k.weight")
        .without("blk.0.attn_v.weight");
    assert_eq!(file.clone().tensor("blk.0.attn_qkv.weight", &[8, 24]).error(), None);
    check(
        &file.tensor("blk.0.attn_qkv.weight", &[8, 20]),
        "tensor 'blk.0.attn_qkv.weight' has shape [8, 20], expected [8, 24]",
    );
}

#[test]
fn tensors_that_the_architecture_does_not_use() {
    let file = File::llama().tensor("blk.0.attn_q_norm.weight", &[4]);
    check(
        &file,
        "architecture 'llama' is not supported with these tensors: blk.0.attn_q_norm.weight",
    );
    let file = File::llama().tensor("position_embd.weight", &[8, 64]);
    check(&file, "architecture 'llama' is not supported with these tensors: position_embd.weight");
    let file = File::llama().tensor("blk.0.attn_norm.scale", &[1]);
    check(&file, "architecture 'llama' is not supported with these tensors: blk.0.attn_norm.scale");
    // The scale of a matrix is one number.
    let scaled = |shape| File::llama().tensor("blk.0.attn_q.scale", shape);
    assert_eq!(scaled(&[1]).error(), None);
    check(&scaled(&[2]), "tensor 'blk.0.attn_q.scale' has shape [2], expected [1]");
    // The file has experts, so nothing reads the matrices of a dense layer.
    let file = File::mixture().tensor("blk.0.ffn_gate.weight", &[8, 16]);
    check(&file, "architecture 'llama' is not supported with these tensors: blk.0.ffn_gate.weight");
    // Of the blocks after the last layer, only those that the metadata count are ignored.
    let file = File::llama().tensor("blk.1.nextn.eh_proj.weight", &[16, 8]);
    check(
        &file,
        "architecture 'llama' is not supported with these tensors: blk.1.nextn.eh_proj.weight",
    );
}

#[test]
fn a_block_for_further_tokens() {
    let file = File::with_mtp;
    assert_eq!(file().error(), None);
    assert_eq!(file().head(Head::Logits).error(), None);
    // The embedding, output matrix and norm may be its own.
    let own = file()
        .tensor("blk.1.nextn.embed_tokens.weight", &[8, 32])
        .tensor("blk.1.nextn.shared_head_head.weight", &[8, 32])
        .tensor("blk.1.nextn.shared_head_norm.weight", &[8]);
    assert_eq!(own.error(), None);
    check(
        &file().without("blk.1.nextn.enorm.weight"),
        "the file has no tensor 'blk.1.nextn.enorm.weight'",
    );
    check(&file().without("blk.1.attn_q.weight"), "the file has no tensor 'blk.1.attn_q.weight'");
    check(
        &file().tensor("blk.1.nextn.eh_proj.weight", &[8, 8]),
        "tensor 'blk.1.nextn.eh_proj.weight' has shape [8, 8], expected [16, 8]",
    );
    check(
        &file().tensor("blk.1.nextn.other.weight", &[8]),
        "architecture 'llama' is not supported with these tensors: blk.1.nextn.other.weight",
    );
    let without =
        "the file of architecture 'llama' has no block that predicts further tokens (MTP)";
    check(&file().without("blk.1.nextn.eh_proj.weight"), without);
    check(&File::llama().head(Head::LogitsAndMtp), without);
    // Of several blocks the first one is used, and the others are ignored.
    let several = file()
        .key("block_count", Value::U32(3))
        .key("nextn_predict_layers", Value::U32(2))
        .tensor("blk.2.nextn.eh_proj.weight", &[16, 8]);
    assert_eq!(several.error(), None);
    // States have no block that could be like them.
    let states = File::mamba2()
        .key("block_count", Value::U32(2))
        .key("nextn_predict_layers", Value::U32(1))
        .tensor("blk.1.nextn.eh_proj.weight", &[16, 8]);
    assert_eq!(ModelConfig::from_gguf(&states.gguf()).unwrap().mtp, None);
}

#[test]
fn an_unknown_gate_function() {
    let file = File::mixture().key("expert_gating_func", Value::U32(7));
    check(
        &file,
        "llama.expert_gating_func = 7 is not supported: supported are 1 (softmax), 2 (sigmoid) and \
         3 (softmax of selected)",
    );
}

#[test]
fn parts_that_an_architecture_does_not_have() {
    let with_norms = |architecture, file: File| {
        File { architecture, ..file }
            .tensor("blk.0.attn_q_norm.weight", &[4])
            .tensor("blk.0.attn_k_norm.weight", &[4])
    };
    check(
        &with_norms("qwen3", File::mixture()),
        "qwen3.expert_count = 4 is not supported: the architecture has no experts",
    );
    let dense = with_norms("qwen3moe", File::llama());
    check(&dense, "the metadata has no key 'qwen3moe.expert_count'");
    let mixture = with_norms("qwen3moe", File::mixture());
    assert_eq!(mixture.error(), None);
    check(
        &mixture.key("expert_shared_count", Value::U32(1)),
        "qwen3moe.expert_shared_feed_forward_length = 16 is not supported: the architecture has \
         no shared expert",
    );
}

#[test]
fn settings_that_contradict_each_other() {
    let file = File::mixture().key("expert_used_count", Value::U32(5));
    check(&file, "llama.expert_used_count = 5 is invalid: there are 4 experts");
    let file = File::llama().key("attention.head_count_kv", Value::U32(3));
    check(&file, "llama.attention.head_count_kv = 3 is invalid: it must divide the 2 query heads");
    let file = File::llama().key("block_count", Value::U32(1 << 30));
    check(&file, "llama.block_count = 1073741824 is invalid: the file has fewer tensors");
    let file = File::llama().without("feed_forward_length");
    check(&file, "the metadata has no key 'llama.feed_forward_length'");
}

#[test]
fn recurrent_layers_of_impossible_shapes() {
    let with = |key: &'static str, value| File::mamba2().key(key, Value::U32(value));
    for (file, expected) in [
        (with("ssm.group_count", 3), "group_count = 3 is invalid: it must divide the 2 heads"),
        (with("ssm.inner_size", 15), "size = 15 is invalid: it must be a multiple of the 2 heads"),
        (with("ssm.state_size", 65537), "size = 65537 is invalid: it must be at most 65536"),
        (with("ssm.conv_kernel", 0), "kernel = 0 is invalid: it must be between 1 and 2³¹"),
        (with("ssm.conv_kernel", 5), "'blk.0.ssm_conv1d.weight'"),
        (with("ssm.state_size", 9), "'blk.0.ssm_in.weight'"),
        (File::mamba2().without("blk.0.ssm_a"), "the file has no tensor 'blk.0.ssm_a'"),
    ] {
        let error = file.error().unwrap();
        assert!(error.contains(expected), "{error}");
    }
    for name in ["blk.0.ssm_conv1d.weight", "blk.0.ssm_norm.weight", "blk.0.ssm_a"] {
        let error = File { filled: Some((name, f32::NAN)), ..File::mamba2() }.error().unwrap();
        assert!(error.contains(name), "{error}");
    }
    // Only some architectures have layers without attention, or without a feed-forward part.
    for key in ["attention.head_count", "attention.head_count_kv", "feed_forward_length"] {
        let expected = format!("llama.{key} = 0 is invalid: it must be between 1 and 2³¹");
        check(&File::llama().key(key, Value::U32(0)), &expected);
    }
}

#[test]
fn a_head_that_the_file_does_not_have() {
    let ranks = File::llama().key("pooling_type", Value::U32(4));
    check(
        &ranks,
        "architecture 'llama' with pooling 'rank' does not generate text: it computes embeddings \
         or scores",
    );
    let ranks = ranks.head(Head::Scores);
    check(&ranks, "the file has no tensor 'cls.output.weight'");
    let ranks = ranks.tensor("cls.output.weight", &[8, 2]);
    assert_eq!(ranks.error(), None);
    // A state needs neither scores nor logits.
    assert_eq!(ranks.tensor("output.weight", &[8, 32]).head(Head::State).error(), None);
    let file = File::llama().tensor("cls.output.weight", &[8, 2]);
    check(&file, "architecture 'llama' is not supported with these tensors: cls.output.weight");
}

#[test]
fn attention_in_both_directions() {
    let file = File::llama().key("attention.causal", Value::Bool(false));
    check(
        &file,
        "architecture 'llama' with pooling 'none' does not generate text: it computes embeddings \
         or scores",
    );
    assert_eq!(file.head(Head::State).error(), None);
    let file = File::llama().key("pooling_type", Value::U32(9)).head(Head::State);
    check(
        &file,
        "llama.pooling_type = 9 is not supported: supported are 0 (none), 1 (mean), 2 (cls), 3 \
         (last) and 4 (rank)",
    );
}

#[test]
fn values_that_are_no_numbers() {
    for name in ["blk.0.attn_norm.weight", "output_norm.weight"] {
        for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let file = File { filled: Some((name, value)), ..File::llama() };
            check(
                &file,
                &format!(
                    "tensor '{name}' has the value {shown} at element 0: the file is damaged, so \
                     download or convert it again"
                ),
            );
        }
    }
    let file = File::llama().tensor("blk.0.attn_q.bias", &[8]);
    let file = File { filled: Some(("blk.0.attn_q.bias", f32::NEG_INFINITY)), ..file };
    assert!(file.error().unwrap().starts_with("tensor 'blk.0.attn_q.bias' has the value -inf"));
    let file = File::llama().tensor("rope_freqs.weight", &[2]);
    check(
        &file,
        "tensor 'rope_freqs.weight' must have positive values, and element 0 is not: the file is \
         damaged, so download or convert it again",
    );
    let file = File { filled: Some(("rope_freqs.weight", f32::NAN)), ..file };
    assert!(file.error().unwrap().starts_with("tensor 'rope_freqs.weight' has the value NaN"));
    let file = File { filled: Some(("rope_freqs.weight", 1.0)), ..file };
    assert_eq!(file.error(), None);
}

#[test]
fn a_vocabulary_of_another_size_than_the_embedding() {
    let tokens = |count| File { tokens: Some(count), ..File::llama() };
    assert_eq!(tokens(32).error(), None);
    for count in [31, 33] {
        check(
            &tokens(count),
            &format!(
                "tokenizer.ggml.tokens = array of {count} is invalid: token_embd.weight has 32 rows"
            ),
        );
    }
}

#[test]
fn lists_that_have_no_entry_per_layer() {
    let heads = |counts: &[u32]| {
        let array = rf_gguf::Array::U32(counts.to_vec());
        File::llama().key("attention.head_count_kv", Value::Array(array))
    };
    assert_eq!(heads(&[2]).error(), None);
    for counts in [&[][..], &[2, 2], &[2, 2, 2]] {
        let reason = "is invalid: it needs an entry for each of 1 layers";
        let shown = format!("array of {}", counts.len());
        check(&heads(counts), &format!("llama.attention.head_count_kv = {shown} {reason}"));
    }
}

/// The RoPE of the first layer.
fn rope(file: &File) -> rf_graph::Rope {
    let config = ModelConfig::from_gguf(&file.gguf()).unwrap();
    config.layers[0].attention().unwrap().rope.clone().unwrap()
}

#[test]
fn scaling_of_positions() {
    let text = |kind: &str| Value::String(kind.into());
    let bogus = File::llama().key("rope.scaling.type", text("bogus"));
    let expected = "llama.rope.scaling.type = bogus is not supported: supported are none, linear, \
                    yarn and longrope";
    check(&bogus, expected);
    check(&bogus.key("rope.scaling.factor", Value::F32(2.0)), expected);

    let yarn = File::llama()
        .key("rope.scaling.type", text("yarn"))
        .key("rope.scaling.factor", Value::F32(4.0));
    let zero = yarn.clone().key("rope.scaling.original_context_length", Value::U32(0));
    let trained = yarn.clone().key("rope.scaling.original_context_length", Value::U32(64));
    assert_eq!(rope(&zero), rope(&trained));
    assert_eq!(rope(&zero), rope(&yarn));

    for kind in ["none", "linear", "yarn"] {
        let file = File::llama()
            .key("rope.scaling.type", text(kind))
            .key("rope.scaling.factor", Value::F32(4.0));
        let twice = file.clone().key("rope.scaling.attn_factor", Value::F32(2.0));
        let (twice, once) = (rope(&twice).magnitude, rope(&file).magnitude);
        assert_eq!(twice.to_bits(), (2.0 * once).to_bits(), "{kind}");
    }
}
