//! The KV cache, and attention over it.

use rf_graph::{Attention, KvLayer, KvType, OperandFormat, RopeAxis, RopeStyle, ValueId, WeightId};
use rf_kv::{PageGroup, PageSize};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::{Case, CaseShape};
use super::net::Net;
use super::rows::{AxisRule, rope, rope_with_axes};
use super::schedule::Schedule;

/// Attention over a cache of a type, with the scale and the causal mask of models. Each copy has
/// its own layer of the cache. All copies read the same queries, keys and values.
pub fn attention(
    kv: KvType,
    [num_heads, num_kv_heads, head_dim]: [usize; 3],
    schedule: Schedule,
) -> Case {
    let name = format!("attention/{num_heads}:{num_kv_heads}x{head_dim}/{kv}");
    let group = num_heads / num_kv_heads;
    let variant = Variant { num_kv_heads, group, head_dim, sharpness: 1.0, ..PLAIN };
    case(name, kv, schedule, variant)
}

/// Keys and values of all layers of a model, written to a cache of a type. The graph couples that
/// with attention; a window of one token makes the cost of attention negligible.
pub fn kv_append(
    kv: KvType,
    [num_layers, num_kv_heads, head_dim]: [usize; 3],
    schedule: Schedule,
) -> Case {
    let name = format!("kv_append/{num_layers}x{num_kv_heads}x{head_dim}/{kv}");
    let what =
        (Some(OperandFormat::Cache(kv)), CaseShape::Layers { num_layers, num_kv_heads, head_dim });
    let schedule = schedule.with_cache(kv, vec![(num_kv_heads, head_dim); num_layers]);
    Case::new(name, what, ErrorBound::of_cache(kv, false), schedule, move |net, copies| {
        let [q, k, v] = [(); 3].map(|()| net.input(num_kv_heads * head_dim));
        let mut out = q;
        for layer in 0..copies * num_layers {
            let attention = Attention {
                window: Some(1),
                ..Attention::new(layer, num_kv_heads, num_kv_heads, head_dim)
            };
            out = net.g.attention(q, k, v, &attention);
        }
        out
    })
}

/// The attributes of an attention case: heads, and the ops before and within attention.
#[derive(Clone)]
struct Variant {
    num_kv_heads: usize,
    group: usize,
    head_dim: usize,
    /// The factor of 1/√`head_dim`.
    sharpness: f32,
    causal: bool,
    /// True if every second span is media, whose rows see each other both ways if so.
    media: Option<bool>,
    window: Option<usize>,
    chunk: Option<usize>,
    softcap: Option<f32>,
    alibi: Option<f32>,
    sinks: bool,
    rope: Option<RopeStyle>,
    /// Elements of a head that RoPE rotates; all by default.
    rope_dims: Option<usize>,
    /// The coordinate of each pair, with positions of each token.
    axes: Option<AxisRule>,
    qk_norm: bool,
    /// The factor of queries and values, and the divisor of keys.
    stretch: Option<f32>,
}

const PLAIN: Variant = Variant {
    num_kv_heads: 2,
    group: 2,
    head_dim: 64,
    // This scale makes the weights of the keys differ clearly.
    sharpness: 2.0,
    causal: true,
    media: None,
    window: None,
    chunk: None,
    softcap: None,
    alibi: None,
    sinks: false,
    rope: None,
    rope_dims: None,
    axes: None,
    qk_norm: false,
    stretch: None,
};

impl Variant {
    fn attention(&self, layer: usize, sinks: Option<WeightId>) -> Attention {
        Attention {
            layer,
            num_heads: self.num_kv_heads * self.group,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            latent_dim: None,
            scale: self.sharpness / (self.head_dim as f32).sqrt(),
            causal: self.causal,
            non_causal_media: self.media.is_some(),
            window: self.window,
            chunk: self.chunk,
            softcap: self.softcap,
            sinks,
            alibi: self.alibi,
        }
    }

    fn build(&self, net: &mut Net, copies: usize) -> ValueId {
        let num_heads = self.num_kv_heads * self.group;
        let q_width = num_heads * self.head_dim;
        let mut q = match self.media {
            Some(_) => net.media(DType::F32, q_width, 1.0),
            None => net.input(q_width),
        };
        let mut k = net.input(self.num_kv_heads * self.head_dim);
        let mut v = net.input(self.num_kv_heads * self.head_dim);
        if let Some(factor) = self.stretch {
            [q, v] = [q, v].map(|x| net.g.scale(x, factor));
            k = net.g.scale(k, 1.0 / factor);
        }
        if self.qk_norm {
            let [q_norm, k_norm] = [(); 2].map(|()| net.norm_weight(self.head_dim));
            q = net.g.rms_norm(q, q_norm, 1e-6);
            k = net.g.rms_norm(k, k_norm, 1e-6);
        }
        if let Some(style) = self.rope {
            let dims = self.rope_dims.unwrap_or(self.head_dim);
            let rope = match self.axes {
                Some(axis) => rope_with_axes(style, self.head_dim, dims, axis),
                None => rope(style, self.head_dim, dims, 1.0),
            };
            q = net.g.rope(q, &rope);
            k = net.g.rope(k, &rope);
        }
        let sinks = self.sinks.then(|| net.vector(num_heads));
        let mut out = q;
        for layer in 0..copies {
            out = net.g.attention(q, k, v, &self.attention(layer, sinks));
        }
        out
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Head sizes: those of models, one that is not a multiple of a vector, one below a vector.
    let groups = [1, 2, 4, 8].into_iter().cycle();
    for (head_dim, group) in [32, 64, 80, 96, 128, 256, 512, 40, 8].into_iter().zip(groups) {
        for kv in KvType::ALL {
            let name = format!("attention/head-dim-{head_dim}/{kv}");
            cases.push(case(name, kv, turns(16), Variant { group, head_dim, ..PLAIN }));
        }
    }
    for group in [1, 2, 4, 8, 7] {
        for page_tokens in [16, 32, 64] {
            let name = format!("attention/gqa-{group}/page-{page_tokens}");
            let variant = Variant { group, head_dim: 32, ..PLAIN };
            cases.push(case(name, KvType::F16, turns(page_tokens), variant));
        }
    }
    for kv in KvType::ALL {
        for (name, variant) in [
            ("window-5", Variant { window: Some(5), ..PLAIN }),
            ("window-16", Variant { window: Some(16), ..PLAIN }),
            ("window-1", Variant { window: Some(1), ..PLAIN }),
            ("chunk-8", Variant { chunk: Some(8), ..PLAIN }),
            ("chunk-16", Variant { chunk: Some(16), ..PLAIN }),
            ("softcap", Variant { softcap: Some(2.0), ..PLAIN }),
            ("softcap-50", Variant { softcap: Some(50.0), ..PLAIN }),
            ("sinks", Variant { sinks: true, ..PLAIN }),
            ("all", Variant { window: Some(20), softcap: Some(5.0), sinks: true, ..PLAIN }),
            ("both-directions", Variant { causal: false, ..PLAIN }),
            ("alibi", Variant { alibi: Some(8.0), ..PLAIN }),
            ("alibi/heads-7", Variant { alibi: Some(4.0), group: 7, num_kv_heads: 1, ..PLAIN }),
            (
                "alibi/all",
                Variant {
                    alibi: Some(2.0),
                    window: Some(20),
                    softcap: Some(5.0),
                    sinks: true,
                    ..PLAIN
                },
            ),
            ("alibi/both-directions", Variant { alibi: Some(8.0), causal: false, ..PLAIN }),
            (
                "both-directions/sinks",
                Variant { causal: false, head_dim: 80, softcap: Some(5.0), sinks: true, ..PLAIN },
            ),
            ("both-directions/window-8", Variant { causal: false, window: Some(8), ..PLAIN }),
            (
                "both-directions/window-21",
                Variant { causal: false, window: Some(21), sinks: true, ..PLAIN },
            ),
            // Most keys fall below the normal numbers of fp8, most values above its largest.
            ("stretched", Variant { stretch: Some(500.0), ..PLAIN }),
            ("rope", Variant { rope: Some(RopeStyle::Normal), ..PLAIN }),
            ("rope-neox", Variant { rope: Some(RopeStyle::Neox), head_dim: 80, ..PLAIN }),
            ("rope+norm", Variant { rope: Some(RopeStyle::Neox), qk_norm: true, ..PLAIN }),
        ] {
            cases.push(case(format!("attention/{name}/{kv}"), kv, turns(32), variant));
        }
        cases.extend(rotated_heads(kv));
        cases.extend(media(kv));
        // 300 positions: the prompt in two chunks, then tokens one by one.
        let long = Schedule::steps(16, &[&[(0, 170)], &[(0, 128)], &[(0, 1)], &[(0, 1)]]);
        let variant = Variant { num_kv_heads: 1, rope: Some(RopeStyle::Neox), ..PLAIN };
        let name = format!("attention/long/{kv}");
        cases.push(case(name, kv, long.clone(), variant.clone()));
        let both = Variant { causal: false, ..variant.clone() };
        cases.push(case(format!("attention/long/both-directions/{kv}"), kv, long.clone(), both));
        let alibi = Variant { alibi: Some(8.0), rope: None, ..variant.clone() };
        cases.push(case(format!("attention/long/alibi/{kv}"), kv, long.clone(), alibi));
        let both = Variant { causal: false, window: Some(100), ..variant.clone() };
        let name = format!("attention/long/both-directions/window-100/{kv}");
        cases.push(case(name, kv, long.clone(), both));
        let chunk = Variant { chunk: Some(64), ..variant.clone() };
        cases.push(case(format!("attention/long/chunk-64/{kv}"), kv, long.clone(), chunk));
        let variant = Variant { window: Some(100), ..variant };
        cases.push(case(format!("attention/long/window-100/{kv}"), kv, long, variant));
    }
    // More sequences and heads than a GPU has places for workgroups.
    for kv in [KvType::F16, KvType::Q8_0, KvType::Q4_0] {
        let rope = Some(RopeStyle::Normal);
        let variant = Variant { num_kv_heads: 32, group: 1, head_dim: 32, rope, ..PLAIN };
        cases.push(case(format!("attention/many/{kv}"), kv, many(), variant));
    }
    cases.extend(many_heads());
    let rope = Some(RopeStyle::Neox);
    let variant = Variant { num_kv_heads: 16, group: 2, head_dim: 32, rope, ..PLAIN };
    cases.push(case("attention/many/gqa-2".into(), KvType::F16, many(), variant));
    for kv in KvType::ALL {
        cases.extend(layers(kv));
    }
    cases.push(after_input());
    cases
}

/// Enough query heads to fill a GPU with workgroups of 128 tokens. Spans end within a workgroup.
fn many_heads() -> Vec<Case> {
    let plain = Variant { num_kv_heads: 7, group: 8, head_dim: 128, ..PLAIN };
    let variants = [
        ("", KvType::F16, plain.clone()),
        ("/window-40", KvType::Q8_0, Variant { window: Some(40), ..plain.clone() }),
        ("/all", KvType::Fp8, Variant { softcap: Some(5.0), sinks: true, head_dim: 104, ..plain }),
    ];
    let case = |(name, kv, variant)| {
        let schedule = Schedule::steps(16, &[&[(0, 129)], &[(0, 62), (1, 68)]]);
        case(format!("attention/many-heads{name}/{kv}"), kv, schedule, variant)
    };
    variants.map(case).into()
}

/// RoPE of all or some elements of heads of each size, with and without norms.
fn rotated_heads(kv: KvType) -> Vec<Case> {
    use RopeStyle::{Neox, Normal};
    let sizes = [
        (128, 128, 4, Neox, true),
        (256, 64, 4, Normal, false),
        (512, 512, 2, Neox, false),
        (512, 64, 1, Neox, true),
        // Not whole chunks of eight elements of each half.
        (32, 24, 3, Neox, true),
        (8, 8, 1, Normal, false),
    ];
    let case_of = |(head_dim, dims, group, style, qk_norm)| {
        let variant = Variant {
            num_kv_heads: 2,
            group,
            head_dim,
            rope: Some(style),
            rope_dims: Some(dims),
            qk_norm,
            ..PLAIN
        };
        case(format!("attention/rope-{dims}/head-dim-{head_dim}/{kv}"), kv, turns(32), variant)
    };
    sizes.map(case_of).into()
}

/// Media rows among tokens, and positions of several coordinates.
fn media(kv: KvType) -> [Case; 4] {
    let interleaved: AxisRule = |pair, _| match pair % 3 {
        0 => RopeAxis::Time,
        1 => RopeAxis::Row,
        _ => RopeAxis::Column,
    };
    let rope = Some(RopeStyle::Neox);
    [
        ("causal", Variant { media: Some(false), ..PLAIN }),
        ("non-causal", Variant { media: Some(true), ..PLAIN }),
        ("non-causal/window", Variant { media: Some(true), window: Some(9), ..PLAIN }),
        ("positions", Variant { rope, axes: Some(interleaved), qk_norm: true, ..PLAIN }),
    ]
    .map(|(name, variant)| {
        let mut schedule = turns(16);
        if let Some(non_causal) = variant.media {
            let width = variant.num_kv_heads * variant.group * variant.head_dim;
            schedule = schedule.with_media(width, non_causal);
        }
        if variant.axes.is_some() {
            schedule = schedule.with_positions();
        }
        case(format!("attention/media/{name}/{kv}"), kv, schedule, variant)
    })
}

/// KV heads, head size and window of the layers of one cache.
const LAYERS: [(usize, usize, Option<usize>); 3] =
    [(2, 32, Some(9)), (1, 128, None), (3, 64, Some(16))];

/// Layers of different heads in one cache, layers that read the cache of an earlier one, and one
/// value that is both key and value.
fn layers(kv: KvType) -> [Case; 5] {
    let caches = LAYERS.map(|(heads, head_dim, _)| (heads, head_dim)).to_vec();
    let several = |name: &str, build: fn(&mut Net) -> ValueId| {
        let schedule = turns(16).with_cache(kv, caches.clone());
        let (name, bound) = (format!("attention/{name}/{kv}"), ErrorBound::of_cache(kv, false));
        Case::program_of(name, Some(OperandFormat::Cache(kv)), bound, schedule, build)
    };
    let schedule = turns(16).with_cache(kv, vec![(2, 64)]);
    let (name, bound) = (format!("attention/key-is-value/{kv}"), ErrorBound::of_cache(kv, true));
    [
        several("layers", each_layer),
        Case::program_of(
            format!("attention/passed-window/{kv}"),
            Some(OperandFormat::Cache(kv)),
            ErrorBound::of_cache(kv, false),
            passed_window().with_layers(kv, window_layers()),
            each_layer,
        ),
        Case::program_of(
            format!("attention/passed-chunk/{kv}"),
            Some(OperandFormat::Cache(kv)),
            ErrorBound::of_cache(kv, false),
            passed_window().with_layers(kv, window_layers()[2..].to_vec()),
            |net| {
                let [q, k, v] = [(); 3].map(|()| net.input(3 * 64));
                let attention = Attention { chunk: Some(16), ..Attention::new(0, 3, 3, 64) };
                net.g.attention(q, k, v, &attention)
            },
        ),
        several("shared-cache", |net| {
            // The readers have other groups than the layers that append.
            let layers = [(0, 2, true), (1, 4, true), (2, 1, true), (1, 2, false), (0, 4, false)];
            let outs = layers.map(|(layer, group, appends)| one_layer(net, layer, group, appends));
            sum(net, &outs)
        }),
        Case::program_of(name, Some(OperandFormat::Cache(kv)), bound, schedule, |net| {
            let (q, kv) = (net.input(4 * 64), net.input(2 * 64));
            let [q_norm, k_norm] = [(); 2].map(|()| net.norm_weight(64));
            let ones = net.ones(64);
            let (q, k) = (net.g.rms_norm(q, q_norm, 1e-6), net.g.rms_norm(kv, k_norm, 1e-6));
            let rope = rope(RopeStyle::Neox, 64, 64, 1.0);
            let (q, k) = (net.g.rope(q, &rope), net.g.rope(k, &rope));
            let v = net.g.rms_norm(kv, ones, 1e-6);
            net.g.attention(q, k, v, &Attention::new(0, 4, 2, 64))
        }),
    ]
}

/// Two sequences that are longer than the windows of [`LAYERS`].
fn passed_window() -> Schedule {
    let steps: [&[(usize, usize)]; 6] = [
        &[(0, 40)],
        &[(1, 20), (0, 1)],
        &[(0, 9), (1, 1)],
        &[(1, 30)],
        &[(0, 1), (1, 1)],
        &[(0, 20)],
    ];
    Schedule::window_steps(PageSize::Tokens16, &steps, 16)
}

/// [`LAYERS`] in the groups of their windows.
fn window_layers() -> Vec<KvLayer> {
    let layer = |(num_kv_heads, head_dim, window): (usize, usize, Option<usize>)| KvLayer {
        group: window.map_or(PageGroup::Full, |_| PageGroup::Window),
        ..KvLayer::new(num_kv_heads, head_dim)
    };
    LAYERS.map(layer).to_vec()
}

fn each_layer(net: &mut Net) -> ValueId {
    let outs = [0, 1, 2].map(|layer| one_layer(net, layer, 2, true));
    sum(net, &outs)
}

fn one_layer(net: &mut Net, layer: usize, group: usize, appends: bool) -> ValueId {
    let (num_kv_heads, head_dim, window) = LAYERS[layer];
    let num_heads = group * num_kv_heads;
    let attention =
        Attention { window, ..Attention::new(layer, num_heads, num_kv_heads, head_dim) };
    let q = net.input(num_heads * head_dim);
    let y = if appends {
        let [k, v] = [(); 2].map(|()| net.input(num_kv_heads * head_dim));
        net.g.attention(q, k, v, &attention)
    } else {
        net.g.attend(q, &attention)
    };
    let w = net.matrix(DType::F32, 37, num_heads * head_dim);
    net.g.matmul(y, w)
}

fn sum(net: &mut Net, values: &[ValueId]) -> ValueId {
    let (first, others) = values.split_first().expect("values");
    others.iter().fold(*first, |sum, value| net.g.add(sum, *value))
}

/// Short prompts of 64 sequences, then a token of each.
fn many() -> Schedule {
    let prompts: Vec<(usize, usize)> =
        (0..64).map(|sequence| (sequence, 1 + sequence % 4)).collect();
    let tokens: Vec<(usize, usize)> = (0..64).map(|sequence| (sequence, 1)).collect();
    Schedule::steps(16, &[&prompts, &tokens])
}

/// Prompts and single tokens of three sequences, alone and together, across page boundaries.
pub(super) fn turns(page_tokens: usize) -> Schedule {
    Schedule::steps(
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

fn case(name: String, kv: KvType, schedule: Schedule, variant: Variant) -> Case {
    let Variant { num_kv_heads, group, head_dim, .. } = variant;
    let heads = CaseShape::Heads { num_heads: num_kv_heads * group, num_kv_heads, head_dim };
    let computed = variant.rope.is_some() || variant.qk_norm;
    let schedule = schedule.with_cache(kv, vec![(num_kv_heads, head_dim)]);
    let what = (Some(OperandFormat::Cache(kv)), heads);
    Case::new(name, what, ErrorBound::of_cache(kv, computed), schedule, move |net, copies| {
        variant.build(net, copies)
    })
}

/// Keys and values of rows that come with the batch. Later values may reuse their memory, so a
/// backend that runs a step twice has to compute them again: a wrong key of one step shows in the
/// next one.
fn after_input() -> Case {
    const WIDTH: usize = 128;
    let layers = vec![(PLAIN.num_kv_heads, PLAIN.head_dim)];
    let schedule = turns(16).with_input(WIDTH).with_cache(KvType::F32, layers);
    Case::program_of("input/attention", None, ErrorBound::Float, schedule, |net| {
        let x = net.g.input(WIDTH);
        let kv_width = PLAIN.num_kv_heads * PLAIN.head_dim;
        let weights = [PLAIN.group * kv_width, kv_width, kv_width]
            .map(|rows| net.matrix(DType::F32, rows, WIDTH));
        let [q, k, v] = weights.map(|weight| net.g.matmul(x, weight));
        let attention = net.g.attention(q, k, v, &PLAIN.attention(0, None));
        // Enough further values to fill every buffer that became free.
        let mut columns = PLAIN.group * kv_width;
        let mut out = attention;
        for _ in 0..3 {
            let weight = net.matrix(DType::F32, WIDTH, columns);
            (out, columns) = (net.g.matmul(out, weight), WIDTH);
        }
        out
    })
}
