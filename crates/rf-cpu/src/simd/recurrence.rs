//! Recurrences whose state is a matrix per head: the gated delta rule and the selective state
//! space. The state of the selective scan is one matrix.
//!
//! A work item is a tile of [`TILE`] columns of one head's state, for all tokens of a sequence in a
//! batch. A lane is a column, so no sum crosses lanes, and the tile stays in the L1 cache.

use std::mem::swap;
use std::ops::Range;

use rf_graph::{DeltaDecay, DeltaHeads, StateSpaceHeads};

use super::activations::{load, store};
use super::math::SimdMath;
use super::{Kernel, LANES, Simd};
use crate::state::TILE;
use crate::team::Rows;

/// Vectors of a row of a tile.
const VECTORS: usize = TILE / LANES;

/// The largest number of elements of a query or key.
pub(crate) const MAX_KEY_DIM: usize = 256;

/// A tile of a gated delta rule; see [`rf_graph::Op::DeltaNet`]. `CHANNELS` is true if each row of
/// the state has a decay.
pub(crate) struct DeltaTile<'a, const CHANNELS: bool> {
    pub(crate) heads: DeltaHeads,
    pub(crate) form: DeltaDecay,
    /// The value head.
    pub(crate) head: usize,
    /// The first column of the tile.
    pub(crate) column: usize,
    pub(crate) eps: f32,
    /// The factor of the head's gates.
    pub(crate) decay: f32,
    /// The biases of the gates of all heads.
    pub(crate) decay_bias: &'a [f32],
    pub(crate) tokens: Range<usize>,
    pub(crate) qkv: Rows<'a>,
    pub(crate) alpha: Rows<'a>,
    pub(crate) beta: Rows<'a>,
    pub(crate) out: Rows<'a>,
    /// `[key_dim]` of [`TILE`].
    pub(crate) state: &'a mut [f32],
}

/// A change of a tile that the next pass over it makes: `s ← decay · s + k δ`.
struct Change<S: Simd> {
    decay: S::F,
    delta: [S::F; VECTORS],
}

impl<const CHANNELS: bool> Kernel for DeltaTile<'_, CHANNELS> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    /// Each token needs `Sᵀk` and `Sᵀq` of the state before it, and `Sᵀq` of the state after it is
    /// `g · Sᵀq + δ · (k·q)`. A token's change of the state is therefore made while the next token
    /// reads it: one pass over the tile per token. With decays per channel the keys and queries
    /// that read the state are multiplied by them, instead of the sums.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let key_dim = self.heads.key_dim;
        let value = self.head * self.heads.value_dim;
        let key = self.heads.key_head(self.head) * key_dim;
        let mut buffers = [[0.0; MAX_KEY_DIM]; 3];
        let [q, k, k_before] = buffers.each_mut().map(|buffer| &mut buffer[..key_dim]);
        let (mut k, mut k_before) = (k, k_before);
        let mut buffers = [[0.0; MAX_KEY_DIM]; 3];
        let [decays, decays_before, decayed_k] =
            buffers.each_mut().map(|buffer| &mut buffer[..key_dim]);
        let (mut decays, mut decays_before) = (decays, decays_before);
        let rows = self.state.as_chunks_mut::<TILE>().0;
        let mut change: Option<Change<S>> = None;
        for token in self.tokens {
            // SAFETY: written in an earlier phase.
            let (qkv, alpha, beta) =
                unsafe { (self.qkv.row(token), self.alpha.row(token), self.beta.row(token)) };
            let scale = 1.0 / (key_dim as f32).sqrt();
            normalize(s, &qkv[key..][..key_dim], self.eps, scale, q);
            normalize(s, &qkv[self.heads.key_width() + key..][..key_dim], self.eps, 1.0, k);
            let (share, kq) = (s.splat(sigmoid(beta[self.head])), s.splat(dot(s, k, q)));
            let decay = if CHANNELS {
                let gates = [alpha, self.decay_bias].map(|x| &x[self.head * key_dim..][..key_dim]);
                channel_decays(s, self.form, self.decay, gates, decays);
                multiply(s, k, decays, decayed_k);
                for (q, decay) in q.iter_mut().zip(&*decays) {
                    *q *= *decay;
                }
                1.0
            } else {
                let time = softplus(alpha[self.head] + self.decay_bias[self.head]);
                (self.decay * time).exp()
            };
            let decay = s.splat(decay);
            let read_k = if CHANNELS { &*decayed_k } else { &*k };
            let values = &qkv[2 * self.heads.key_width() + value..][..self.heads.value_dim];

            let mut predicted = [s.splat(0.0); VECTORS];
            let mut read = [s.splat(0.0); VECTORS];
            if let Some(change) = &change {
                for (i, row) in rows.iter_mut().enumerate() {
                    let decay = if CHANNELS { s.splat(decays_before[i]) } else { change.decay };
                    apply(s, decay, &change.delta, k_before[i], row);
                    read_row(s, row, (read_k[i], &mut predicted), (q[i], &mut read));
                }
            } else {
                for (i, row) in rows.iter().enumerate() {
                    read_row(s, row, (read_k[i], &mut predicted), (q[i], &mut read));
                }
            }
            let mut delta = predicted;
            for v in 0..VECTORS {
                let at = self.column + v * LANES;
                let error = s.sub(load(s, values, at), s.mul(decay, predicted[v]));
                delta[v] = s.mul(share, error);
                let y = s.fma(delta[v], kq, s.mul(decay, read[v]));
                let end = self.heads.value_dim.min(at + LANES);
                if at < end {
                    // SAFETY: these columns of the sequence's tokens belong to this item.
                    store(s, unsafe { self.out.row_mut(token, value + at..value + end) }, y);
                }
            }
            change = Some(Change { decay, delta });
            swap(&mut k, &mut k_before);
            swap(&mut decays, &mut decays_before);
        }
        if let Some(change) = change {
            for (i, row) in rows.iter_mut().enumerate() {
                let decay = if CHANNELS { s.splat(decays_before[i]) } else { change.decay };
                apply(s, decay, &change.delta, k_before[i], row);
            }
        }
    }
}

/// The decays of the channels of a head, from alpha and its bias; see [`DeltaDecay`].
#[inline(always)]
fn channel_decays<S: Simd>(
    s: S,
    form: DeltaDecay,
    factor: f32,
    [alpha, bias]: [&[f32]; 2],
    y: &mut [f32],
) {
    let factor = s.splat(factor);
    for (i, y) in y.chunks_mut(LANES).enumerate() {
        let x = s.add(load(s, alpha, i * LANES), load(s, bias, i * LANES));
        let logarithm = match form {
            DeltaDecay::BoundedChannel { bound } => {
                s.mul(s.splat(bound), s.sigmoid(s.mul(factor, x)))
            }
            DeltaDecay::Head | DeltaDecay::Channel => s.mul(factor, s.softplus(x)),
        };
        store(s, y, s.exp_or_zero(logarithm));
    }
}

/// `y = a ⊙ b`.
#[inline(always)]
fn multiply<S: Simd>(s: S, a: &[f32], b: &[f32], y: &mut [f32]) {
    for (i, y) in y.chunks_mut(LANES).enumerate() {
        store(s, y, s.mul(load(s, a, i * LANES), load(s, b, i * LANES)));
    }
}

/// `row ← decay · row + k δ`.
#[inline(always)]
fn apply<S: Simd>(s: S, decay: S::F, delta: &[S::F; VECTORS], k: f32, row: &mut [f32; TILE]) {
    let k = s.splat(k);
    for (v, row) in row.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        // SAFETY: 16 values.
        let before = unsafe { s.load_f(row.as_ptr()) };
        let after = s.fma(k, delta[v], s.mul(before, decay));
        // SAFETY: 16 values.
        unsafe { s.store_f(row.as_mut_ptr(), after) };
    }
}

/// Adds the products of a row with an element of k and of q to two sums.
#[inline(always)]
fn read_row<S: Simd>(
    s: S,
    row: &[f32; TILE],
    (k, with_k): (f32, &mut [S::F; VECTORS]),
    (q, with_q): (f32, &mut [S::F; VECTORS]),
) {
    let (k, q) = (s.splat(k), s.splat(q));
    for (v, row) in row.as_chunks::<LANES>().0.iter().enumerate() {
        // SAFETY: 16 values.
        let row = unsafe { s.load_f(row.as_ptr()) };
        with_k[v] = s.fma(row, k, with_k[v]);
        with_q[v] = s.fma(row, q, with_q[v]);
    }
}

/// `y = x · scale / √(Σx² + eps)`.
#[inline(always)]
fn normalize<S: Simd>(s: S, x: &[f32], eps: f32, scale: f32, y: &mut [f32]) {
    let scale = s.splat(scale / (dot(s, x, x) + eps).sqrt());
    for (i, y) in y.chunks_mut(LANES).enumerate() {
        store(s, y, s.mul(load(s, x, i * LANES), scale));
    }
}

/// `Σ a·b`: each lane sums every 16th product, then the lanes are summed by halves.
#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = s.splat(0.0);
    for at in (0..a.len()).step_by(LANES) {
        sum = s.fma(load(s, a, at), load(s, b, at), sum);
    }
    s.sum(sum)
}

/// A tile of a selective state space; see [`rf_graph::Op::StateSpace`].
pub(crate) struct StateSpaceTile<'a> {
    pub(crate) heads: StateSpaceHeads,
    pub(crate) head: usize,
    /// The first column of the tile.
    pub(crate) column: usize,
    pub(crate) dt_bias: f32,
    pub(crate) decay: f32,
    pub(crate) skip: f32,
    pub(crate) tokens: Range<usize>,
    pub(crate) xbc: Rows<'a>,
    pub(crate) dt: Rows<'a>,
    pub(crate) out: Rows<'a>,
    /// `[state_dim]` of [`TILE`].
    pub(crate) state: &'a mut [f32],
}

impl Kernel for StateSpaceTile<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let StateSpaceHeads { num_heads, head_dim, num_groups, state_dim } = self.heads;
        let first = self.head * head_dim;
        let group = self.heads.inner_width() + self.head / (num_heads / num_groups) * state_dim;
        let rows = self.state.as_chunks_mut::<TILE>().0;
        for token in self.tokens {
            // SAFETY: written in an earlier phase.
            let (xbc, dt) = unsafe { (self.xbc.row(token), self.dt.row(token)) };
            let b = &xbc[group..][..state_dim];
            let c = &xbc[group + num_groups * state_dim..][..state_dim];
            let dt = softplus(dt[self.head] + self.dt_bias);
            let (decay, dt) = (s.splat((dt * self.decay).exp()), s.splat(dt));
            let values = &xbc[first..][..head_dim];
            let (mut x, mut delta) = ([s.splat(0.0); VECTORS], [s.splat(0.0); VECTORS]);
            for v in 0..VECTORS {
                x[v] = load(s, values, self.column + v * LANES);
                delta[v] = s.mul(x[v], dt);
            }
            let mut y = [s.splat(0.0); VECTORS];
            for ((row, b), c) in rows.iter_mut().zip(b).zip(c) {
                apply(s, decay, &delta, *b, row);
                let c = s.splat(*c);
                for (v, row) in row.as_chunks::<LANES>().0.iter().enumerate() {
                    // SAFETY: 16 values.
                    y[v] = s.fma(unsafe { s.load_f(row.as_ptr()) }, c, y[v]);
                }
            }
            for v in 0..VECTORS {
                let at = self.column + v * LANES;
                let end = head_dim.min(at + LANES);
                if at < end {
                    let y = s.fma(x[v], s.splat(self.skip), y[v]);
                    // SAFETY: these columns of the sequence's tokens belong to this item.
                    store(s, unsafe { self.out.row_mut(token, first + at..first + end) }, y);
                }
            }
        }
    }
}

/// A tile of a selective scan; see [`rf_graph::Op::SelectiveScan`]. A lane is a channel.
pub(crate) struct ScanTile<'a> {
    /// The first channel of the tile.
    pub(crate) column: usize,
    /// `[state_dim, channels]`.
    pub(crate) decay: &'a [f32],
    /// `[channels]`.
    pub(crate) skip: &'a [f32],
    pub(crate) tokens: Range<usize>,
    pub(crate) x: Rows<'a>,
    pub(crate) dt: Rows<'a>,
    pub(crate) b: Rows<'a>,
    pub(crate) c: Rows<'a>,
    pub(crate) out: Rows<'a>,
    /// `[state_dim]` of [`TILE`].
    pub(crate) state: &'a mut [f32],
}

impl Kernel for ScanTile<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let channels = self.out.width;
        let rows = self.state.as_chunks_mut::<TILE>().0;
        for token in self.tokens {
            // SAFETY: written in an earlier phase.
            let [x, dt, b, c] =
                [self.x, self.dt, self.b, self.c].map(|rows| unsafe { rows.row(token) });
            for v in 0..VECTORS {
                let at = self.column + v * LANES;
                let end = channels.min(at + LANES);
                if at >= end {
                    break;
                }
                let (x, time) = (load(s, x, at), s.softplus(load(s, dt, at)));
                let delta = s.mul(x, time);
                let mut y = s.mul(x, load(s, self.skip, at));
                let decays = self.decay.chunks_exact(channels);
                for (((row, decay), b), c) in rows.iter_mut().zip(decays).zip(b).zip(c) {
                    let row = &mut row.as_chunks_mut::<LANES>().0[v];
                    let decay = s.exp_or_zero(s.mul(time, load(s, decay, at)));
                    // SAFETY: 16 values.
                    let before = unsafe { s.load_f(row.as_ptr()) };
                    let after = s.fma(s.splat(*b), delta, s.mul(before, decay));
                    // SAFETY: 16 values.
                    unsafe { s.store_f(row.as_mut_ptr(), after) };
                    y = s.fma(after, s.splat(*c), y);
                }
                // SAFETY: these columns of the sequence's tokens belong to this item.
                store(s, unsafe { self.out.row_mut(token, at..end) }, y);
            }
        }
    }
}

/// `ln(1 + eˣ)`.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
