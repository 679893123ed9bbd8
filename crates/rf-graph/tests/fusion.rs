//! Tests of the fusion pass: the ops that remain in the graph.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::sync::Arc;

use rf_graph::{
    Activation, Attention, DType, Fusions, Graph, GraphBuilder, Op, Prologue, Rope, RopeStyle,
    Router, Storage, ValueId, Weight, WeightId, WeightRule, fuse,
};

const WIDTH: usize = 8;

fn matrix(g: &mut GraphBuilder, rows: usize, columns: usize) -> WeightId {
    g.weight(Weight::f32("w", rows, columns, vec![0.5; rows * columns]))
}

fn square(g: &mut GraphBuilder) -> WeightId {
    matrix(g, WIDTH, WIDTH)
}

fn input(g: &mut GraphBuilder) -> ValueId {
    let table = matrix(g, 3, WIDTH);
    g.embed(table, 1.0)
}

fn names(graph: &Graph) -> Vec<&'static str> {
    graph.ops().iter().map(Op::name).collect()
}

/// Names of the ops that remain after fusing the graph of `build`.
fn fused(fusions: Fusions, build: impl Fn(&mut GraphBuilder) -> ValueId) -> Vec<&'static str> {
    let mut g = GraphBuilder::new();
    let output = build(&mut g);
    names(&fuse(g.finish(output).0, fusions))
}

fn rope(base: f64) -> Rope {
    let inv_freq = (0..2).map(|i| base.powi(-i)).collect();
    Rope { style: RopeStyle::Neox, head_dim: 4, inv_freq, magnitude: 1.0, axes: None }
}

fn attention(head_dim: usize) -> Attention {
    let num_heads = WIDTH / head_dim;
    Attention { scale: 0.5, ..Attention::new(0, num_heads, num_heads, head_dim) }
}

/// An embedding and a layer of Llama or, with `qk_norm`, Qwen3.
fn layer(g: &mut GraphBuilder, qk_norm: bool) -> ValueId {
    let x = input(g);
    layer_on(g, x, qk_norm)
}

/// A layer of Llama or, with `qk_norm`, Qwen3.
fn layer_on(g: &mut GraphBuilder, x: ValueId, qk_norm: bool) -> ValueId {
    let weight = matrix(g, 1, WIDTH);
    let normalised = g.rms_norm(x, weight, 1e-5);
    let [mut q, mut k, v] = [(); 3].map(|()| {
        let w = square(g);
        g.matmul(normalised, w)
    });
    if qk_norm {
        let head_norm = matrix(g, 1, 4);
        q = g.rms_norm(q, head_norm, 1e-5);
        k = g.rms_norm(k, head_norm, 1e-5);
    }
    let (q, k) = (g.rope(q, &rope(100.0)), g.rope(k, &rope(100.0)));
    let y = g.attention(q, k, v, &attention(4));
    let w = square(g);
    let y = g.matmul(y, w);
    let x = g.add(x, y);
    let normalised = g.rms_norm(x, weight, 1e-5);
    let (gate, up) = (matrix(g, 32, WIDTH), matrix(g, 32, WIDTH));
    let (gate, up) = (g.matmul(normalised, gate), g.matmul(normalised, up));
    let y = g.glu(Activation::Silu, gate, up);
    let down = matrix(g, WIDTH, 32);
    let y = g.matmul(y, down);
    g.add(x, y)
}

#[test]
fn a_layer_becomes_six_ops() {
    let expected = [
        "embed",
        "rms_norm+matmul",
        "rope+kv_append",
        "attention",
        "matmul",
        "rms_norm+matmul",
        "glu+matmul",
    ];
    assert_eq!(fused(Fusions::PROLOGUES, |g| layer(g, false)), expected);
    assert_eq!(fused(Fusions::PROLOGUES, |g| layer(g, true)), expected);
}

/// The fusions of a backend whose epilogues need quantised weights and whole blocks of 32 rows.
const QUANTIZED_EPILOGUES: Fusions = {
    let rule = WeightRule { quantized: true, row_multiple: 32 };
    Fusions { glu_epilogue: Some(rule), norm_epilogue: Some(rule), ..Fusions::EPILOGUES }
};

/// A Llama model with weights of one format: layers of width 256, final norm and output matrix.
fn llama(dtype: DType, num_layers: usize) -> Graph {
    const WIDTH: usize = 256;
    const HEAD: usize = 64;
    let mut g = GraphBuilder::new();
    let matrix = |g: &mut GraphBuilder, rows: usize, columns: usize| {
        let bytes = vec![0; dtype.row_bytes(columns).unwrap() * rows];
        g.weight(Weight::new("w", dtype, rows, columns, Arc::new(bytes)).unwrap())
    };
    let norm = |g: &mut GraphBuilder, x| {
        let weight = g.weight(Weight::f32("norm", 1, WIDTH, vec![1.0; WIDTH]));
        g.rms_norm(x, weight, 1e-5)
    };
    let inv_freq: Vec<f64> = (0..HEAD as i32 / 2).map(|i| 0.5_f64.powi(i)).collect();
    let rope = Rope {
        style: RopeStyle::Normal,
        head_dim: HEAD,
        inv_freq: inv_freq.into(),
        magnitude: 1.0,
        axes: None,
    };
    let table = matrix(&mut g, 3, WIDTH);
    let mut x = g.embed(table, 1.0);
    for layer in 0..num_layers {
        let normalised = norm(&mut g, x);
        let [q, k, v] = [WIDTH, HEAD, HEAD].map(|rows| {
            let w = matrix(&mut g, rows, WIDTH);
            g.matmul(normalised, w)
        });
        let (q, k) = (g.rope(q, &rope), g.rope(k, &rope));
        let y = g.attention(q, k, v, &Attention::new(layer, WIDTH / HEAD, 1, HEAD));
        let w = matrix(&mut g, WIDTH, WIDTH);
        let y = g.matmul(y, w);
        x = g.add(x, y);
        let normalised = norm(&mut g, x);
        let [gate, up] = [(); 2].map(|()| {
            let w = matrix(&mut g, 2 * WIDTH, WIDTH);
            g.matmul(normalised, w)
        });
        let y = g.glu(Activation::Silu, gate, up);
        let w = matrix(&mut g, WIDTH, 2 * WIDTH);
        let y = g.matmul(y, w);
        x = g.add(x, y);
    }
    let x = g.select_rows(x);
    let x = norm(&mut g, x);
    let head = matrix(&mut g, 5, WIDTH);
    let logits = g.matmul(x, head);
    g.finish(logits).0
}

#[test]
fn a_layer_with_epilogues_is_five_ops() {
    let graph = fuse(llama(DType::Q4K, 3), QUANTIZED_EPILOGUES);
    let layer = ["matmul", "rope+attention", "matmul+rms_norm", "matmul+glu", "matmul+rms_norm"];
    let mut expected = vec!["embed+rms_norm"];
    expected.extend([layer; 3].concat());
    // The selection of rows follows the last layer.
    *expected.last_mut().unwrap() = "matmul";
    expected.extend(["select_rows", "rms_norm", "matmul"]);
    assert_eq!(names(&graph), expected);
}

#[test]
fn with_epilogues_every_matmul_reads_a_finished_operand() {
    for dtype in [DType::Q4K, DType::F16] {
        let graph = fuse(llama(dtype, 2), QUANTIZED_EPILOGUES);
        let mut operands = 0;
        for op in graph.ops() {
            let Op::MatMul(m) = op else { continue };
            let Prologue::Plain(x) = m.prologue else { panic!("{op:?}") };
            assert_eq!(graph.value(x).storage, Storage::MatMulOperand, "{op:?}");
            operands += 1;
        }
        assert_eq!(operands, 2 * 4 + 1);
        let stored = graph.values().iter().filter(|v| v.storage == Storage::MatMulOperand).count();
        assert_eq!(stored, operands);
    }
}

#[test]
fn epilogues_follow_the_rule_for_weights() {
    // With float weights, norms and gated units remain separate ops.
    let floats = names(&fuse(llama(DType::F16, 2), QUANTIZED_EPILOGUES));
    assert_eq!(
        floats[1..8],
        ["matmul", "rope+attention", "matmul", "rms_norm", "matmul", "glu", "matmul"]
    );
    let rule = WeightRule { quantized: true, row_multiple: 1024 };
    let rows =
        Fusions { glu_epilogue: Some(rule), norm_epilogue: Some(rule), ..Fusions::EPILOGUES };
    assert_eq!(names(&fuse(llama(DType::Q8_0, 2), rows)), names(&fuse(llama(DType::F16, 2), rows)));
    assert_eq!(
        names(&fuse(llama(DType::F16, 2), Fusions::EPILOGUES)),
        names(&fuse(llama(DType::Q8_0, 2), QUANTIZED_EPILOGUES))
    );
}

/// Names after fusing `glu(x·G, x·U)·D` with epilogues.
fn gated(build: impl Fn(&mut GraphBuilder, ValueId) -> (ValueId, ValueId)) -> Vec<&'static str> {
    fused(Fusions::EPILOGUES, |g| {
        let x = input(g);
        let (gate, up) = build(g, x);
        let y = g.glu(Activation::Silu, gate, up);
        let down = square(g);
        g.matmul(y, down)
    })
}

#[test]
fn a_gated_unit_becomes_an_epilogue_only_of_two_plain_projections() {
    let project = |g: &mut GraphBuilder, x| {
        let w = square(g);
        g.matmul(x, w)
    };
    let separate = ["embed", "matmul", "glu", "matmul"];
    assert_eq!(gated(|g, x| (project(g, x), project(g, x))), ["embed", "matmul+glu", "matmul"]);
    // No fusion: a bias, the wrong order, another format, the same projection twice.
    let biased = |g: &mut GraphBuilder, x| {
        let (w, bias) = (square(g), matrix(g, 1, WIDTH));
        g.linear(x, w, Some(bias))
    };
    assert_eq!(gated(|g, x| (project(g, x), biased(g, x))), separate);
    let swapped = gated(|g, x| {
        let up = project(g, x);
        (project(g, x), up)
    });
    assert_eq!(swapped, separate);
    let mixed = gated(|g, x| {
        let bytes = Arc::new(vec![0; 2 * WIDTH * WIDTH]);
        let half = g.weight(Weight::new("w", DType::F16, WIDTH, WIDTH, bytes).unwrap());
        (project(g, x), g.matmul(x, half))
    });
    assert_eq!(mixed, separate);
    let same = gated(|g, x| {
        let y = project(g, x);
        (y, y)
    });
    assert_eq!(same, separate);
}

#[test]
fn a_norm_with_another_reader_is_no_epilogue() {
    let ops = fused(Fusions::EPILOGUES, |g| {
        let (x, weight, v, w) = (input(g), matrix(g, 1, WIDTH), square(g), square(g));
        let x = g.matmul(x, v);
        let x = g.rms_norm(x, weight, 1e-5);
        let y = g.matmul(x, w);
        g.add(x, y)
    });
    assert_eq!(ops, ["embed", "matmul", "rms_norm", "matmul"]);
    // A norm over parts of a row is not fused either.
    let ops = fused(Fusions::EPILOGUES, |g| {
        let (x, weight, v, w) = (input(g), matrix(g, 1, 4), square(g), square(g));
        let x = g.matmul(x, v);
        let x = g.rms_norm(x, weight, 1e-5);
        g.matmul(x, w)
    });
    assert_eq!(ops, ["embed", "matmul", "rms_norm", "matmul"]);
}

#[test]
fn attention_with_heads_of_part_of_a_block_writes_f32() {
    let storage = |head_dim: usize| {
        let mut g = GraphBuilder::new();
        let table = matrix(&mut g, 3, 64);
        let x = g.embed(table, 1.0);
        let y = g.attention(x, x, x, &Attention::new(0, 64 / head_dim, 64 / head_dim, head_dim));
        let w = matrix(&mut g, 8, 64);
        let out = g.matmul(y, w);
        fuse(g.finish(out).0, Fusions::EPILOGUES).value(y).storage
    };
    assert_eq!(storage(32), Storage::MatMulOperand);
    assert_eq!(storage(16), Storage::F32);
}

#[test]
fn subsets_have_each_fusion_alone() {
    let subsets = Fusions::ALL.subsets();
    assert_eq!((subsets[0], *subsets.last().unwrap()), (Fusions::NONE, Fusions::ALL));
    assert!(subsets.contains(&Fusions::PROLOGUES) && subsets.contains(&Fusions::EPILOGUES));
    assert_eq!(subsets.len(), 19);
    assert_eq!(Fusions::NONE.subsets(), [Fusions::NONE]);
}

#[test]
fn without_fusions_nothing_changes() {
    let mut g = GraphBuilder::new();
    let output = layer(&mut g, true);
    let (graph, _) = g.finish(output);
    assert_eq!(fuse(graph.clone(), Fusions::NONE).ops(), graph.ops());
}

#[test]
fn fused_ops_have_the_attributes_of_the_ops_they_replace() {
    let mut g = GraphBuilder::new();
    let output = layer(&mut g, true);
    let graph = fuse(g.finish(output).0, Fusions::PROLOGUES);
    let [
        _,
        Op::MatMul(qkv),
        Op::RopeAppend { heads, .. },
        _,
        Op::MatMul(o),
        Op::MatMul(up),
        Op::MatMul(down),
    ] = graph.ops()
    else {
        panic!("{:?}", names(&graph));
    };
    assert!(matches!(qkv.prologue, Prologue::RmsNorm { .. }));
    assert_eq!([qkv, o, up, down].map(|m| m.projections.len()), [3, 1, 2, 1]);
    assert_eq!([qkv, o, up, down].map(|m| m.residual.is_some()), [false, true, false, true]);
    assert!(heads.qk_norm.is_some());
    assert!(matches!(down.prologue, Prologue::Glu { activation: Activation::Silu, .. }));
    assert_eq!(down.projections[0].out, graph.output());
}

#[test]
fn each_switch_enables_only_its_own_fusion() {
    let with = |fusions| fused(fusions, |g| layer(g, true));
    let count = |names: &[&str], name: &str| names.iter().filter(|n| **n == name).count();
    let all = with(Fusions::NONE);
    assert_eq!(all.len(), 19);
    let shared = with(Fusions { shared_operand: true, ..Fusions::NONE });
    assert_eq!((shared.len(), count(&shared, "matmul")), (16, 4));
    // Three matmuls read the norm, so it cannot be a prologue without shared operands.
    assert_eq!(with(Fusions { norm_prologue: true, ..Fusions::NONE }), all);
    let glu = with(Fusions { glu_prologue: true, ..Fusions::NONE });
    assert_eq!((glu.len(), count(&glu, "glu+matmul"), count(&glu, "glu")), (18, 1, 0));
    let residual = with(Fusions { residual: true, ..Fusions::NONE });
    assert_eq!((residual.len(), count(&residual, "add")), (17, 0));
    let rope = with(Fusions { rope_append: true, ..Fusions::NONE });
    assert_eq!((rope.len(), count(&rope, "rope"), count(&rope, "rms_norm")), (15, 0, 2));
    assert_eq!(with(Fusions { append_attention: true, ..Fusions::NONE }), all);
    let attention = Fusions { append_attention: true, rope_append: true, ..Fusions::NONE };
    let names = ["rope+attention", "rope+kv_append", "attention"];
    assert_eq!(names.map(|name| count(&with(attention), name)), [1, 0, 0]);
}

#[test]
fn an_operand_with_another_reader_remains() {
    // The addition also reads the normalised value, so the norm remains.
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (x, weight, w) = (input(g), matrix(g, 1, WIDTH), square(g));
        let x = g.rms_norm(x, weight, 1e-5);
        let y = g.matmul(x, w);
        g.add(x, y)
    });
    assert_eq!(ops, ["embed", "rms_norm", "matmul"]);
    // The output of the matmul is also the output of the graph.
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (x, w) = (input(g), square(g));
        let y = g.matmul(x, w);
        let _sum = g.add(x, y);
        y
    });
    assert_eq!(ops, ["embed", "matmul", "add"]);
    // Two matmuls read the gated unit, one of them through a norm.
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (x, w, weight) = (input(g), square(g), matrix(g, 1, WIDTH));
        let x = g.glu(Activation::Silu, x, x);
        let y = g.matmul(x, w);
        let x = g.rms_norm(x, weight, 1e-5);
        let z = g.matmul(x, w);
        g.add(y, z)
    });
    assert_eq!(ops, ["embed", "glu", "matmul", "rms_norm+matmul"]);
}

#[test]
fn a_norm_of_parts_of_a_row_is_no_prologue() {
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (x, weight, w) = (input(g), matrix(g, 1, 4), square(g));
        let x = g.rms_norm(x, weight, 1e-5);
        g.matmul(x, w)
    });
    assert_eq!(ops, ["embed", "rms_norm", "matmul"]);
}

#[test]
fn a_residual_written_after_the_matmul_remains_an_add() {
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (x, w) = (input(g), square(g));
        let y = g.matmul(x, w);
        let late = g.scale(x, 2.0);
        g.add(y, late)
    });
    assert_eq!(ops, ["embed", "matmul", "scale", "add"]);
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (x, w) = (input(g), square(g));
        let y = g.matmul(x, w);
        g.add(y, y)
    });
    assert_eq!(ops, ["embed", "matmul", "add"]);
}

#[test]
fn a_shared_operand_prevents_the_residual() {
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (x, w, v) = (input(g), square(g), square(g));
        let (y, z) = (g.matmul(x, w), g.matmul(x, v));
        let y = g.add(x, y);
        g.add(y, z)
    });
    // A matmul with two projections has no residual.
    assert_eq!(ops, ["embed", "matmul", "add", "add"]);
}

/// Names of the fused ops of RoPE and attention. RoPE uses heads of 4 elements.
fn rotated(q_rope: &Rope, k_rope: &Rope, head_dim: usize) -> Vec<&'static str> {
    fused(Fusions::PROLOGUES, |g| {
        let (q, k, v) = (input(g), input(g), input(g));
        let (q, k) = (g.rope(q, q_rope), g.rope(k, k_rope));
        g.attention(q, k, v, &attention(head_dim))
    })
}

#[test]
fn rope_and_append_are_fused_only_if_q_and_k_have_the_same_rope() {
    let taken = ["embed", "embed", "embed", "rope+kv_append", "attention"];
    let left = ["embed", "embed", "embed", "rope", "rope", "kv_append", "attention"];
    assert_eq!(rotated(&rope(10.0), &rope(10.0), 4), taken);
    assert_eq!(rotated(&rope(10.0), &rope(20.0), 4), left);
    let scaled = Rope { magnitude: 1.5, ..rope(10.0) };
    assert_eq!(rotated(&rope(10.0), &scaled, 4), left);
    let normal = Rope { style: RopeStyle::Normal, ..rope(10.0) };
    assert_eq!(rotated(&normal, &rope(10.0), 4), left);
    // Heads of the cache have 8 elements and heads of RoPE have 4.
    assert_eq!(rotated(&rope(10.0), &rope(10.0), 8), left);
}

#[test]
fn attention_over_keys_that_are_appended_already_is_an_op_of_its_own() {
    let ops = fused(Fusions::EPILOGUES, |g| {
        let (q, k, v) = (input(g), input(g), input(g));
        let (q, k) = (g.rope(q, &rope(10.0)), g.rope(k, &rope(10.0)));
        let y = g.attention(q, k, v, &attention(4));
        // A second attention over the same cache has its own queries.
        let other = g.attend(v, &attention(4));
        g.add(y, other)
    });
    let attention = ["rope+attention", "attention"];
    assert_eq!(ops, [&["embed"; 3][..], &attention, &["add"]].concat());
}

#[test]
fn rotated_keys_with_another_reader_remain() {
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (q, k, v) = (input(g), input(g), input(g));
        let (q, k) = (g.rope(q, &rope(10.0)), g.rope(k, &rope(10.0)));
        let y = g.attention(q, k, v, &attention(4));
        g.add(y, k)
    });
    assert_eq!(ops, ["embed", "embed", "embed", "rope", "rope", "kv_append", "attention", "add"]);
}

#[test]
fn head_norms_of_different_eps_remain_before_rope() {
    let ops = fused(Fusions::PROLOGUES, |g| {
        let (q, k, v, weight) = (input(g), input(g), input(g), matrix(g, 1, 4));
        let (q, k) = (g.rms_norm(q, weight, 1e-5), g.rms_norm(k, weight, 1e-6));
        let (q, k) = (g.rope(q, &rope(10.0)), g.rope(k, &rope(10.0)));
        g.attention(q, k, v, &attention(4))
    });
    assert_eq!(
        ops,
        ["embed", "embed", "embed", "rms_norm", "rms_norm", "rope+kv_append", "attention"]
    );
}

#[test]
fn every_op_of_a_fused_graph_reads_only_values_written_before() {
    for fusions in Fusions::ALL.subsets() {
        for qk_norm in [false, true] {
            let mut g = GraphBuilder::new();
            let x = layer(&mut g, qk_norm);
            let output = layer_on(&mut g, x, qk_norm);
            let graph = fuse(g.finish(output).0, fusions);
            let mut written = Vec::new();
            for op in graph.ops() {
                assert!(op.inputs().iter().all(|id| written.contains(id)), "{op:?}");
                written.extend(op.outputs());
            }
            assert!(written.contains(&graph.output()), "{fusions:?}");
        }
    }
}

/// A mixture of experts with its residual.
fn experts(g: &mut GraphBuilder) -> ValueId {
    let x = input(g);
    let norm = matrix(g, 1, WIDTH);
    let normed = g.rms_norm(x, norm, 1e-5);
    let router = matrix(g, 4, WIDTH);
    let logits = g.matmul(normed, router);
    let route = g.route(logits, &Router::softmax(2));
    let all = |g: &mut GraphBuilder, x| {
        let weights = (0..4).map(|_| square(g)).collect();
        g.expert_matmul(x, route, weights, None)
    };
    let (gate, up) = (all(g, normed), all(g, normed));
    let h = g.glu(Activation::Silu, gate, up);
    let y = all(g, h);
    let y = g.combine_experts(y, route);
    g.add(x, y)
}

#[test]
fn gate_and_up_of_experts_are_one_op() {
    let epilogues = Fusions { operand_block: Some(WIDTH), ..Fusions::EPILOGUES };
    assert_eq!(
        fused(epilogues, experts),
        ["embed", "rms_norm", "matmul+route", "expert_matmul+glu", "expert_matmul+combine"]
    );
    let start = ["embed", "rms_norm", "matmul", "route"];
    let rest = ["expert_matmul", "glu", "expert_matmul", "combine_experts"];
    assert_eq!(fused(Fusions::PROLOGUES, experts), [start, rest].concat());
}

/// A mixture of experts and a shared one, with gates in the format of the others or not.
fn shared_expert(g: &mut GraphBuilder, is_alike: bool) -> ValueId {
    let x = input(g);
    let router = matrix(g, 4, WIDTH);
    let logits = g.matmul(x, router);
    let route = g.route(logits, &Router::softmax(2));
    let all = |g: &mut GraphBuilder, x| {
        let weights = (0..4).map(|_| square(g)).collect();
        g.expert_matmul(x, route, weights, None)
    };
    let (gate, up) = (all(g, x), all(g, x));
    let h = g.glu(Activation::Silu, gate, up);
    let y = all(g, h);
    let y = g.combine_experts(y, route);
    let inner = if is_alike { WIDTH } else { 2 * WIDTH };
    let (gate, up) = (matrix(g, inner, WIDTH), matrix(g, inner, WIDTH));
    let (gate, up) = (g.matmul(x, gate), g.matmul(x, up));
    let h = g.glu(Activation::Silu, gate, up);
    let down = matrix(g, WIDTH, inner);
    let shared = g.matmul(h, down);
    let gate = matrix(g, 1, WIDTH);
    let gate = g.matmul(x, gate);
    let shared = g.sigmoid_gate(shared, gate);
    g.add(y, shared)
}

#[test]
fn a_shared_expert_joins_the_others_where_it_is_like_them() {
    let plain = ["embed", "matmul", "route", "expert_matmul", "expert_matmul", "glu"];
    let rest = ["expert_matmul", "combine_experts"];
    let shared = ["matmul", "matmul", "glu", "matmul", "matmul", "sigmoid_gate", "add"];
    let joins = |most_slots| Fusions { shared_expert: Some(most_slots), ..Fusions::NONE };
    let unchanged = [plain.as_slice(), &rest, &shared].concat();
    assert_eq!(fused(joins(3), |g| shared_expert(g, false)), unchanged);
    assert_eq!(fused(joins(2), |g| shared_expert(g, true)), unchanged);
    // The gate is multiplied before the route.
    let start = ["embed", "matmul", "matmul", "route", "expert_matmul", "expert_matmul", "glu"];
    assert_eq!(fused(joins(3), |g| shared_expert(g, true)), [start.as_slice(), &rest].concat());
    assert_eq!(
        fused(Fusions::EPILOGUES, |g| shared_expert(g, true)),
        ["embed", "matmul+route", "expert_matmul+glu", "expert_matmul+combine"]
    );
}

#[test]
fn a_norm_before_a_gate_becomes_a_part_of_it_if_its_groups_have_the_size() {
    let names = |group| {
        let fusions = Fusions { gated_norm: Some(group), ..Fusions::NONE };
        fused(fusions, |g| {
            let (x, gate) = (input(g), input(g));
            let norm = matrix(g, 1, WIDTH / 2);
            let x = g.rms_norm(x, norm, 1e-5);
            g.glu(Activation::Silu, gate, x)
        })
    };
    assert_eq!(names(WIDTH / 2), ["embed", "embed", "rms_norm+glu"]);
    assert_eq!(names(WIDTH), ["embed", "embed", "rms_norm", "glu"]);
}

#[test]
fn operands_of_experts_are_stored_as_such() {
    let mut g = GraphBuilder::new();
    let output = experts(&mut g);
    let graph = g.finish(output).0;
    let stored = |block| {
        let fusions = Fusions { operand_block: Some(block), ..Fusions::NONE };
        let graph = fuse(graph.clone(), fusions);
        graph.values().iter().filter(|value| value.storage == Storage::MatMulOperand).count()
    };
    // The norm, which the router reads too, and the gated unit.
    assert_eq!(stored(WIDTH), 2);
    // A slot of the gated unit is half of its row.
    assert_eq!(stored(2 * WIDTH), 0);
}
