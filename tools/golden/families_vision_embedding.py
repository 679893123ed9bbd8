"""Descriptions of models that read images, and of models that embed or rank texts."""

from families import QKV_BIAS, family, moe_shape, small, untied


@family("qwen3vl")
def _(m):
    m.image = m.pick((3, 4), (4, 2))
    small(m, head_dim=m.pick(16, 24), rope=1e6)
    m.set(rope__dimension_sections=m.pick([3, 3, 2, 0], [4, 4, 4, 0]))
    m.exercises = "qk-norm per head, interleaved M-RoPE sections: text positions make them plain NEOX RoPE; tied"


@family("qwen3vl_deepstack", "qwen3vl")
def _(m):
    m.image = m.pick((3, 4), (4, 2))
    small(m, head_dim=m.pick(16, 24), rope=1e6)
    m.set(
        rope__dimension_sections=m.pick([3, 3, 2, 0], [4, 4, 4, 0]), n_deepstack_layers=m.pick(2, 1)
    )
    m.exercises = "qwen3vl with deepstack: an image row has (1 + n) n_embd values, part i + 1 is added after layer i; see `image`"


@family("qwen3vlmoe")
def _(m):
    m.image = m.pick((3, 4), (4, 2))
    small(m, head_dim=m.pick(16, 24), rope=1e6, **moe_shape(m))
    m.set(rope__dimension_sections=m.pick([3, 3, 2, 0], [4, 4, 4, 0]))
    untied(m)
    m.exercises = "qwen3moe with M-RoPE sections (softmax over all, top-k, renormalised), untied"


@family("qwen2vl")
def _(m):
    m.image = m.pick((3, 4), (4, 2))
    small(m, rope=1e6)
    m.set(rope__dimension_sections=m.pick([2, 1, 1, 0], [2, 2, 2, 0]))
    m.keep.append(QKV_BIAS)
    # llama.cpp b11739 does not read the key of this architecture and adds nothing to the mean square.
    m.set(attention__layer_norm_rms_epsilon=0.0)
    m.exercises = "q/k/v biases, M-RoPE in consecutive sections: text positions make them plain NEOX RoPE; tied"


@family("gemma_embedding", "gemma-embedding")
def _(m):
    small(m, layers=3, head_dim=True, rope=1e6)
    m.set(
        attention__sliding_window=m.pick(8, 12),
        attention__sliding_window_pattern=m.pick([True, True, False, True], [False, True, True]),
        rope__freq_base_swa=10000.0,
        pooling_type=1,
        dense_2_feat_in=m.E,
        dense_2_feat_out=m.pick(64, 96),
        dense_3_feat_in=m.pick(64, 96),
        dense_3_feat_out=m.E,
    )
    m.keep.append(r"^dense_")
    m.rule(r"^token_embd", "mat", 1.0)
    m.pooling = "mean"
    m.perturb["attention.sliding_window"] = m.keys["attention.sliding_window"] + 2
    m.exercises = "Gemma 3 blocks without a causal mask, symmetric window (half on either side), mean pooling, then two dense layers"


@family("nomic_bert_moe", "nomic-bert-moe")
def _(m):
    small(m, layers=3, ln=True, kv=4, experts=m.pick(4, 3), used=2)
    m.set(moe_every_n_layers=2, pooling_type=1)
    m.tokenizer = {"token_type_count": 1}
    m.keep += [QKV_BIAS, r"attn_output\.bias$", r"ffn_(up|down)\.bias$", r"^token_types"]
    m.fuse_qkv = True
    m.pooling = "mean"
    m.exercises = "norms after the residual, fused qkv with biases, NEOX RoPE, GELU without gate; every 2nd layer (1, 3) is MoE without gate, softmax, not renormalised"


@family("modern_bert", "modern-bert")
def _(m):
    small(m, layers=3, ln=True, kv=4, rope=160000.0)
    m.set(
        attention__sliding_window=m.pick(8, 12),
        attention__sliding_window_pattern=m.pick(3, 2),
        rope__freq_base_swa=10000.0,
        pooling_type=m.pick(1, 2),
    )
    m.pooling = m.pick("mean", "cls")
    m.perturb["attention.sliding_window"] = m.keys["attention.sliding_window"] + 2
    m.exercises = "LayerNorm without bias before each block, layer 0 without attention norm, fused qkv, GeGLU in ffn_up, symmetric window, RoPE base per layer kind"


@family("modern_bert_rank", "modern-bert")
def _(m):
    small(m, layers=2, ln=True, kv=4, rope=160000.0)
    m.set(
        attention__sliding_window=m.pick(8, 6),
        attention__sliding_window_pattern=2,
        rope__freq_base_swa=10000.0,
        pooling_type=4,
        hidden_activation="silu",
        classifier__output_labels=m.pick(["score"], ["no", "yes"]),
    )
    m.keep += [r"^cls"]
    m.pooling = "rank"
    m.perturb["attention.sliding_window"] = m.keys["attention.sliding_window"] + 2
    m.exercises = "reranker: mean of the positions, cls, GELU, cls.norm, cls.output; hidden_activation silu: SwiGLU"


@family("jina_bert_v2", "jina-bert-v2")
def _(m):
    small(m, ln=True, kv=4, rope=0)
    m.set(pooling_type=1)
    m.tokenizer = {"token_type_count": 2}
    m.keep += [QKV_BIAS, r"ffn_gate\.weight"] + m.pick([], [r"attn_[qk]_norm\.(weight|bias)"])
    m.pooling = "mean"
    m.exercises = "symmetric ALiBi (bias 8), GeGLU, norms after the residual with biases" + m.pick(
        "", ", qk LayerNorm over the whole row"
    )


@family("jina_bert_v3", "jina-bert-v3")
def _(m):
    small(m, ln=True, kv=4, rope=20000.0)
    m.set(pooling_type=m.pick(1, 2))
    m.tokenizer = {"token_type_count": 1}
    m.keep += [QKV_BIAS, r"attn_output\.bias$", r"ffn_(up|down)\.bias$", r"^token_types"]
    m.fuse_qkv = True
    m.pooling = m.pick("mean", "cls")
    m.exercises = "bert blocks with RoPE (NEOX), fused qkv with biases, GELU without gate"


@family("neo_bert", "neo-bert")
def _(m):
    small(m, kv=4)
    m.set(pooling_type=m.pick(2, 1))
    m.fuse_qkv = True
    m.pooling = m.pick("cls", "mean")
    m.exercises = "RMS norms before each block, final enc.output_norm, NORM RoPE, fused qkv, SwiGLU with gate and up in ffn_up"


@family("eurobert")
def _(m):
    small(m, kv=4, rope=250000.0)
    m.set(pooling_type=m.pick(1, 2))
    m.pooling = m.pick("mean", "cls")
    m.exercises = "llama blocks without a causal mask, NEOX RoPE"


@family("llama_embed", "llama-embed")
def _(m):
    small(m, rope=500000.0)
    m.set(pooling_type=1)
    m.pooling = "mean"
    m.exercises = "llama blocks without a causal mask, NORM RoPE, GQA, mean pooling"


@family("t5encoder")
def _(m):
    small(m, kv=4, head_dim=True, rope=0)
    m.set(attention__relative_buckets_count=m.pick(16, 8), pooling_type=1)
    m.rule(r"attn_rel_b", "vec", 1.5, 0.0)
    m.keep += [r"ffn_gate\.weight", r"blk\.0\.attn_rel_b"]
    m.pooling = "mean"
    m.exercises = "bidirectional relative position buckets (layer 0's table for all), scores not scaled, RMS norms, gated GELU"
