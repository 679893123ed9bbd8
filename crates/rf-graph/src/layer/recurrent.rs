//! The recurrent mixers of a layer.

use super::spec::{DeltaNetSpec, MambaSpec, ShortConvSpec};
use super::{Layer, LayerWeights, Role};
use crate::op::Activation;
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

    /// `(norm(delta(conv(qkv), α, β)) ⊙ silu(z)) · Wₒ`.
    pub(super) fn delta_net(
        &mut self,
        delta: DeltaNetSpec,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let DeltaNetSpec { heads, first_state, .. } = delta;
        let qkv = self.linear(Role::MixerInput, x)?;
        let gate = self.linear(Role::MixerGate, x)?;
        let [beta, alpha] = match self.w.weight(self.spec, Role::BetaAlpha)? {
            Some(weight) => {
                let both = self.w.graph().matmul(x, weight);
                let per_key_head = heads.num_value_heads / heads.num_key_heads;
                [0, per_key_head].map(|start| {
                    let columns = start..start + per_key_head;
                    self.w.graph().slice_groups(both, 2 * per_key_head, columns)
                })
            }
            None => [self.linear(Role::Beta, x)?, self.linear(Role::Alpha, x)?],
        };
        let filter = self.required(Role::ConvFilter)?;
        let qkv = self.w.graph().causal_conv(qkv, filter, None, true, first_state);
        let decays = [self.required(Role::Decay)?, self.required(Role::DecayBias)?];
        let (inputs, eps) = ([qkv, alpha, beta], self.spec.norm_eps);
        let y = self.w.graph().delta_net(inputs, decays, heads, eps, first_state + 1);
        let norm = self.required(Role::MixerNorm)?;
        let y = self.w.graph().rms_norm(y, norm, eps);
        let y = self.w.graph().glu(Activation::Silu, gate, y);
        self.linear(Role::MixerOutput, y)
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
        let norm = self.required(Role::MixerNorm)?;
        let y = self.w.graph().rms_norm(y, norm, self.spec.norm_eps);
        self.linear(Role::MixerOutput, y)
    }
}
