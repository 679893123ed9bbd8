//! Fusion as a pass over the graph: which ops remain.

use rf_graph::{
    Activation, Attention, Fusions, Graph, GraphBuilder, Op, Prologue, Rope, RopeStyle, ValueId,
    Weight, WeightId, fuse,
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

/// Names of the ops that remain of what `build` writes.
fn fused(fusions: Fusions, build: impl Fn(&mut GraphBuilder) -> ValueId) -> Vec<&'static str> {
    let mut g = GraphBuilder::new();
    let output = build(&mut g);
    names(&fuse(g.finish(output).0, fusions))
}

fn rope(base: f64) -> Rope {
    let inv_freq = (0..2).map(|i| base.powi(-i)).collect();
    Rope { style: RopeStyle::Neox, head_dim: 4, inv_freq, magnitude: 1.0 }
}

fn attention(head_dim: usize) -> Attention {
    let num_heads = WIDTH / head_dim;
    Attention { scale: 0.5, ..Attention::new(0, num_heads, num_heads, head_dim) }
}

/// A layer as Llama and Qwen3 have it.
fn layer(g: &mut GraphBuilder, qk_norm: bool) -> ValueId {
    let x = input(g);
    let gains = matrix(g, 1, WIDTH);
    let normalised = g.rms_norm(x, gains, 1e-5);
    let [mut q, mut k, v] = [(); 3].map(|()| {
        let w = square(g);
        g.matmul(normalised, w)
    });
    if qk_norm {
        let head_gains = matrix(g, 1, 4);
        q = g.rms_norm(q, head_gains, 1e-5);
        k = g.rms_norm(k, head_gains, 1e-5);
    }
    let (q, k) = (g.rope(q, &rope(100.0)), g.rope(k, &rope(100.0)));
    let y = g.attention(q, k, v, &attention(4));
    let w = square(g);
    let y = g.matmul(y, w);
    let x = g.add(x, y);
    let normalised = g.rms_norm(x, gains, 1e-5);
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
    assert_eq!(fused(Fusions::ALL, |g| layer(g, false)), expected);
    assert_eq!(fused(Fusions::ALL, |g| layer(g, true)), expected);
}

#[test]
fn without_fusions_nothing_changes() {
    let mut g = GraphBuilder::new();
    let output = layer(&mut g, true);
    let (graph, _) = g.finish(output);
    assert_eq!(fuse(graph.clone(), Fusions::NONE).ops(), graph.ops());
}

#[test]
fn fused_ops_carry_what_they_replace() {
    let mut g = GraphBuilder::new();
    let output = layer(&mut g, true);
    let graph = fuse(g.finish(output).0, Fusions::ALL);
    let [
        _,
        Op::MatMul(qkv),
        Op::RopeAppend { qk_norm, .. },
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
    assert!(qk_norm.is_some());
    assert!(matches!(down.prologue, Prologue::Glu { activation: Activation::Silu, .. }));
    assert_eq!(down.projections[0].out, graph.output());
}

#[test]
fn each_switch_does_only_its_own() {
    let with = |fusions| fused(fusions, |g| layer(g, true));
    let count = |names: &[&str], name: &str| names.iter().filter(|n| **n == name).count();
    let all = with(Fusions::NONE);
    assert_eq!(all.len(), 19);
    let shared = with(Fusions { shared_operand: true, ..Fusions::NONE });
    assert_eq!((shared.len(), count(&shared, "matmul")), (16, 4));
    // The norm is read by three products: alone, the prologue cannot take it.
    assert_eq!(with(Fusions { norm_prologue: true, ..Fusions::NONE }), all);
    let glu = with(Fusions { glu_prologue: true, ..Fusions::NONE });
    assert_eq!((glu.len(), count(&glu, "glu+matmul"), count(&glu, "glu")), (18, 1, 0));
    let residual = with(Fusions { residual: true, ..Fusions::NONE });
    assert_eq!((residual.len(), count(&residual, "add")), (17, 0));
    let rope = with(Fusions { rope_append: true, ..Fusions::NONE });
    assert_eq!((rope.len(), count(&rope, "rope"), count(&rope, "rms_norm")), (15, 0, 2));
}

#[test]
fn an_operand_with_another_reader_stays() {
    // The normalised value is also added: it must exist.
    let ops = fused(Fusions::ALL, |g| {
        let (x, gains, w) = (input(g), matrix(g, 1, WIDTH), square(g));
        let x = g.rms_norm(x, gains, 1e-5);
        let y = g.matmul(x, w);
        g.add(x, y)
    });
    assert_eq!(ops, ["embed", "rms_norm", "matmul"]);
    // The product is also what is returned.
    let ops = fused(Fusions::ALL, |g| {
        let (x, w) = (input(g), square(g));
        let y = g.matmul(x, w);
        let _sum = g.add(x, y);
        y
    });
    assert_eq!(ops, ["embed", "matmul", "add"]);
    // The gated unit feeds two products at different places, one of them with a norm between.
    let ops = fused(Fusions::ALL, |g| {
        let (x, w, gains) = (input(g), square(g), matrix(g, 1, WIDTH));
        let x = g.glu(Activation::Silu, x, x);
        let y = g.matmul(x, w);
        let x = g.rms_norm(x, gains, 1e-5);
        let z = g.matmul(x, w);
        g.add(y, z)
    });
    assert_eq!(ops, ["embed", "glu", "matmul", "rms_norm+matmul"]);
}

#[test]
fn a_norm_of_parts_of_a_row_is_no_prologue() {
    let ops = fused(Fusions::ALL, |g| {
        let (x, gains, w) = (input(g), matrix(g, 1, 4), square(g));
        let x = g.rms_norm(x, gains, 1e-5);
        g.matmul(x, w)
    });
    assert_eq!(ops, ["embed", "rms_norm", "matmul"]);
}

#[test]
fn a_residual_that_comes_after_the_product_is_added_by_itself() {
    let ops = fused(Fusions::ALL, |g| {
        let (x, w) = (input(g), square(g));
        let y = g.matmul(x, w);
        let late = g.scale(x, 2.0);
        g.add(y, late)
    });
    assert_eq!(ops, ["embed", "matmul", "scale", "add"]);
    let ops = fused(Fusions::ALL, |g| {
        let (x, w) = (input(g), square(g));
        let y = g.matmul(x, w);
        g.add(y, y)
    });
    assert_eq!(ops, ["embed", "matmul", "add"]);
}

#[test]
fn products_of_one_operand_are_not_taken_together_once_a_residual_is_in() {
    let ops = fused(Fusions::ALL, |g| {
        let (x, w, v) = (input(g), square(g), square(g));
        let (y, z) = (g.matmul(x, w), g.matmul(x, v));
        let y = g.add(x, y);
        g.add(y, z)
    });
    // Two projections: neither takes a residual.
    assert_eq!(ops, ["embed", "matmul", "add", "add"]);
}

/// q, k and v of one input, rotated as given, over heads of 4 unless said otherwise.
fn rotated(q_rope: &Rope, k_rope: &Rope, head_dim: usize) -> Vec<&'static str> {
    fused(Fusions::ALL, |g| {
        let (q, k, v) = (input(g), input(g), input(g));
        let (q, k) = (g.rope(q, q_rope), g.rope(k, k_rope));
        g.attention(q, k, v, &attention(head_dim))
    })
}

#[test]
fn rotation_and_append_are_one_only_if_q_and_k_turn_alike() {
    let taken = ["embed", "embed", "embed", "rope+kv_append", "attention"];
    let left = ["embed", "embed", "embed", "rope", "rope", "kv_append", "attention"];
    assert_eq!(rotated(&rope(10.0), &rope(10.0), 4), taken);
    assert_eq!(rotated(&rope(10.0), &rope(20.0), 4), left);
    let scaled = Rope { magnitude: 1.5, ..rope(10.0) };
    assert_eq!(rotated(&rope(10.0), &scaled, 4), left);
    let normal = Rope { style: RopeStyle::Normal, ..rope(10.0) };
    assert_eq!(rotated(&normal, &rope(10.0), 4), left);
    // The cache has heads of 8: one rotation per head of the cache would be another.
    assert_eq!(rotated(&rope(10.0), &rope(10.0), 8), left);
}

#[test]
fn rotated_keys_with_another_reader_stay() {
    let ops = fused(Fusions::ALL, |g| {
        let (q, k, v) = (input(g), input(g), input(g));
        let (q, k) = (g.rope(q, &rope(10.0)), g.rope(k, &rope(10.0)));
        let y = g.attention(q, k, v, &attention(4));
        g.add(y, k)
    });
    assert_eq!(ops, ["embed", "embed", "embed", "rope", "rope", "kv_append", "attention", "add"]);
}

#[test]
fn head_norms_of_different_eps_stay_before_the_rotation() {
    let ops = fused(Fusions::ALL, |g| {
        let (q, k, v, gains) = (input(g), input(g), input(g), matrix(g, 1, 4));
        let (q, k) = (g.rms_norm(q, gains, 1e-5), g.rms_norm(k, gains, 1e-6));
        let (q, k) = (g.rope(q, &rope(10.0)), g.rope(k, &rope(10.0)));
        g.attention(q, k, v, &attention(4))
    });
    assert_eq!(
        ops,
        ["embed", "embed", "embed", "rms_norm", "rms_norm", "rope+kv_append", "attention"]
    );
}

#[test]
fn every_op_of_a_fused_graph_reads_what_was_written_before() {
    for qk_norm in [false, true] {
        let mut g = GraphBuilder::new();
        let output = layer(&mut g, qk_norm);
        let graph = fuse(g.finish(output).0, Fusions::ALL);
        let mut written = Vec::new();
        for op in graph.ops() {
            assert!(op.inputs().iter().all(|id| written.contains(id)), "{op:?}");
            written.extend(op.outputs());
        }
        assert!(written.contains(&graph.output()));
    }
}
