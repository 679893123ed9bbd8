//! The formula of each op with a recurrent state. A state is rounded to f32 after each token, so
//! that results do not depend on the batches that a sequence is computed in.

use rf_graph::{
    Activation, CausalConv, DeltaDecay, DeltaHeads, DeltaNet, SelectiveScan, StateSpace,
    StateSpaceHeads, ValueId, WeightId,
};

use super::ops::{StageRun, activate};

impl StageRun<'_> {
    pub(super) fn causal_conv(&mut self, op: &CausalConv) {
        let (filter, bias) = (self.elements(op.filter), op.bias.map(|bias| self.elements(bias)));
        let (x, width) = self.rows(op.x);
        let mut y = Vec::with_capacity(x.len());
        for span in self.batch.spans {
            let x = &x[span.tokens.start * width..span.tokens.end * width];
            let tail = self.cache.state(op.state, span);
            y.extend(causal_conv(x, &filter, bias.as_deref(), op.silu, tail));
        }
        self.set(op.out, y);
    }

    pub(super) fn delta_net(&mut self, op: &DeltaNet) {
        let (decay, bias) = (self.elements(op.decay), self.elements(op.decay_bias));
        let [(qkv, width), (alpha, gates), (beta, heads)] =
            [op.qkv, op.alpha, op.beta].map(|id| self.rows(id));
        let mut y = Vec::new();
        for span in self.batch.spans {
            let state = self.cache.state(op.state, span);
            for token in span.tokens.clone() {
                let gates: Vec<f32> =
                    alpha[token * gates..][..gates].iter().zip(&bias).map(|(x, b)| x + b).collect();
                let decays = delta_decays(op.heads, op.form, &gates, &decay);
                let (qkv, beta) = (&qkv[token * width..][..width], &beta[token * heads..][..heads]);
                y.extend(delta_step(op.heads, op.eps, qkv, &decays, beta, state));
            }
        }
        self.set(op.out, y);
    }

    pub(super) fn state_space(&mut self, op: &StateSpace) {
        let [bias, decay, skip] = [op.dt_bias, op.decay, op.skip].map(|id| self.elements(id));
        let [(xbc, width), (dt, heads)] = [op.xbc, op.dt].map(|id| self.rows(id));
        let mut y = Vec::new();
        for span in self.batch.spans {
            let state = self.cache.state(op.state, span);
            for token in span.tokens.clone() {
                let dt = &dt[token * heads..][..heads];
                let dt: Vec<f64> = (0..heads).map(|h| softplus(dt[h] + bias[h])).collect();
                let xbc = &xbc[token * width..][..width];
                y.extend(state_space_step(op.heads, xbc, &dt, &decay, &skip, state));
            }
        }
        self.set(op.out, y);
    }

    pub(super) fn selective_scan(&mut self, op: &SelectiveScan) {
        let [decay, skip] = [op.decay, op.skip].map(|id| self.elements(id));
        let inputs = [op.x, op.dt, op.b, op.c].map(|id| self.rows(id));
        let mut y = Vec::new();
        for span in self.batch.spans {
            let state = self.cache.state(op.state, span);
            for token in span.tokens.clone() {
                let inputs = inputs.each_ref().map(|(x, width)| &x[token * width..][..*width]);
                y.extend(selective_scan_step(inputs, &decay, &skip, state));
            }
        }
        self.set(op.out, y);
    }

    /// A value, and its width.
    fn rows(&self, id: ValueId) -> (Vec<f32>, usize) {
        (self.get(id).to_vec(), self.program.graph.value(id).width)
    }

    /// Reads the elements of a weight row by row.
    fn elements(&self, id: WeightId) -> Vec<f32> {
        let weight = &self.program.weights[id.index()];
        (0..weight.rows()).flat_map(|row| weight.row_f32(row)).collect()
    }
}

/// `y[t] = Σⱼ w[j] ⊙ x[t − (taps − 1) + j] (+ b)`, then `SiLU` if `silu`, for the tokens of one
/// sequence. The rows before the first one are those of `tail`, which becomes the last rows.
///
/// Shapes: x `[tokens, width]`, w `[taps, width]`, b `[width]`, tail `[taps − 1, width]`.
pub fn causal_conv(
    x: &[f32],
    w: &[f32],
    b: Option<&[f32]>,
    silu: bool,
    tail: &mut [f32],
) -> Vec<f32> {
    let width = w.len() - tail.len();
    let rows = [&*tail, x].concat();
    let y = (0..x.len()).map(|i| {
        let column = rows[i..].iter().step_by(width);
        let products = column.zip(w[i % width..].iter().step_by(width));
        let sum: f64 = products.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
        let y = sum + b.map_or(0.0, |b| f64::from(b[i % width]));
        (if silu { activate(Activation::Silu, y) } else { y }) as f32
    });
    let y = y.collect();
    tail.copy_from_slice(&rows[x.len()..]);
    y
}

/// The decay of each row of the states of a delta rule, `[num_value_heads · key_dim]`, from alpha
/// plus its bias, x, and the factor a of each head: see [`DeltaDecay`].
fn delta_decays(heads: DeltaHeads, form: DeltaDecay, x: &[f32], a: &[f32]) -> Vec<f64> {
    let rows = 0..heads.num_value_heads * heads.key_dim;
    let decay = |row: usize| {
        let head = row / heads.key_dim;
        let a = f64::from(a[head]);
        match form {
            DeltaDecay::Head => softplus(x[head]) * a,
            DeltaDecay::Channel => softplus(x[row]) * a,
            DeltaDecay::BoundedChannel { bound } => {
                f64::from(bound) * sigmoid(a * f64::from(x[row]))
            }
        }
    };
    rows.map(|row| decay(row).exp()).collect()
}

/// One token of the gated delta rule: `S ← g·S`, `δ = σ(β)·(v − Sᵀk̂)`, `S ← S + k̂ δᵀ`,
/// `y = Sᵀq̂ / √key_dim` for the state S of each value head, with the decay `g` of each row of S
/// and the normalised `x̂ = x / √(Σx² + eps)`.
///
/// Shapes: qkv `[qkv_width]`, decays `[num_value_heads · key_dim]`, β `[num_value_heads]`,
/// S `[key_dim, value_dim]` per head.
fn delta_step(
    heads: DeltaHeads,
    eps: f32,
    qkv: &[f32],
    decays: &[f64],
    beta: &[f32],
    states: &mut [f32],
) -> Vec<f32> {
    let (keys, values) = (&qkv[heads.key_width()..], &qkv[2 * heads.key_width()..]);
    let normalized = |x: &[f32], head: usize| -> Vec<f64> {
        let x = &x[head * heads.key_dim..][..heads.key_dim];
        let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        let scale = 1.0 / (squares + f64::from(eps)).sqrt();
        x.iter().map(|x| f64::from(*x) * scale).collect()
    };
    let mut y = Vec::with_capacity(heads.value_width());
    let states = states.chunks_exact_mut(heads.key_dim * heads.value_dim);
    for (h, state) in states.enumerate() {
        let key_head = heads.key_head(h);
        let (q, k) = (normalized(qkv, key_head), normalized(keys, key_head));
        let decays = &decays[h * heads.key_dim..][..heads.key_dim];
        let share = sigmoid(f64::from(beta[h]));
        for j in 0..heads.value_dim {
            let v = f64::from(values[h * heads.value_dim + j]);
            let column = || (j..).step_by(heads.value_dim).take(heads.key_dim);
            let decayed = column().zip(decays).map(|(at, decay)| decay * f64::from(state[at]));
            let decayed: Vec<f64> = decayed.collect();
            let predicted: f64 = decayed.iter().zip(&k).map(|(s, k)| s * k).sum();
            let delta = share * (v - predicted);
            let next: Vec<f64> = decayed.iter().zip(&k).map(|(s, k)| s + k * delta).collect();
            let sum: f64 = next.iter().zip(&q).map(|(s, q)| s * q).sum();
            y.push((sum / (heads.key_dim as f64).sqrt()) as f32);
            for (at, next) in column().zip(next) {
                state[at] = next as f32;
            }
        }
    }
    y
}

/// One token of the selective state space: `S ← exp(Δa)·S + B (Δx)ᵀ`, `y = SᵀC + d·x` for the
/// state S of each head, with the B and C of its group.
///
/// Shapes: xbc `[xbc_width]`, Δ, a and d `[num_heads]`, S `[state_dim, head_dim]` per head.
fn state_space_step(
    heads: StateSpaceHeads,
    xbc: &[f32],
    dt: &[f64],
    a: &[f32],
    d: &[f32],
    states: &mut [f32],
) -> Vec<f32> {
    let StateSpaceHeads { num_heads, head_dim, num_groups, state_dim } = heads;
    let (x, bc) = xbc.split_at(heads.inner_width());
    let (b, c) = bc.split_at(num_groups * state_dim);
    let mut y = Vec::with_capacity(x.len());
    for (h, state) in states.chunks_exact_mut(state_dim * head_dim).enumerate() {
        let first = h / (num_heads / num_groups) * state_dim;
        let [b, c] = [b, c].map(|x| &x[first..][..state_dim]);
        let decay = (dt[h] * f64::from(a[h])).exp();
        for (j, x) in x[h * head_dim..][..head_dim].iter().enumerate() {
            let x = f64::from(*x);
            let mut sum = f64::from(d[h]) * x;
            for n in 0..state_dim {
                let s = &mut state[n * head_dim + j];
                let next = decay * f64::from(*s) + f64::from(b[n]) * dt[h] * x;
                sum += next * f64::from(c[n]);
                *s = next as f32;
            }
            y.push(sum as f32);
        }
    }
    y
}

/// One token of the selective scan: `s ← exp(Δa)·s + B Δx`, `y = C·s + d·x` for the column s of
/// the state of each channel, with `Δ = softplus(dt)`.
///
/// Shapes: x, dt and d `[channels]`, B and C `[state_dim]`, a and the state
/// `[state_dim, channels]`.
fn selective_scan_step(
    [x, dt, b, c]: [&[f32]; 4],
    a: &[f32],
    d: &[f32],
    state: &mut [f32],
) -> Vec<f32> {
    let channels = x.len();
    let y = (0..channels).map(|channel| {
        let (x, dt) = (f64::from(x[channel]), softplus(dt[channel]));
        let mut sum = f64::from(d[channel]) * x;
        for n in 0..b.len() {
            let at = n * channels + channel;
            let decay = (dt * f64::from(a[at])).exp();
            let next = decay * f64::from(state[at]) + f64::from(b[n]) * dt * x;
            sum += next * f64::from(c[n]);
            state[at] = next as f32;
        }
        sum as f32
    });
    y.collect()
}

/// `ln(1 + eˣ)`.
fn softplus(x: f32) -> f64 {
    let x = f64::from(x);
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    //! The chunked forms compute the tokens of a chunk together, as matrix products. They are
    //! another definition of the recurrences, and what kernels for prompts compute.

    use super::*;
    use crate::case::Numbers;

    const TOKENS: usize = 150;
    const CHUNK: usize = 64;

    /// Rows of random numbers.
    fn rows(numbers: &mut Numbers, width: usize) -> Vec<Vec<f64>> {
        let row = |numbers: &mut Numbers| (0..width).map(|_| f64::from(numbers.normal())).collect();
        (0..TOKENS).map(|_| row(numbers)).collect()
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// `Sᵀx`.
    fn read(state: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
        let column = |j: usize| state.iter().zip(x).map(|(row, x)| row[j] * x).sum();
        (0..state[0].len()).map(column).collect()
    }

    /// `y += factor · x`.
    fn add(y: &mut [f64], factor: f64, x: &[f64]) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * x);
    }

    /// `x` after the decays of some tokens, which have one for each element.
    fn decayed(x: &[f64], decays: &[Vec<f64>]) -> Vec<f64> {
        let decay = |n: usize| decays.iter().map(|decays| decays[n]).product::<f64>();
        x.iter().enumerate().map(|(n, x)| x * decay(n)).collect()
    }

    /// The sums of `values` that queries of a chunk see through keys, and the state after it: with
    /// `γₜ` the product of the decays up to token t, a value for each row of the state,
    /// `yₜ = S₀ᵀ(γₜ ⊙ qₜ) + Σ_{i ≤ t} (kᵢ·(γₜ/γᵢ ⊙ qₜ)) xᵢ` and `S = γ ⊙ S₀ + Σᵢ (γ/γᵢ ⊙ kᵢ) xᵢᵀ`.
    fn chunk(
        state: &mut [Vec<f64>],
        [queries, keys, values]: [&[Vec<f64>]; 3],
        decays: &[Vec<f64>],
    ) -> Vec<Vec<f64>> {
        let y = (0..queries.len()).map(|t| {
            let mut y = read(state, &decayed(&queries[t], &decays[..=t]));
            for i in 0..=t {
                let seen = dot(&decayed(&keys[i], &decays[i + 1..=t]), &queries[t]);
                add(&mut y, seen, &values[i]);
            }
            y
        });
        let y = y.collect();
        for (n, row) in state.iter_mut().enumerate() {
            let decay = |decays: &[Vec<f64>]| decays.iter().map(|d| d[n]).product::<f64>();
            for s in row.iter_mut() {
                *s *= decay(decays);
            }
            for (i, value) in values.iter().enumerate() {
                add(row, decay(&decays[i + 1..]) * keys[i][n], value);
            }
        }
        y
    }

    fn assert_close(actual: &[f32], expected: &[f64]) {
        let scale = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        assert!(scale > 0.01);
        for (a, b) in actual.iter().zip(expected) {
            assert!((f64::from(*a) - b).abs() < 1e-5 * scale, "{a} {b}");
        }
    }

    #[test]
    fn the_delta_rule_in_chunks_gives_the_results_and_the_state_of_its_steps() {
        check_delta_rule(DeltaDecay::Head);
        check_delta_rule(DeltaDecay::Channel);
        check_delta_rule(DeltaDecay::BoundedChannel { bound: -0.5 });
    }

    fn check_delta_rule(form: DeltaDecay) {
        let (key_dim, value_dim, eps) = (12, 7, 1e-6);
        let heads = DeltaHeads {
            num_key_heads: 1,
            num_value_heads: 1,
            key_dim,
            value_dim,
            interleaved: false,
        };
        let mut numbers = Numbers::new("delta");
        let [queries, keys] = [(); 2].map(|()| rows(&mut numbers, key_dim));
        let values = rows(&mut numbers, value_dim);
        let beta: Vec<f32> = (0..TOKENS).map(|_| numbers.normal()).collect();
        let decays = (0..TOKENS).map(|_| {
            let x: Vec<f32> = (0..form.width(heads)).map(|_| numbers.normal()).collect();
            delta_decays(heads, form, &x, &[if form == DeltaDecay::Head { -0.3 } else { 0.4 }])
        });
        let decays: Vec<Vec<f64>> = decays.collect();
        let mut state = vec![0.0; key_dim * value_dim];
        let mut stepped = Vec::new();
        for t in 0..TOKENS {
            let qkv = [&queries[t][..], &keys[t], &values[t]].concat();
            let qkv: Vec<f32> = qkv.into_iter().map(|x| x as f32).collect();
            stepped.extend(delta_step(heads, eps, &qkv, &decays[t], &beta[t..=t], &mut state));
        }

        let normalized = |rows: Vec<Vec<f64>>, scale: f64| -> Vec<Vec<f64>> {
            let row = |row: Vec<f64>| {
                let length = (dot(&row, &row) + f64::from(eps)).sqrt();
                row.into_iter().map(|x| x * scale / length).collect()
            };
            rows.into_iter().map(row).collect()
        };
        let queries = normalized(queries, 1.0 / (key_dim as f64).sqrt());
        let keys = normalized(keys, 1.0);
        let (mut chunked_state, mut chunked) = (vec![vec![0.0; value_dim]; key_dim], Vec::new());
        for first in (0..TOKENS).step_by(CHUNK) {
            let tokens = first..TOKENS.min(first + CHUNK);
            let (decays, keys) = (&decays[tokens.clone()], &keys[tokens.clone()]);
            // The corrections solve a triangular system: each is that of the chunk's beginning,
            // without what earlier ones of the chunk predict.
            let mut corrections: Vec<Vec<f64>> = Vec::new();
            for (t, token) in tokens.clone().enumerate() {
                let mut correction = values[token].clone();
                let decayed_key = decayed(&keys[t], &decays[..=t]);
                add(&mut correction, -1.0, &read(&chunked_state, &decayed_key));
                for (i, earlier) in corrections.iter().enumerate() {
                    let predicted = dot(&decayed(&keys[i], &decays[i + 1..=t]), &keys[t]);
                    add(&mut correction, -predicted, earlier);
                }
                let share = sigmoid(f64::from(beta[token]));
                for x in &mut correction {
                    *x *= share;
                }
                corrections.push(correction);
            }
            let inputs = [&queries[tokens], keys, &corrections];
            chunked.extend(chunk(&mut chunked_state, inputs, decays));
        }
        assert_close(&stepped, &chunked.concat());
        assert_close(&state, &chunked_state.concat());
    }

    #[test]
    fn the_state_space_in_chunks_gives_the_results_and_the_state_of_its_steps() {
        let (head_dim, state_dim) = (6, 11);
        let heads = StateSpaceHeads { num_heads: 1, head_dim, num_groups: 1, state_dim };
        let mut numbers = Numbers::new("space");
        let x = rows(&mut numbers, head_dim);
        let [b, c] = [(); 2].map(|()| rows(&mut numbers, state_dim));
        let dt: Vec<f64> = (0..TOKENS).map(|_| softplus(numbers.normal())).collect();
        let (a, d) = ([-0.3_f32], [0.7_f32]);
        let mut state = vec![0.0; state_dim * head_dim];
        let mut stepped = Vec::new();
        for t in 0..TOKENS {
            let xbc = [&x[t][..], &b[t], &c[t]].concat();
            let xbc: Vec<f32> = xbc.into_iter().map(|x| x as f32).collect();
            stepped.extend(state_space_step(heads, &xbc, &dt[t..=t], &a, &d, &mut state));
        }

        let decay = |dt: &f64| vec![(dt * f64::from(a[0])).exp(); state_dim];
        let decays: Vec<Vec<f64>> = dt.iter().map(decay).collect();
        let inputs = x.iter().zip(&dt).map(|(x, dt)| x.iter().map(|x| x * dt).collect());
        let inputs: Vec<Vec<f64>> = inputs.collect();
        let (mut chunked_state, mut chunked) = (vec![vec![0.0; head_dim]; state_dim], Vec::new());
        for first in (0..TOKENS).step_by(CHUNK) {
            let tokens = first..TOKENS.min(first + CHUNK);
            let parts = [&c[tokens.clone()], &b[tokens.clone()], &inputs[tokens.clone()]];
            let mut y = chunk(&mut chunked_state, parts, &decays[tokens.clone()]);
            for (y, x) in y.iter_mut().zip(&x[tokens]) {
                add(y, f64::from(d[0]), x);
            }
            chunked.extend(y);
        }
        assert_close(&stepped, &chunked.concat());
        assert_close(&state, &chunked_state.concat());
    }
}
