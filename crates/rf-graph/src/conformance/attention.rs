//! The cache and attention over it.

use rf_quant::DType;

use super::inputs::{Net, Schedule, rope, schedule};
use super::{Bound, Case};
use crate::backend::KvType;
use crate::op::{Attention, RopeStyle, ValueId, WeightId};

/// One attention: heads, storage, and what is done before and within.
#[derive(Clone)]
struct Shape {
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    sinks: bool,
    rope: Option<RopeStyle>,
    qk_norm: bool,
    /// Factor of the values; keys are divided by it, and queries multiplied.
    stretch: Option<f32>,
}

const PLAIN: Shape = Shape {
    kv_heads: 2,
    group: 2,
    head_dim: 64,
    window: None,
    softcap: None,
    sinks: false,
    rope: None,
    qk_norm: false,
    stretch: None,
};

impl Shape {
    fn attention(&self, sinks: Option<WeightId>) -> Attention {
        Attention {
            layer: 0,
            num_heads: self.kv_heads * self.group,
            num_kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            // Sharper than 1/√head_dim, so that the weights differ.
            scale: 2.0 / (self.head_dim as f32).sqrt(),
            window: self.window,
            softcap: self.softcap,
            sinks,
        }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Head sizes: those of models, one that is no whole number of vectors, one below a vector.
    let groups = [1, 2, 4, 8].into_iter().cycle();
    for (head_dim, group) in [32, 64, 80, 96, 128, 256, 40, 8].into_iter().zip(groups) {
        for kv in KvType::ALL {
            let name = format!("attention/head-dim-{head_dim}/{kv}");
            cases.push(case(name, kv, turns(16), Shape { group, head_dim, ..PLAIN }));
        }
    }
    for group in [1, 2, 4, 8, 7] {
        for page_tokens in [16, 32, 64] {
            let name = format!("attention/gqa-{group}/page-{page_tokens}");
            let shape = Shape { group, head_dim: 32, ..PLAIN };
            cases.push(case(name, KvType::F16, turns(page_tokens), shape));
        }
    }
    for kv in KvType::ALL {
        for (name, shape) in [
            ("window-5", Shape { window: Some(5), ..PLAIN }),
            ("window-16", Shape { window: Some(16), ..PLAIN }),
            ("window-1", Shape { window: Some(1), ..PLAIN }),
            ("softcap", Shape { softcap: Some(2.0), ..PLAIN }),
            ("softcap-50", Shape { softcap: Some(50.0), ..PLAIN }),
            ("sinks", Shape { sinks: true, ..PLAIN }),
            ("all", Shape { window: Some(20), softcap: Some(5.0), sinks: true, ..PLAIN }),
            // Most keys fall below the normal numbers of fp8, most values above its largest.
            ("stretched", Shape { stretch: Some(500.0), ..PLAIN }),
            ("rope", Shape { rope: Some(RopeStyle::Normal), ..PLAIN }),
            ("rope-neox", Shape { rope: Some(RopeStyle::Neox), head_dim: 80, ..PLAIN }),
            ("rope+norm", Shape { rope: Some(RopeStyle::Neox), qk_norm: true, ..PLAIN }),
        ] {
            let name = format!("attention/{name}/{kv}");
            cases.push(case(name, kv, turns(32), shape));
        }
        // 300 positions: the prompt in two chunks, then tokens one by one.
        let long = schedule(16, &[&[(0, 170)], &[(0, 128)], &[(0, 1)], &[(0, 1)]]);
        let shape = Shape { kv_heads: 1, rope: Some(RopeStyle::Neox), ..PLAIN };
        cases.push(case(format!("attention/long/{kv}"), kv, long.clone(), shape.clone()));
        let shape = Shape { window: Some(100), ..shape };
        cases.push(case(format!("attention/long/window-100/{kv}"), kv, long, shape));
    }
    cases.push(after_input());
    cases
}

/// Keys and values of rows that were handed in. Later values may take over the place of these in memory, so who
/// runs a step twice needs them anew: a wrong key of one step is seen in the next one.
fn after_input() -> Case {
    const WIDTH: usize = 128;
    let mut schedule = turns(16).with_input(WIDTH);
    schedule.kv.dtype = KvType::F32;
    schedule.kv.layers = vec![(PLAIN.kv_heads, PLAIN.head_dim)];
    Case::new("input/attention", Bound::Float, schedule, |net| {
        let x = net.g.input(WIDTH);
        let kv_width = PLAIN.kv_heads * PLAIN.head_dim;
        let weights = [PLAIN.group * kv_width, kv_width, kv_width]
            .map(|rows| net.matrix(DType::F32, rows, WIDTH));
        let [q, k, v] = weights.map(|weight| net.g.matmul(x, weight));
        let attention = net.g.attention(q, k, v, &PLAIN.attention(None));
        // Enough further values to fill every place that became free.
        let mut columns = PLAIN.group * kv_width;
        let mut out = attention;
        for _ in 0..3 {
            let weight = net.matrix(DType::F32, WIDTH, columns);
            (out, columns) = (net.g.matmul(out, weight), WIDTH);
        }
        out
    })
}

/// Prompts and single tokens of three sequences, alone and together, over page boundaries.
fn turns(page_tokens: usize) -> Schedule {
    schedule(
        page_tokens,
        &[
            &[(0, 20)],
            &[(0, 1)],
            &[(1, 33), (0, 1)],
            &[(0, 1), (1, 1)],
            &[(2, 1)],
            &[(1, 1), (2, 5), (0, 9)],
        ],
    )
}

fn case(name: String, kv: KvType, mut schedule: Schedule, shape: Shape) -> Case {
    schedule.kv.dtype = kv;
    schedule.kv.layers = vec![(shape.kv_heads, shape.head_dim)];
    let computed = shape.rope.is_some() || shape.qk_norm;
    Case::new(name, Bound::of_cache(kv, computed), schedule, move |net| build(net, &shape))
}

fn build(net: &mut Net, shape: &Shape) -> ValueId {
    let num_heads = shape.kv_heads * shape.group;
    let mut q = net.input(num_heads * shape.head_dim);
    let mut k = net.input(shape.kv_heads * shape.head_dim);
    let mut v = net.input(shape.kv_heads * shape.head_dim);
    if let Some(factor) = shape.stretch {
        [q, v] = [q, v].map(|x| net.g.scale(x, factor));
        k = net.g.scale(k, 1.0 / factor);
    }
    if shape.qk_norm {
        let (q_gains, k_gains) = (net.gains(shape.head_dim), net.gains(shape.head_dim));
        q = net.g.rms_norm(q, q_gains, 1e-6);
        k = net.g.rms_norm(k, k_gains, 1e-6);
    }
    if let Some(style) = shape.rope {
        let rope = rope(style, shape.head_dim, shape.head_dim, 1.0);
        q = net.g.rope(q, &rope);
        k = net.g.rope(k, &rope);
    }
    let sinks = shape.sinks.then(|| net.vector(num_heads));
    net.g.attention(q, k, v, &shape.attention(sinks))
}
