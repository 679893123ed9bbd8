//! The layer of a transformer, written once. [`LayerSpec`] has its hyper-parameters; which weights
//! it has is up to [`LayerWeights`]. Model files and conformance models build their layers here.

mod altup;
mod latent;
mod recurrent;
mod role;
mod spec;

pub use altup::{altup_mean, altup_streams};
pub use role::{Role, RoleShape};
pub use spec::{
    AdjugateSpec, AltUpSpec, AttentionSpec, BeforeAttention, DeltaNetSpec, DenseSpec, ExpertSpec,
    KvSource, LatentSpec, LayerSpec, MambaSpec, Mixer, NormKind, OutputGate, QkNormGroup,
    QkNormSpec, ScanSpec, ShortConvSpec,
};

use crate::op::{Activation, Attention, Function, GraphBuilder, Router};
use crate::value::{ValueId, WeightId};

/// The weights of one layer, and the graph that they are registered in.
pub trait LayerWeights {
    /// A weight is missing or has an unexpected shape.
    type Error;

    /// The graph under construction.
    fn graph(&mut self) -> &mut GraphBuilder;

    /// The weight in a role; `None` if the layer has none.
    ///
    /// # Errors
    ///
    /// If the layer should have it.
    fn weight(&mut self, layer: &LayerSpec, role: Role) -> Result<Option<WeightId>, Self::Error>;

    /// The bias that belongs to the weight in a role: as long as the weight has rows, or as long as
    /// a norm weight; for experts `[count, rows]`.
    ///
    /// # Errors
    ///
    /// If the layer should have it.
    fn bias(&mut self, layer: &LayerSpec, role: Role) -> Result<Option<WeightId>, Self::Error>;

    /// The factor on the product with the matrix in a role, apart from its bias. `None` stands for
    /// 1.
    ///
    /// # Errors
    ///
    /// If the factor is malformed.
    fn scale(&mut self, layer: &LayerSpec, role: Role) -> Result<Option<f32>, Self::Error> {
        let _ = (layer, role);
        Ok(None)
    }

    /// The bounds of the input and the output of the matrix in a role.
    ///
    /// # Errors
    ///
    /// If the bounds are malformed.
    fn clamps(&mut self, layer: &LayerSpec, role: Role) -> Result<Clamps, Self::Error> {
        let _ = (layer, role);
        Ok(Clamps::default())
    }

    /// The matrices of the experts, or of the heads.
    ///
    /// # Errors
    ///
    /// If one is missing.
    fn experts(&mut self, layer: &LayerSpec, role: Role) -> Result<Vec<WeightId>, Self::Error>;

    /// A vector of equal values: of ones, it is the weight of a norm without weight.
    fn constant(&mut self, len: usize, value: f32) -> WeightId;
}

/// The bounds `[min, max]` of the input and the output of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clamps {
    /// Bounds of the input.
    pub input: Option<[f32; 2]>,
    /// Bounds of the output.
    pub output: Option<[f32; 2]>,
}

/// Builds one layer: `x + mixer(norm(x))`, then `x + feed_forward(norm(x))`.
///
/// `per_layer_input` is the token's embedding for this layer, `[tokens, per_layer_input]`, where
/// [`LayerSpec::per_layer_input`] says so.
///
/// # Errors
///
/// If a weight is missing or has an unexpected shape.
pub fn layer<W: LayerWeights>(
    weights: &mut W,
    spec: &LayerSpec,
    x: ValueId,
    per_layer_input: Option<ValueId>,
) -> Result<ValueId, W::Error> {
    let out = Layer { w: weights, spec, input: x }.build(x, per_layer_input)?;
    weights.graph().end_layer();
    Ok(out)
}

struct Layer<'a, W> {
    w: &'a mut W,
    spec: &'a LayerSpec,
    /// The layer's input.
    input: ValueId,
}

impl<W: LayerWeights> Layer<'_, W> {
    fn build(&mut self, x: ValueId, per_layer_input: Option<ValueId>) -> Result<ValueId, W::Error> {
        let spec = self.spec;
        if let Some(altup) = spec.altup {
            return self.altup(altup, x, per_layer_input);
        }
        if spec.mixer == Mixer::None {
            return if spec.has_feed_forward() { self.feed_forward_only(x) } else { Ok(x) };
        }
        let normed = self.norm(Role::AttentionNorm, x)?;
        let attended = match &spec.mixer {
            Mixer::None => unreachable!("such a layer has been built"),
            Mixer::Mamba(mamba) => self.mamba(*mamba, normed)?,
            Mixer::Projection => self.linear(Role::AttentionOutput, normed)?,
            Mixer::Attention(attention) => self.attention(attention, normed)?,
            Mixer::Latent(latent) => self.latent_attention(latent, normed)?,
            Mixer::ShortConv(conv) => self.short_conv(*conv, normed)?,
            Mixer::DeltaNet(delta) => self.delta_net(*delta, normed)?,
            Mixer::AttentionAndMamba(attention, mamba) => {
                let scanned = self.mamba(*mamba, normed)?;
                let attended = self.attention(attention, normed)?;
                self.w.graph().add(attended, scanned)
            }
            Mixer::Scan(scan) => self.scan(*scan, normed)?,
        };
        let attended = self.column_scaled(Role::AttentionScale, attended)?;
        let attended = self.norm(Role::PostAttentionNorm, attended)?;
        let after_attention = self.add_residual(x, attended);
        let after_attention = self.norm(Role::AttentionResidualNorm, after_attention)?;
        if !spec.has_feed_forward() {
            return Ok(after_attention);
        }

        let fed = if spec.parallel {
            // Without a norm of its own, the feed-forward layer reads what attention reads.
            let normed = self.own_norm(Role::FeedForwardNorm, x)?.unwrap_or(normed);
            self.feed_forward(x, normed)?
        } else {
            let normed = self.norm(Role::FeedForwardNorm, after_attention)?;
            self.feed_forward(after_attention, normed)?
        };
        let fed = self.norm(Role::PostFeedForwardNorm, fed)?;
        let fed = self.column_scaled(Role::FeedForwardScale, fed)?;
        let x = self.add_residual(after_attention, fed);
        let x = self.norm(Role::FeedForwardResidualNorm, x)?;
        let x = match per_layer_input {
            Some(input) => self.add_per_layer_input(x, input)?,
            None => x,
        };
        let x = self.column_scaled(Role::OutputScale, x)?;
        Ok(self.scaled(x, spec.output_scale))
    }

    /// `softmax(scale · rope(q) · rope(k)ᵀ) · v · Wₒ`, with the gate before `Wₒ`.
    fn attention(&mut self, a: &AttentionSpec, x: ValueId) -> Result<ValueId, W::Error> {
        let attention = Attention {
            scale: a.scale,
            causal: a.causal,
            non_causal_media: a.non_causal_media,
            window: a.window,
            chunk: a.chunk,
            softcap: a.softcap,
            alibi: a.alibi,
            sinks: self.w.weight(self.spec, Role::Sinks)?,
            ..Attention::new(a.kv_layer, a.num_heads, a.num_kv_heads, a.head_dim)
        };
        let q = self.projected(a, Role::Query, x)?;
        let (q, gate) = if a.gated {
            let part = |l: &mut Self, columns| l.w.graph().slice_groups(q, 2 * a.head_dim, columns);
            (part(self, 0..a.head_dim), Some(part(self, a.head_dim..2 * a.head_dim)))
        } else {
            (q, None)
        };
        let kv = match a.kv {
            KvSource::Projections => {
                Some((self.projected(a, Role::Key, x)?, self.projected(a, Role::Value, x)?))
            }
            KvSource::SharedProjection => {
                let kv = self.projected(a, Role::Key, x)?;
                Some((kv, kv))
            }
            KvSource::Cache => None,
        };
        let q = self.placed(a, Role::QueryNorm, q)?;
        let q = match a.position_scale {
            Some(scale) => self.w.graph().scale_by_position(q, scale),
            None => q,
        };
        let y = match kv {
            Some((k, v)) => {
                let placed = self.placed(a, Role::KeyNorm, k)?;
                let v = if a.normalizes_values { self.unweighted_norm(v, a.value_dim) } else { v };
                let v = self.scaled(v, a.value_scale);
                let v = self.as_long_as_keys(a, v, k);
                self.w.graph().attention(q, placed, v, &attention)
            }
            None => self.w.graph().attend(q, &attention),
        };
        let y = if a.value_dim < a.head_dim {
            self.w.graph().slice_groups(y, a.head_dim, 0..a.value_dim)
        } else {
            y
        };
        let y = match gate {
            Some(gate) => self.w.graph().sigmoid_gate(y, gate),
            None => y,
        };
        let y = self.output_gated(a.output_gate, x, y)?;
        let y = self.norm(Role::AttentionSubNorm, y)?;
        self.linear(Role::AttentionOutput, y)
    }

    /// The output `y` of attention with its gate, if it has one, from the input `x`.
    fn output_gated(
        &mut self,
        gate: Option<OutputGate>,
        x: ValueId,
        y: ValueId,
    ) -> Result<ValueId, W::Error> {
        let Some(OutputGate { function, .. }) = gate else { return Ok(y) };
        let gate = self.linear(Role::AttentionGate, x)?;
        Ok(self.w.graph().gate(function, y, gate))
    }

    /// Queries, keys or values.
    fn projected(
        &mut self,
        a: &AttentionSpec,
        role: Role,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let y = self.linear(role, x)?;
        Ok(match a.clamp {
            Some(bound) => {
                let clamp = Function::Clamp { min: -bound, max: bound };
                self.w.graph().map(y, clamp)
            }
            None => y,
        })
    }

    /// Values, with zeros at the end of each head where keys are longer.
    fn as_long_as_keys(&mut self, a: &AttentionSpec, v: ValueId, k: ValueId) -> ValueId {
        if a.value_dim == a.head_dim {
            return v;
        }
        let g = self.w.graph();
        let zeros = g.slice_groups(k, a.head_dim, a.value_dim..a.head_dim);
        let zeros = g.scale(zeros, 0.0);
        g.join_groups(v, zeros, a.num_kv_heads)
    }

    /// Queries or keys with norm and RoPE, in the order of the model.
    fn placed(&mut self, a: &AttentionSpec, norm: Role, x: ValueId) -> Result<ValueId, W::Error> {
        let rotated = |l: &mut Self, x| match &a.rope {
            Some(rope) => l.w.graph().rope(x, rope),
            None => x,
        };
        Ok(match a.qk_norm {
            None => rotated(self, x),
            Some(QkNormSpec { group, after_rope: false }) => {
                let x = self.qk_norm(a, norm, group, x)?;
                rotated(self, x)
            }
            Some(QkNormSpec { group, after_rope: true }) => {
                let x = rotated(self, x);
                self.qk_norm(a, norm, group, x)?
            }
        })
    }

    fn qk_norm(
        &mut self,
        a: &AttentionSpec,
        norm: Role,
        group: QkNormGroup,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        if group == QkNormGroup::UnweightedHead {
            return Ok(self.unweighted_norm(x, a.head_dim));
        }
        let weight = self.required(norm)?;
        Ok(self.w.graph().rms_norm(x, weight, self.spec.norm_eps))
    }

    /// `x + feed_forward(norm(x))`.
    fn feed_forward_only(&mut self, x: ValueId) -> Result<ValueId, W::Error> {
        let normed = self.norm(Role::FeedForwardNorm, x)?;
        let fed = self.feed_forward(x, normed)?;
        Ok(self.add_residual(x, fed))
    }

    /// The feed-forward part of the layer. `residual` is its input before the norm.
    fn feed_forward(&mut self, residual: ValueId, x: ValueId) -> Result<ValueId, W::Error> {
        let dense = match &self.spec.dense {
            Some(dense) => {
                let y = self.dense([Role::Gate, Role::Up, Role::Down], dense, x)?;
                Some(self.norm(Role::DenseOutputNorm, y)?)
            }
            None => None,
        };
        let experts = match &self.spec.experts {
            Some(experts) => {
                let residual = match experts.before_attention {
                    BeforeAttention::Experts => self.input,
                    BeforeAttention::Nothing | BeforeAttention::Router => residual,
                };
                let x = self.own_norm(Role::ExpertNorm, residual)?.unwrap_or(x);
                let y = self.experts(experts, residual, x)?;
                Some(self.norm(Role::ExpertOutputNorm, y)?)
            }
            None => None,
        };
        Ok(match (dense, experts) {
            (Some(a), Some(b)) => self.w.graph().add(a, b),
            (Some(y), None) | (None, Some(y)) => y,
            (None, None) => unreachable!("a layer has a dense part, experts, or both"),
        })
    }

    /// `(activation(x · Wgate) ⊙ x · Wup) · Wdown`, or without the gate.
    fn dense(
        &mut self,
        [gate, up, down]: [Role; 3],
        dense: &DenseSpec,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let h = if dense.gated {
            let mut gate = self.linear(gate, x)?;
            if let Some(deviations) = self.spec.altup.and_then(|altup| altup.sparsity) {
                gate = self.above_deviation(gate, dense.intermediate_size, deviations);
            }
            let up = self.linear(up, x)?;
            self.gated_unit(dense.activation, dense.clamp, gate, up)
        } else {
            let up = self.linear(up, x)?;
            let activation = Function::Activation(dense.activation);
            self.w.graph().map(up, dense.xielu.map_or(activation, Function::Xielu))
        };
        let h = if down == Role::Down { self.norm(Role::FeedForwardSubNorm, h)? } else { h };
        self.linear(down, h)
    }

    /// `activation(gate) ⊙ up`; with a bound c `min(activation(gate), c) ⊙ clamp(up, −c, c)`.
    fn gated_unit(
        &mut self,
        activation: Activation,
        clamp: Option<f32>,
        gate: ValueId,
        up: ValueId,
    ) -> ValueId {
        let g = self.w.graph();
        if clamp.is_none() && Activation::GATED.contains(&activation) {
            return g.glu(activation, gate, up);
        }
        let (mut gate, mut up) = (g.map(gate, Function::Activation(activation)), up);
        if let Some(bound) = clamp {
            // `SiLU` is above −0.28, so only the upper bound counts.
            let clamp = Function::Clamp { min: -bound, max: bound };
            [gate, up] = [gate, up].map(|x| g.map(x, clamp));
        }
        g.mul(gate, up)
    }

    /// `Σ wₑ · expertₑ(x)` over the experts that the router selects, plus the shared expert.
    fn experts(
        &mut self,
        experts: &ExpertSpec,
        residual: ValueId,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let router = Router {
            experts_per_token: experts.experts_per_token,
            gate: experts.gate,
            selection_bias: self.w.weight(self.spec, Role::SelectionBias)?,
            groups: experts.groups,
            normalize: experts.normalize,
            scale: experts.scale,
            expert_scale: self.w.weight(self.spec, Role::ExpertScale)?,
            group: 1,
            shared_expert: false,
        };
        let router_input = match self.own_norm(Role::RouterNorm, residual)? {
            Some(normed) => {
                let scale = 1.0 / (self.spec.hidden_size as f32).sqrt();
                self.w.graph().scale(normed, scale)
            }
            None if experts.before_attention == BeforeAttention::Router => self.input,
            None => x,
        };
        let logits = self.linear(Role::Router, router_input)?;
        let route = self.w.graph().route(logits, &router);

        let roles = [Role::ExpertGate, Role::ExpertUp, Role::ExpertDown];
        let mut y = self.routed(experts, roles, x, route)?;
        if let Some(adjugates) = experts.adjugates {
            let roles = [Role::AdjugateGate, Role::AdjugateUp, Role::AdjugateDown];
            let route = self.w.graph().route(logits, &Router { group: adjugates.group, ..router });
            let adjugate = self.routed(experts, roles, y, route)?;
            let adjugate = self.w.graph().scale(adjugate, adjugates.scale);
            y = self.w.graph().add(y, adjugate);
        }
        let Some(intermediate_size) = experts.shared_intermediate_size else {
            return Ok(self.scaled(y, experts.output_scale));
        };
        let ExpertSpec { activation, gated, shared_clamp: clamp, .. } = *experts;
        let shared = DenseSpec { intermediate_size, activation, gated, xielu: None, clamp };
        let roles = [Role::SharedGate, Role::SharedUp, Role::SharedDown];
        let mut shared = self.dense(roles, &shared, x)?;
        if let Some(weight) = self.w.weight(self.spec, Role::SharedRouter)? {
            let gate = self.w.graph().matmul(x, weight);
            shared = self.w.graph().sigmoid_gate(shared, gate);
        }
        let y = self.w.graph().add(y, shared);
        Ok(self.scaled(y, experts.output_scale))
    }

    /// `Σ wₑ · expertₑ(x)` over the experts of a route.
    fn routed(
        &mut self,
        experts: &ExpertSpec,
        [gate, up, down]: [Role; 3],
        x: ValueId,
        route: ValueId,
    ) -> Result<ValueId, W::Error> {
        // Gate and up are linear, so their outputs can be scaled instead of their input.
        let input = |l: &mut Self, role| -> Result<ValueId, W::Error> {
            let y = l.expert_matmul(role, x, route)?;
            let scales = experts.scales_input;
            Ok(if scales { l.w.graph().scale_experts(y, route) } else { y })
        };
        let h = if experts.gated {
            let (gate, up) = (input(self, gate)?, input(self, up)?);
            self.gated_unit(experts.activation, experts.clamp, gate, up)
        } else {
            let up = input(self, up)?;
            self.w.graph().map(up, Function::Activation(experts.activation))
        };
        let y = self.expert_matmul(down, h, route)?;
        Ok(if experts.scales_input {
            assert_eq!(experts.experts_per_token, 1, "scaled inputs of several experts");
            y
        } else {
            self.w.graph().combine_experts(y, route)
        })
    }

    fn expert_matmul(
        &mut self,
        role: Role,
        x: ValueId,
        route: ValueId,
    ) -> Result<ValueId, W::Error> {
        let weights = match (role, self.spec.experts.and_then(|experts| experts.adjugates)) {
            (Role::AdjugateGate | Role::AdjugateUp | Role::AdjugateDown, Some(adjugates)) => {
                // Each expert of a group has the matrix of its adjugate, as a separate weight:
                // backends store the matrices of experts one after the other.
                let copies = (0..adjugates.group).map(|_| self.w.experts(self.spec, role));
                let copies = copies.collect::<Result<Vec<_>, _>>()?;
                let of_group = |group| copies.iter().map(move |copy| copy[group]);
                (0..copies[0].len()).flat_map(of_group).collect()
            }
            _ => self.w.experts(self.spec, role)?,
        };
        let bias = self.w.bias(self.spec, role)?;
        Ok(self.w.graph().expert_matmul(x, route, weights, bias))
    }

    /// `x + norm(proj(gelu(gate(x)) ⊙ input))`.
    fn add_per_layer_input(&mut self, x: ValueId, input: ValueId) -> Result<ValueId, W::Error> {
        let y = self.per_layer_output(x, input)?;
        Ok(self.w.graph().add(x, y))
    }

    /// `norm(proj(gelu(gate(x)) ⊙ input))`.
    fn per_layer_output(&mut self, x: ValueId, input: ValueId) -> Result<ValueId, W::Error> {
        let gate = self.linear(Role::PerLayerGate, x)?;
        let h = self.w.graph().glu(Activation::GeluTanh, gate, input);
        let y = self.linear(Role::PerLayerProjection, h)?;
        self.norm(Role::PerLayerNorm, y)
    }

    /// `x · Wᵀ (+ b)`.
    fn linear(&mut self, role: Role, x: ValueId) -> Result<ValueId, W::Error> {
        let weight = self.required(role)?;
        let bias = self.w.bias(self.spec, role)?;
        // The factor of x is the factor of the product, and leaves the bias alone.
        let x = match self.w.scale(self.spec, role)? {
            Some(scale) => self.w.graph().scale(x, scale),
            None => x,
        };
        let clamps = self.w.clamps(self.spec, role)?;
        let x = self.clamped(x, clamps.input);
        let y = self.w.graph().linear(x, weight, bias);
        Ok(self.clamped(y, clamps.output))
    }

    fn clamped(&mut self, x: ValueId, bounds: Option<[f32; 2]>) -> ValueId {
        match bounds {
            Some([min, max]) => self.w.graph().map(x, Function::Clamp { min, max }),
            None => x,
        }
    }

    /// The norm in a role, or `x` if the layer has none.
    fn norm(&mut self, role: Role, x: ValueId) -> Result<ValueId, W::Error> {
        Ok(self.own_norm(role, x)?.unwrap_or(x))
    }

    fn own_norm(&mut self, role: Role, x: ValueId) -> Result<Option<ValueId>, W::Error> {
        let Some(weight) = self.w.weight(self.spec, role)? else { return Ok(None) };
        let eps = match role {
            Role::PostAttentionNorm | Role::PostFeedForwardNorm => self.spec.post_norm_eps,
            _ => self.spec.norm_eps,
        };
        Ok(Some(match self.spec.norm {
            NormKind::Rms => {
                let y = self.w.graph().rms_norm(x, weight, eps);
                match self.w.bias(self.spec, role)? {
                    Some(bias) => self.w.graph().add_vector(y, bias),
                    None => y,
                }
            }
            NormKind::Layer => {
                let bias = self.w.bias(self.spec, role)?;
                self.w.graph().layer_norm(x, weight, bias, eps)
            }
        }))
    }

    fn unweighted_norm(&mut self, x: ValueId, group: usize) -> ValueId {
        let ones = self.w.constant(group, 1.0);
        self.w.graph().rms_norm(x, ones, self.spec.norm_eps)
    }

    fn add_residual(&mut self, residual: ValueId, y: ValueId) -> ValueId {
        let y = self.scaled(y, self.spec.residual_scale);
        self.w.graph().add(residual, y)
    }

    /// `x · w` in each row, with the vector in a role: a table of positions with one row. Without
    /// the vector, `x`.
    fn column_scaled(&mut self, role: Role, x: ValueId) -> Result<ValueId, W::Error> {
        let Some(weight) = self.w.weight(self.spec, role)? else { return Ok(x) };
        let factors = self.w.graph().embed_position(weight);
        Ok(self.w.graph().mul(x, factors))
    }

    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 is no op")]
    fn scaled(&mut self, x: ValueId, factor: f32) -> ValueId {
        if factor == 1.0 { x } else { self.w.graph().scale(x, factor) }
    }

    fn required(&mut self, role: Role) -> Result<WeightId, W::Error> {
        let weight = self.w.weight(self.spec, role)?;
        Ok(weight.unwrap_or_else(|| panic!("the weight table has no {role:?}")))
    }
}
