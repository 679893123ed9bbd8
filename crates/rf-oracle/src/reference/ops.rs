//! The formula of each op, and its application to a batch.

use rf_graph::{
    Activation, Attention, BackendError, Batch, Combine, Epilogue, ExpertMatMul, ExpertProjection,
    Function, Gating, Op, Position, Program, Prologue, Reduction, Rope, RopeAppend, Router,
    RowNorm, Span, ValueId, Weight, WeightId, combine_experts,
};

use super::cache::Cache;

/// The execution of one stage of a batch. `values[i]` is the value with index `i`, `[rows, width]`.
pub(super) struct StageRun<'a> {
    pub(super) program: &'a Program,
    pub(super) cache: &'a mut Cache,
    reduction: &'a mut Reduction,
    pub(super) batch: &'a Batch<'a>,
    values: &'a mut [Vec<f32>],
    /// The inputs of the ops [`Op::Input`] that have not run yet.
    input: &'a [f32],
}

impl<'a> StageRun<'a> {
    pub(super) fn new(
        program: &'a Program,
        cache: &'a mut Cache,
        reduction: &'a mut Reduction,
        batch: &'a Batch<'a>,
        values: &'a mut [Vec<f32>],
    ) -> Result<Self, BackendError> {
        Ok(Self { program, cache, reduction, batch, values, input: batch.input_rows()? })
    }

    #[expect(clippy::too_many_lines, reason = "one arm per op, to be read as a table")]
    pub(super) fn op(&mut self, op: &Op) -> Result<(), BackendError> {
        let weights = &self.program.weights;
        match op {
            Op::Embed { table, scale, takes_media, norm, out } => {
                let table = &weights[table.index()];
                let rows = self.media_rows().zip(self.batch.ids).flat_map(|(media, id)| {
                    let token = || table.row_f32(*id as usize).iter().map(|v| v * scale).collect();
                    let media = media.filter(|_| *takes_media);
                    media.map_or_else(token, |media| media[..table.columns()].to_vec())
                });
                let x = rows.collect();
                self.set(*out, x);
                if let Some(norm) = norm {
                    self.norm(norm, *out);
                }
            }
            Op::EmbedPosition { table, out } => {
                let table = &weights[table.index()];
                let last = table.rows() - 1;
                let x = self.positions().flat_map(|p| table.row_f32(p.min(last))).collect();
                self.set(*out, x);
            }
            Op::Input { out } => {
                let floats = self.program.graph.value(*out).width * self.batch.ids.len();
                let (x, rest) = self.input.split_at(floats);
                self.input = rest;
                self.set(*out, x.to_vec());
            }
            Op::AddMedia { x, part, out } => {
                let width = self.program.graph.value(*x).width;
                let rows = self.get(*x).chunks_exact(width).zip(self.media_rows());
                let y = rows.flat_map(|(x, media)| match media {
                    Some(media) => {
                        x.iter().zip(&media[part * width..]).map(|(x, m)| x + m).collect()
                    }
                    None => x.to_vec(),
                });
                let y = y.collect();
                self.set(*out, y);
            }
            Op::Output { .. } => {}
            Op::RmsNorm { x, weight, eps, out } => {
                let weight = &weights[weight.index()];
                let rows: Vec<_> = (0..weight.rows()).map(|row| weight.row_f32(row)).collect();
                let groups = self.get(*x).chunks_exact(weight.columns());
                let groups = groups.zip(rows.iter().cycle());
                let y = groups.flat_map(|(x, w)| rms_norm(x, w, *eps)).collect();
                self.set(*out, y);
            }
            Op::LayerNorm { x, weight, bias, eps, out } => {
                let weight = weights[weight.index()].row_f32(0);
                let bias = bias.map(|bias| weights[bias.index()].row_f32(0));
                let y = layer_norm(self.get(*x), &weight, bias.as_deref(), *eps);
                self.set(*out, y);
            }
            Op::MatMul(m) => {
                let x = match &m.prologue {
                    Prologue::Plain(x) => self.get(*x).to_vec(),
                    Prologue::RmsNorm { x, weight, eps } => {
                        rms_norm(self.get(*x), &weights[weight.index()].row_f32(0), *eps)
                    }
                    Prologue::Glu { activation, gate, up } => {
                        glu(*activation, self.get(*gate), self.get(*up))
                    }
                };
                for p in &m.projections {
                    let mut y = matmul(&x, &weights[p.weight.index()]);
                    if let Some(bias) = p.bias {
                        let bias = weights[bias.index()].row_f32(0);
                        y.iter_mut().zip(bias.iter().cycle()).for_each(|(y, b)| *y += b);
                    }
                    if let Some(residual) = m.residual {
                        y.iter_mut().zip(self.get(residual)).for_each(|(y, r)| *y += r);
                    }
                    self.set(p.out, y);
                }
                match &m.epilogue {
                    Epilogue::None => {}
                    Epilogue::RmsNorm(norm) => self.norm(norm, m.projections[0].out),
                    Epilogue::Glu { activation, out } => {
                        let [gate, up] = [0, 1].map(|i| self.get(m.projections[i].out));
                        let y = glu(*activation, gate, up);
                        self.set(*out, y);
                    }
                    Epilogue::Route { router, out } => {
                        let gate = m.projections.get(1).map(|gate| gate.out);
                        self.route(m.projections[0].out, gate, router, *out);
                    }
                }
            }
            Op::Rope { x, rope, out } => {
                let y = self.rotated(self.get(*x).to_vec(), rope);
                self.set(*out, y);
            }
            Op::KvAppend { k, v, layer } => {
                let (k, v) = (self.get(*k).to_vec(), v.map(|v| self.get(v).to_vec()));
                self.cache.append(*layer, self.batch, &k, v.as_deref());
            }
            Op::Attention { append, q, attention: a, out } => {
                if let Some(heads) = append {
                    self.rope_append(heads, *q);
                }
                let sinks = a.sinks.map(|s| weights[s.index()].row_f32(0));
                let y = attention(a, sinks.as_deref(), self.get(*q), self.batch, |span, p| {
                    self.cache.read(a.layer, span, p)
                });
                self.set(*out, y);
            }
            Op::Glu { activation, gate, up, out } => {
                let y = glu(*activation, self.get(*gate), self.get(*up));
                self.set(*out, y);
            }
            Op::GatedNorm { activation, gate, x, weight, eps, out } => {
                let weight = weights[weight.index()].row_f32(0);
                let normed = rms_norm(self.get(*x), &weight, *eps);
                let y = glu(*activation, self.get(*gate), &normed);
                self.set(*out, y);
            }
            Op::Add { a, b, out } => {
                let y = self.get(*a).iter().zip(self.get(*b)).map(|(a, b)| a + b).collect();
                self.set(*out, y);
            }
            Op::Mul { a, b, out } => {
                let y = self.get(*a).iter().zip(self.get(*b)).map(|(a, b)| a * b).collect();
                self.set(*out, y);
            }
            Op::Map { x, function, out } => {
                let y = self.get(*x).iter().map(|x| map(*function, *x)).collect();
                self.set(*out, y);
            }
            Op::Gate { function, x, gate, out } => {
                let graph = &self.program.graph;
                let columns_per_gate = graph.value(*x).width / graph.value(*gate).width;
                let gates = self.get(*gate).iter();
                let gates = gates.flat_map(|gate| std::iter::repeat_n(gate, columns_per_gate));
                let y =
                    self.get(*x).iter().zip(gates).map(|(x, g)| gated(*function, *x, *g)).collect();
                self.set(*out, y);
            }
            Op::AllReduce { x, residual, norm, out } => {
                let x = self.get(*x).to_vec();
                let summands = self.reduction.gather(&x)?;
                let sum = |i| summands.iter().map(|values| f64::from(values[i])).sum::<f64>();
                let mut y: Vec<f32> = (0..x.len()).map(|i| sum(i) as f32).collect();
                if let Some(residual) = residual {
                    y.iter_mut().zip(self.get(*residual)).for_each(|(y, r)| *y += r);
                }
                self.set(*out, y);
                if let Some(norm) = norm {
                    self.norm(norm, *out);
                }
            }
            Op::ScaleByPosition { x, scale, out } => {
                let width = self.program.graph.value(*x).width;
                let rows = self.get(*x).chunks_exact(width).zip(self.positions());
                let y = rows.flat_map(|(x, p)| x.iter().map(move |x| x * scale.at(p))).collect();
                self.set(*out, y);
            }
            Op::Slice { x, start, out } => {
                let graph = &self.program.graph;
                let (from, to) = (graph.value(*x).width, graph.value(*out).width);
                let rows = self.get(*x).chunks_exact(from);
                let y = rows.flat_map(|x| x[*start..][..to].to_vec()).collect();
                self.set(*out, y);
            }
            Op::SelectRows { x, out } => {
                let width = self.program.graph.value(*x).width;
                let x = self.get(*x);
                let rows = self.batch.output_rows.iter();
                let y = rows.flat_map(|row| x[row * width..][..width].to_vec()).collect();
                self.set(*out, y);
            }
            Op::Route { logits, shared_gate, router, out } => {
                self.route(*logits, *shared_gate, router, *out);
            }
            Op::ExpertMatMul(m) => {
                for projection in &m.projections {
                    let y = self.expert_projection(m, projection);
                    self.set(projection.out, y);
                }
                if let (Some((activation, out)), [gate, up]) = (m.glu, m.projections.as_slice()) {
                    let y = glu(activation, self.get(gate.out), self.get(up.out));
                    self.set(out, y);
                }
                if let (Some(Combine { residual, out, norm }), [projection]) =
                    (m.combine, m.projections.as_slice())
                {
                    self.combine(projection.out, m.route, residual, out);
                    if let Some(norm) = norm {
                        self.norm(&norm, out);
                    }
                }
            }
            Op::ScaleExperts { x, route, out } => {
                let slots = self.program.graph.value(*route).width / 2;
                let width = self.program.graph.value(*out).width / slots;
                let routes = self.get(*route).chunks_exact(2 * slots);
                let weights = routes.flat_map(|route| route[slots..].to_vec());
                let rows = self.get(*x).chunks_exact(width).zip(weights);
                let y = rows.flat_map(|(x, p)| x.iter().map(move |x| p * x)).collect();
                self.set(*out, y);
            }
            Op::CombineExperts { x, route, residual, out } => {
                self.combine(*x, *route, *residual, *out);
            }
            Op::SliceGroups { x, group, start, out } => {
                let graph = &self.program.graph;
                let groups = graph.value(*x).width / group;
                let width = graph.value(*out).width / groups;
                let parts = self.get(*x).chunks_exact(*group);
                let y = parts.flat_map(|part| part[*start..][..width].to_vec()).collect();
                self.set(*out, y);
            }
            Op::JoinGroups { a, b, groups, out } => {
                let width = |id: ValueId| self.program.graph.value(id).width / groups;
                let parts = self.get(*a).chunks_exact(width(*a));
                let parts = parts.zip(self.get(*b).chunks_exact(width(*b)));
                let y = parts.flat_map(|(a, b)| [a, b].concat()).collect();
                self.set(*out, y);
            }
            Op::HeadMatMul { x, weights: heads, out } => {
                let heads: Vec<&Weight> = heads.iter().map(|id| &weights[id.index()]).collect();
                let y = head_matmul(self.get(*x), &heads);
                self.set(*out, y);
            }
            Op::CausalConv(conv) => self.causal_conv(conv),
            Op::DeltaNet(op) => self.delta_net(op),
            Op::StateSpace(op) => self.state_space(op),
            Op::SelectiveScan(op) => self.selective_scan(op),
            Op::RopeAppend { heads, q_out } => self.rope_append(heads, *q_out),
            other => {
                let what = other.name().to_owned();
                return Err(BackendError::Unsupported { backend: "reference", what });
            }
        }
        Ok(())
    }

    fn rope_append(&mut self, heads: &RopeAppend, q_out: ValueId) {
        let RopeAppend { q, k, v, qk_norm, rope, layer } = heads;
        let weights = &self.program.weights;
        let normalised = |x: ValueId, weight: Option<WeightId>| match (weight, qk_norm) {
            (Some(weight), Some(norm)) => {
                rms_norm(self.get(x), &weights[weight.index()].row_f32(0), norm.eps)
            }
            _ => self.get(x).to_vec(),
        };
        let q = self.rotated(normalised(*q, qk_norm.map(|norm| norm.q)), rope);
        let k = self.rotated(normalised(*k, qk_norm.map(|norm| norm.k)), rope);
        let v = self.get(*v).to_vec();
        self.cache.append(*layer, self.batch, &k, Some(&v));
        self.set(q_out, q);
    }

    /// Selects the experts of every token by the rows of `logits`.
    fn route(
        &mut self,
        logits: ValueId,
        shared_gate: Option<ValueId>,
        router: &Router,
        out: ValueId,
    ) {
        let experts = self.program.graph.value(logits).width;
        let vector = |id: WeightId| self.program.weights[id.index()].row_f32(0);
        let bias = router.selection_bias.map(vector);
        let scale = router.expert_scale.map(vector);
        let rows = self.get(logits).chunks_exact(experts).enumerate();
        let y = rows.flat_map(|(token, logits)| {
            let gate = shared_gate.map(|gate| self.get(gate)[token]);
            router.route(logits, gate, [bias.as_deref(), scale.as_deref()])
        });
        let y = y.collect();
        self.set(out, y);
    }

    /// `Σₛ pₛ · xₛ (+ residual)` of every token.
    fn combine(&mut self, x: ValueId, route: ValueId, residual: Option<ValueId>, out: ValueId) {
        let slots = self.program.graph.value(route).width / 2;
        let width = self.program.graph.value(out).width;
        let routes = self.get(route).chunks_exact(2 * slots);
        let rows = self.get(x).chunks_exact(slots * width).zip(routes);
        let y = rows.flat_map(|(x, route)| combine_experts(x, &route[slots..]));
        let y: Vec<f32> = match residual {
            Some(residual) => y.zip(self.get(residual)).map(|(y, r)| y + r).collect(),
            None => y.collect(),
        };
        self.set(out, y);
    }

    /// `xₛ · Wᵀ (+ bias)` of every slot.
    fn expert_projection(&self, m: &ExpertMatMul, projection: &ExpertProjection) -> Vec<f32> {
        let weights = &self.program.weights;
        let ExpertProjection { weights: experts, bias, .. } = projection;
        let slots = self.program.graph.value(m.route).width / 2;
        let columns = weights[experts[0].index()].columns();
        let x_width = self.program.graph.value(m.x).width;
        let routes = self.get(m.route).chunks_exact(2 * slots);
        let mut y = Vec::new();
        for (x, route) in self.get(m.x).chunks_exact(x_width).zip(routes) {
            for (slot, expert) in route[..slots].iter().map(|e| *e as usize).enumerate() {
                let first = if x_width == columns { 0 } else { slot * columns };
                let x = &x[first..][..columns];
                let mut output = matmul(x, &weights[experts[expert].index()]);
                if let Some(bias) = bias {
                    let bias = weights[bias.index()].row_f32(expert);
                    output.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
                }
                y.extend(output);
            }
        }
        y
    }

    /// Computes the RMSNorm of an epilogue over the rows of `x`.
    fn norm(&mut self, norm: &RowNorm, x: ValueId) {
        let weight = self.program.weights[norm.weight.index()].row_f32(0);
        let y = rms_norm(self.get(x), &weight, norm.eps);
        self.set(norm.out, y);
    }

    /// Applies RoPE to every head of every token.
    fn rotated(&self, mut y: Vec<f32>, frequencies: &Rope) -> Vec<f32> {
        let width = y.len() / self.batch.ids.len();
        for span in self.batch.spans {
            for (i, token) in span.tokens.clone().enumerate() {
                rope(&mut y[token * width..][..width], frequencies, span.position(i));
            }
        }
        y
    }

    /// The position of each token: the first coordinate.
    fn positions(&self) -> impl Iterator<Item = usize> {
        let spans = self.batch.spans.iter();
        spans.flat_map(|span| (0..span.tokens.len()).map(|i| span.position(i)[0] as usize))
    }

    /// The media row of each token; `None` for those that are tokens.
    fn media_rows(&self) -> impl Iterator<Item = Option<&'a [f32]>> {
        let spans = self.batch.spans.iter();
        spans.flat_map(|span| (0..span.tokens.len()).map(|i| span.media_row(i)))
    }

    pub(super) fn get(&self, id: ValueId) -> &[f32] {
        &self.values[id.index()]
    }

    pub(super) fn set(&mut self, id: ValueId, x: Vec<f32>) {
        let value = self.program.graph.value(id);
        debug_assert_eq!(x.len(), self.batch.rows(value.rows) * value.width);
        self.values[id.index()] = x;
    }
}

/// `y = x / √(mean(x²) + eps) · w` over groups of `w.len()` elements.
///
/// Shapes: x `[rows, width]`, w `[group]`; `group` divides `width`.
pub fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    x.chunks_exact(w.len())
        .flat_map(|x| {
            let mean_square =
                x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean_square + f64::from(eps)).sqrt();
            x.iter().zip(w).map(move |(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32)
        })
        .collect()
}

/// `y = (x − mean(x)) / √(var(x) + eps) · w (+ b)` over rows of `w.len()` elements, with the
/// variance `mean((x − mean(x))²)`.
///
/// Shapes: x `[rows, width]`, w `[width]`, b `[width]`.
fn layer_norm(x: &[f32], w: &[f32], b: Option<&[f32]>, eps: f32) -> Vec<f32> {
    let mut y = Vec::with_capacity(x.len());
    for x in x.chunks_exact(w.len()) {
        let width = x.len() as f64;
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / width;
        let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / width;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        y.extend(x.iter().zip(w).enumerate().map(|(i, (x, w))| {
            let bias = b.map_or(0.0, |b| f64::from(b[i]));
            ((f64::from(*x) - mean) * scale * f64::from(*w) + bias) as f32
        }));
    }
    y
}

/// `y = x · Wᵀ`, `W` dequantised.
///
/// Shapes: x `[rows, columns]`, W `[outputs, columns]`, y `[rows, outputs]`.
pub fn matmul(x: &[f32], w: &Weight) -> Vec<f32> {
    let rows = x.len() / w.columns();
    let mut y = vec![0.0; rows * w.rows()];
    for output in 0..w.rows() {
        let w_row = w.row_f32(output);
        for (row, x) in x.chunks_exact(w.columns()).enumerate() {
            let dot: f64 = x.iter().zip(&w_row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            y[row * w.rows() + output] = dot as f32;
        }
    }
    y
}

/// Head `h` of `y` is `xₕ · Wₕᵀ`, `W` dequantised.
///
/// Shapes: x `[rows, heads · columns]`, Wₕ `[outputs, columns]`, y `[rows, heads · outputs]`.
fn head_matmul(x: &[f32], heads: &[&Weight]) -> Vec<f32> {
    let parts = x.chunks_exact(heads[0].columns()).zip(heads.iter().cycle());
    parts.flat_map(|(x, w)| matmul(x, w)).collect()
}

/// Rotates each head of one token: `(x, y) → (x cos θ − y sin θ, x sin θ + y cos θ)` with
/// `θᵢ = p · inv_freqᵢ`, where `p` is the coordinate of the position that pair `i` takes.
///
/// Shapes: x `[num_heads · head_dim]`.
pub fn rope(x: &mut [f32], rope: &Rope, position: Position) {
    for head in x.chunks_exact_mut(rope.head_dim) {
        for i in 0..rope.inv_freq.len() {
            let (a, b) = rope.pair(i);
            let (cos, sin) = rope.cos_sin(rope.coordinate(position, i), i);
            let (x, y) = (f64::from(head[a]), f64::from(head[b]));
            let (cos, sin) = (f64::from(cos), f64::from(sin));
            head[a] = (x * cos - y * sin) as f32;
            head[b] = (x * sin + y * cos) as f32;
        }
    }
}

/// `activation(gate) · up`, element by element. [`Activation::ClampedSwiglu`] has a form of its
/// own.
pub fn glu(activation: Activation, gate: &[f32], up: &[f32]) -> Vec<f32> {
    let clamp = f64::from(Activation::CLAMP);
    let glu = |gate: f64, up: f64| match activation {
        Activation::ClampedSwiglu => {
            activate(activation, gate.min(clamp)) * (up.clamp(-clamp, clamp) + 1.0)
        }
        _ => activate(activation, gate) * up,
    };
    gate.iter().zip(up).map(|(g, u)| glu(f64::from(*g), f64::from(*u)) as f32).collect()
}

/// The activation function. One without a formula here is NaN, which no check accepts.
pub(super) fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let c = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (c * (x + 0.044_715 * x * x * x)).tanh())
        }
        Activation::ClampedSwiglu => x / (1.0 + (-f64::from(Activation::ALPHA) * x).exp()),
        Activation::SquaredRelu => x.max(0.0).powi(2),
        Activation::Relu => x.max(0.0),
        Activation::GeluErf => x * normal_distribution(x),
        _ => f64::NAN,
    }
}

/// `Φ(x) = ½ + φ(x) · (x + x³/3 + x⁵/15 + …)`, where each term is the one before times
/// `x² / (2n + 1)`. Beyond ±12, f32 has only the limits.
fn normal_distribution(x: f64) -> f64 {
    if x.abs() > 12.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let density = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    let (mut sum, mut term) = (0.0, x);
    for n in 1..400 {
        sum += term;
        term *= x * x / f64::from(2 * n + 1);
    }
    0.5 + density * sum
}

/// `function(x)`. One without a formula here is NaN, which no check accepts.
pub fn map(function: Function, x: f32) -> f32 {
    match function {
        Function::Scale(factor) => x * factor,
        Function::Softcap(cap) => {
            let (x, cap) = (f64::from(x), f64::from(cap));
            (cap * (x / cap).tanh()) as f32
        }
        Function::Clamp { min, max } => x.max(min).min(max),
        Function::Activation(activation) => activate(activation, f64::from(x)) as f32,
        Function::Xielu(xielu) => {
            let [alpha_p, alpha_n, beta, eps] =
                [xielu.alpha_p, xielu.alpha_n, xielu.beta, xielu.eps].map(f64::from);
            let x = f64::from(x);
            let curve = if x > 0.0 { alpha_p * x * x } else { alpha_n * (x.min(eps).exp_m1() - x) };
            (curve + beta * x) as f32
        }
        _ => f32::NAN,
    }
}

/// `function(gate) · x`.
pub fn gated(function: Gating, x: f32, gate: f32) -> f32 {
    let (x, gate) = (f64::from(x), f64::from(gate));
    let y = match function {
        Gating::Sigmoid => x / (1.0 + (-gate).exp()),
        Gating::Softplus => x * (gate.max(0.0) + (-gate.abs()).exp().ln_1p()),
    };
    y as f32
}

/// `softmax(scale · q·kᵀ) · v` per query and head; query head `h` reads key head
/// `h / (num_heads / num_kv_heads)`. In latent attention, v is the first `latent_dim` elements of
/// k.
///
/// `read(span, position)` returns the keys and values of all heads at one cached position. Shapes:
/// q `[tokens, num_heads · head_dim]`, sinks `[num_heads]`, result
/// `[tokens, num_heads · value_dim]`.
pub fn attention(
    a: &Attention,
    sinks: Option<&[f32]>,
    q: &[f32],
    batch: &Batch<'_>,
    read: impl Fn(&Span<'_>, usize) -> (Vec<f32>, Vec<f32>),
) -> Vec<f32> {
    let (width, out_width) = (a.num_heads * a.head_dim, a.num_heads * a.value_dim());
    let mut out = vec![0.0; q.len() / width * out_width];
    for span in batch.spans {
        let cached: Vec<_> = (0..span.end()).map(|p| read(span, p)).collect();
        for (i, token) in span.tokens.clone().enumerate() {
            let position = span.past_tokens + i;
            let visible = a.visible(position, span.end(), span.is_non_causal());
            for head in 0..a.num_heads {
                let slope = f64::from(a.slope(head));
                let q = &q[token * width + head * a.head_dim..][..a.head_dim];
                let kv = head / (a.num_heads / a.num_kv_heads) * a.head_dim..;
                let kv = kv.start..kv.start + a.head_dim;
                let scores: Vec<f64> = cached[visible.clone()]
                    .iter()
                    .zip(visible.clone())
                    .map(|((k, _), key)| {
                        let dot: f64 = q
                            .iter()
                            .zip(&k[kv.clone()])
                            .map(|(q, k)| f64::from(*q) * f64::from(*k))
                            .sum();
                        let s = dot * f64::from(a.scale);
                        let s = a.softcap.map_or(s, |c| f64::from(c) * (s / f64::from(c)).tanh());
                        s - slope * position.abs_diff(key) as f64
                    })
                    .collect();
                let sink = sinks.map_or(f64::NEG_INFINITY, |s| f64::from(s[head]));
                let max = scores.iter().copied().fold(sink, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum = weights.iter().sum::<f64>() + (sink - max).exp();
                let out = &mut out[token * out_width + head * a.value_dim()..][..a.value_dim()];
                for (d, out) in out.iter_mut().enumerate() {
                    let values =
                        cached[visible.clone()].iter().map(|(_, v)| f64::from(v[kv.start + d]));
                    *out =
                        (weights.iter().zip(values).map(|(w, v)| w * v).sum::<f64>() / sum) as f32;
                }
            }
        }
    }
    out
}
