//! `AltUp` and `LAuReL` (Gemma 3n): a token has several streams, of which a layer computes one. It
//! predicts the others before, and corrects all of them after.
//!
//! A weighted sum of streams is [`Op::CombineExperts`](crate::Op::CombineExperts), whose weights
//! are functions of the token here too.

use std::f32::consts::FRAC_1_SQRT_2;
use std::ops::Range;

use super::spec::AltUpSpec;
use super::{Layer, LayerWeights, Mixer, Role};
use crate::op::{Activation, Function, GraphBuilder};
use crate::value::{ValueId, WeightId};

impl<W: LayerWeights> Layer<'_, W> {
    /// The layer's function of all streams, side by side: `[tokens, streams · hidden_size]`.
    pub(super) fn altup(
        &mut self,
        altup: AltUpSpec,
        x: ValueId,
        per_layer_input: Option<ValueId>,
    ) -> Result<ValueId, W::Error> {
        let (streams, width) = (altup.streams, self.spec.hidden_size);
        let stream = |g: &mut GraphBuilder, i: usize| g.slice(x, i * width..(i + 1) * width);

        let active = stream(self.w.graph(), 0);
        let modalities = self.modalities(active)?;
        let weights = self.linear(Role::AltUpPredict, modalities)?;
        let g = self.w.graph();
        let predicted = (0..streams).map(|i| {
            let mixed = weighted_sum(g, x, weights, i * streams..(i + 1) * streams);
            let own = stream(g, i);
            g.add(mixed, own)
        });
        let predicted: Vec<ValueId> = predicted.collect();

        let computed = self.with_laurel(predicted[0])?;
        let modalities = self.modalities(computed)?;
        let weights = self.linear(Role::AltUpCorrect, modalities)?;
        let g = self.w.graph();
        let minus = g.scale(predicted[0], -1.0);
        let innovation = g.add(computed, minus);
        let corrected = predicted.iter().enumerate().map(|(i, predicted)| {
            let scaled = weighted_sum(g, innovation, weights, i..i + 1);
            let whole = g.add(scaled, innovation);
            g.add(whole, *predicted)
        });
        let mut corrected: Vec<ValueId> = corrected.collect();
        if let Some(input) = per_layer_input {
            // A row for every position: the table has one.
            let scale = self.required(Role::AltUpScale)?;
            let scale = self.w.graph().embed_position(scale);
            let first = self.w.graph().mul(corrected[0], scale);
            let y = self.per_layer_output(first, input)?;
            for stream in &mut corrected[1..] {
                *stream = self.w.graph().add(*stream, y);
            }
        }
        let g = self.w.graph();
        Ok(corrected[1..].iter().fold(corrected[0], |all, stream| g.join_groups(all, *stream, 1)))
    }

    /// A value per stream: `tanh(router(norm(x) / hidden_size))`.
    fn modalities(&mut self, x: ValueId) -> Result<ValueId, W::Error> {
        let normed = self.norm(Role::AltUpRouterNorm, x)?;
        let normed = self.w.graph().scale(normed, 1.0 / self.spec.hidden_size as f32);
        let modalities = self.linear(Role::AltUpRouter, normed)?;
        // A softcap of 1 is tanh.
        Ok(self.w.graph().map(modalities, Function::Softcap(1.0)))
    }

    /// Attention and a projection of low rank of the same norm, whose sums with what they read are
    /// averaged, and then the feed-forward layer.
    fn with_laurel(&mut self, x: ValueId) -> Result<ValueId, W::Error> {
        let normed = self.norm(Role::AttentionNorm, x)?;
        let low = self.linear(Role::LaurelLeft, normed)?;
        let projected = self.linear(Role::LaurelRight, low)?;
        let projected = self.norm(Role::LaurelNorm, projected)?;
        let laurel = self.w.graph().add(projected, normed);

        let Mixer::Attention(attention) = &self.spec.mixer else {
            unreachable!("layers with several streams attend")
        };
        let attended = self.attention(attention, normed)?;
        let attended = self.norm(Role::PostAttentionNorm, attended)?;
        let attended = self.w.graph().add(attended, x);
        let both = self.w.graph().add(attended, laurel);
        let x = self.w.graph().scale(both, FRAC_1_SQRT_2);

        let normed = self.norm(Role::FeedForwardNorm, x)?;
        let fed = self.feed_forward(x, normed)?;
        let fed = self.norm(Role::PostFeedForwardNorm, fed)?;
        Ok(self.w.graph().add(x, fed))
    }

    /// `max(x − mean − deviations · σ, 0)` over rows of `width` elements, with the standard
    /// deviation of a sample.
    pub(super) fn above_deviation(&mut self, x: ValueId, width: usize, deviations: f32) -> ValueId {
        let (ones, mean) =
            (self.w.constant(width, 1.0), self.w.constant(width, 1.0 / width as f32));
        let g = self.w.graph();
        // σ is the mean of x · (x − mean) / σ.
        let z = g.layer_norm(x, ones, None, f32::MIN_POSITIVE);
        let sigma = mean_product(g, x, z, mean);
        let n = width as f32;
        let bound = deviations * (n / (n - 1.0)).sqrt();
        // What is above the bound: the rest is 0, or negative below −bound.
        let cut = g.map(z, Function::Clamp { min: -bound, max: bound });
        let cut = g.scale(cut, -1.0);
        let above = g.add(z, cut);
        let above = g.map(above, Function::Activation(Activation::Relu));
        scaled_by(g, above, sigma)
    }
}

/// The streams of a token, side by side: the embedding `x`, and its projections with the magnitude
/// of the embedding.
pub fn altup_streams<W: LayerWeights>(
    w: &mut W,
    x: ValueId,
    projections: &[WeightId],
    width: usize,
) -> ValueId {
    let (ones, mean) = (w.constant(width, 1.0), w.constant(width, 1.0 / width as f32));
    let magnitude = magnitude(w.graph(), x, ones, mean);
    projections.iter().fold(x, |all, projection| {
        let g = w.graph();
        let y = g.matmul(x, *projection);
        let y = with_magnitude(g, y, magnitude, ones);
        g.join_groups(all, y, 1)
    })
}

/// The mean of the first stream and the projections of the others, with the magnitude of the first.
pub fn altup_mean<W: LayerWeights>(
    w: &mut W,
    x: ValueId,
    projections: &[WeightId],
    width: usize,
) -> ValueId {
    let (ones, mean) = (w.constant(width, 1.0), w.constant(width, 1.0 / width as f32));
    let g = w.graph();
    let first = g.slice(x, 0..width);
    let magnitude = magnitude(g, first, ones, mean);
    let sum = projections.iter().enumerate().fold(first, |sum, (i, projection)| {
        let stream = g.slice(x, (i + 1) * width..(i + 2) * width);
        let y = g.matmul(stream, *projection);
        let y = with_magnitude(g, y, magnitude, ones);
        g.add(sum, y)
    });
    g.scale(sum, 1.0 / (projections.len() + 1) as f32)
}

/// The root mean square of each row: the mean of `x · x / rms`.
fn magnitude(g: &mut GraphBuilder, x: ValueId, ones: WeightId, mean: WeightId) -> ValueId {
    let normed = g.rms_norm(x, ones, f32::MIN_POSITIVE);
    mean_product(g, x, normed, mean)
}

/// Rows of `x` with a root mean square, `[tokens, 1]`.
fn with_magnitude(g: &mut GraphBuilder, x: ValueId, magnitude: ValueId, ones: WeightId) -> ValueId {
    let normed = g.rms_norm(x, ones, f32::MIN_POSITIVE);
    scaled_by(g, normed, magnitude)
}

/// The mean of `a · b` over each row: `[tokens, 1]`.
fn mean_product(g: &mut GraphBuilder, a: ValueId, b: ValueId, mean: WeightId) -> ValueId {
    let product = g.mul(a, b);
    g.matmul(product, mean)
}

/// Each row of `x` times its factor, `[tokens, 1]`.
fn scaled_by(g: &mut GraphBuilder, x: ValueId, factor: ValueId) -> ValueId {
    weighted_sum(g, x, factor, 0..1)
}

/// The sum of the parts of each row of `x`, as many as columns of weights, times these weights.
fn weighted_sum(
    g: &mut GraphBuilder,
    x: ValueId,
    weights: ValueId,
    columns: Range<usize>,
) -> ValueId {
    let weights = g.slice(weights, columns);
    // A route: the indices of experts, which a sum does not read, and their weights.
    let route = g.join_groups(weights, weights, 1);
    g.combine_experts(x, route)
}
