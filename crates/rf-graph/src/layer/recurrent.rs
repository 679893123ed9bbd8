//! The recurrent mixers of a layer.

use super::spec::{DeltaNetSpec, MambaSpec, ScanSpec, ShortConvSpec};
use super::{Layer, LayerWeights, Role};
use crate::op::{Activation, DeltaDecay};
use crate::value::ValueId;

impl<W: LayerWeights> Layer<'_, W> {
    /// `(c ⊙ conv(b ⊙ x)) · Wₒ`.
    pub(super) fn short_conv(
        &mut self,
        conv: ShortConvSpec,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let b = self.linear(Role::ConvInputGate, x)?;
        let c = self.linear(Role::ConvOutputGate, x)?;
        let x = self.linear(Role::MixerInput, x)?;
        let x = self.w.graph().mul(b, x);
        let filter = self.required(Role::ConvFilter)?;
        let y = self.w.graph().causal_conv(x, filter, None, false, conv.state);
        let y = self.w.graph().mul(c, y);
        self.linear(Role::MixerOutput, y)
    }

    /// `(norm(delta(conv(qkv), α, β)) ⊙ silu(z)) · Wₒ`, or with `σ(z)`.
    pub(super) fn delta_net(
        &mut self,
        delta: DeltaNetSpec,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let DeltaNetSpec { heads, decay, first_state, .. } = delta;
        let is_per_head = decay == DeltaDecay::Head;
        let qkv = if is_per_head {
            self.linear(Role::MixerInput, x)?
        } else {
            let (q, k) = (self.linear(Role::Query, x)?, self.linear(Role::Key, x)?);
            let v = self.linear(Role::Value, x)?;
            let qk = self.w.graph().join_groups(q, k, 1);
            self.w.graph().join_groups(qk, v, 1)
        };
        let gate = self.through_latent(delta, [Role::MixerGateLatent, Role::MixerGate], x)?;
        let [beta, alpha] = if let Some(weight) = self.w.weight(self.spec, Role::BetaAlpha)? {
            let both = self.w.graph().matmul(x, weight);
            let per_key_head = heads.num_value_heads / heads.num_key_heads;
            [0, per_key_head].map(|start| {
                let columns = start..start + per_key_head;
                self.w.graph().slice_groups(both, 2 * per_key_head, columns)
            })
        } else {
            let beta = self.linear(Role::Beta, x)?;
            [beta, self.through_latent(delta, [Role::AlphaLatent, Role::Alpha], x)?]
        };
        let filter = self.required(Role::ConvFilter)?;
        let qkv = self.w.graph().causal_conv(qkv, filter, None, true, first_state);
        let decays = [self.required(Role::Decay)?, self.required(Role::DecayBias)?];
        let (inputs, eps) = ([qkv, alpha, beta], self.spec.norm_eps);
        let y = self.w.graph().delta_net(inputs, decays, (heads, decay), eps, first_state + 1);
        let norm = self.required(Role::MixerNorm)?;
        let y = self.w.graph().rms_norm(y, norm, eps);
        let y = if is_per_head {
            self.w.graph().glu(Activation::Silu, gate, y)
        } else {
            self.w.graph().sigmoid_gate(y, gate)
        };
        self.linear(Role::MixerOutput, y)
    }

    /// A projection of the input, or of its latent where the gates of a delta rule have one.
    fn through_latent(
        &mut self,
        delta: DeltaNetSpec,
        [latent, last]: [Role; 2],
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let x = if delta.gate_rank.is_some() { self.linear(latent, x)? } else { x };
        self.linear(last, x)
    }

    /// `norm(ssm(conv(xbc), Δ) ⊙ silu(z)) · Wₒ`.
    pub(super) fn mamba(&mut self, mamba: MambaSpec, x: ValueId) -> Result<ValueId, W::Error> {
        let MambaSpec { heads, first_state, .. } = mamba;
        let gate = self.linear(Role::MixerGate, x)?;
        let xbc = self.linear(Role::MixerInput, x)?;
        let dt = self.linear(Role::TimeStep, x)?;
        let filter = self.required(Role::ConvFilter)?;
        let bias = self.w.weight(self.spec, Role::ConvBias)?;
        let xbc = self.w.graph().causal_conv(xbc, filter, bias, true, first_state);
        let vectors = [
            self.required(Role::DecayBias)?,
            self.required(Role::Decay)?,
            self.required(Role::Skip)?,
        ];
        let y = self.w.graph().state_space([xbc, dt], vectors, heads, first_state + 1);
        let y = self.w.graph().glu(Activation::Silu, gate, y);
        let y = match self.w.weight(self.spec, Role::MixerNorm)? {
            Some(norm) => self.w.graph().rms_norm(y, norm, self.spec.norm_eps),
            None => y,
        };
        self.linear(Role::MixerOutput, y)
    }

    /// `(scan(x, Δ, B, C) ⊙ silu(z)) · Wₒ` for the output x of the convolution, and Δ, B and C from
    /// x.
    pub(super) fn scan(&mut self, scan: ScanSpec, x: ValueId) -> Result<ValueId, W::Error> {
        let ScanSpec { channels, state_dim, time_step_rank, first_state, .. } = scan;
        let input = self.linear(Role::MixerInput, x)?;
        let (input, gate) = if let Some(heads) = scan.heads {
            let (g, head_dim) = (self.w.graph(), channels / heads);
            let gate = g.slice_groups(input, 2 * head_dim, 0..head_dim);
            (g.slice_groups(input, 2 * head_dim, head_dim..2 * head_dim), gate)
        } else {
            (input, self.linear(Role::MixerGate, x)?)
        };
        let filter = self.required(Role::ConvFilter)?;
        let bias = self.w.weight(self.spec, Role::ConvBias)?;
        let x = self.w.graph().causal_conv(input, filter, bias, true, first_state);

        let parts = self.linear(Role::ScanProjection, x)?;
        // The first columns of Δ's latent, B and C.
        let [first_dt, first_b] = match scan.heads {
            Some(_) => [2 * state_dim, 0],
            None => [0, time_step_rank],
        };
        let dt = self.w.graph().slice(parts, first_dt..first_dt + time_step_rank);
        let [b, c] = [first_b, first_b + state_dim]
            .map(|first| self.w.graph().slice(parts, first..first + state_dim));
        let dt = self.scan_norm(scan, Role::TimeStepNorm, dt)?;
        let b = self.scan_norm(scan, Role::StateInputNorm, b)?;
        let c = self.scan_norm(scan, Role::StateOutputNorm, c)?;
        let (decay, skip) = (self.required(Role::Decay)?, self.required(Role::Skip)?);
        let y = if let Some(heads) = scan.state_space() {
            // The op adds the bias.
            let weight = self.required(Role::TimeStep)?;
            let vectors = [self.required(Role::DecayBias)?, decay, skip];
            let g = self.w.graph();
            let dt = g.matmul(dt, weight);
            let xb = g.join_groups(x, b, 1);
            let xbc = g.join_groups(xb, c, 1);
            g.state_space([xbc, dt], vectors, heads, first_state + 1)
        } else {
            let dt = self.linear(Role::TimeStep, dt)?;
            self.w.graph().selective_scan([x, dt, b, c], [decay, skip], first_state + 1)
        };
        let y = self.w.graph().glu(Activation::Silu, gate, y);
        self.linear(Role::MixerOutput, y)
    }

    /// An input of a scan with its norm, if it has one.
    fn scan_norm(&mut self, scan: ScanSpec, norm: Role, x: ValueId) -> Result<ValueId, W::Error> {
        if !scan.normalized {
            return Ok(x);
        }
        if let Some(weight) = self.w.weight(self.spec, norm)? {
            return Ok(self.w.graph().rms_norm(x, weight, self.spec.norm_eps));
        }
        let is_latent = norm == Role::TimeStepNorm;
        let len = if is_latent { scan.time_step_rank } else { scan.state_dim };
        Ok(self.unweighted_norm(x, len))
    }
}
