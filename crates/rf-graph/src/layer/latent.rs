//! Latent attention: all heads share one row of the cache per token and layer.
//!
//! The row holds the latent, from which the keys and values of all heads are projections, and one
//! more key, usually rotated (`KvLayer::latent`). Attention is computed in the absorbed form. A
//! matrix per head (`Op::HeadMatMul`) takes queries to latents. All heads attend to the rows, whose
//! first elements are also the values (`Attention::latent_dim`). Another matrix per head takes the
//! sums to values. A page has no part for values.
//!
//! Prompts use the same form. Expanded keys and values would halve the multiplications of a query
//! and a key: in GLM 4.7 Flash from 1088 to 512 per head. But each chunk of a prompt would have to
//! expand the cache again, which costs 229,000 multiplications per head and key. That pays from 400
//! tokens per chunk on, and saves at most 12 % of attention at the default of 512.
//!
//! On a GPU a workgroup reads each row of the cache once for 16 pairs of a token and a head, and
//! multiplies with f16 matrix units in decode too (`kernels/include/rf/latent.h`).

use super::spec::LatentSpec;
use super::{Layer, LayerWeights, Role};
use crate::op::{Attention, GraphBuilder};
use crate::value::ValueId;

impl<W: LayerWeights> Layer<'_, W> {
    /// Attention with the keys `[Kₕc, r]` and the values `Vₕc` of head h, where c is the latent of
    /// a position and r its shared key, in the absorbed form: `q · Kₕc = Kₕᵀq · c`, and the sum of
    /// weighted values is `Vₕ` times that of latents. So all heads attend to the same keys
    /// `[c, r]`, and c is their value.
    pub(super) fn latent_attention(
        &mut self,
        a: &LatentSpec,
        x: ValueId,
    ) -> Result<ValueId, W::Error> {
        let query_input = match a.query_rank {
            Some(_) => {
                let latent = self.linear(Role::QueryLatent, x)?;
                self.norm(Role::QueryLatentNorm, latent)?
            }
            None => x,
        };
        let q = self.linear(Role::Query, query_input)?;
        let kv = self.linear(Role::Latent, x)?;

        let query_dim = a.nope_dim + a.shared_dim;
        let g = self.w.graph();
        let nope = g.slice_groups(q, query_dim, 0..a.nope_dim);
        let placed = |g: &mut GraphBuilder, x| match &a.rope {
            Some(rope) => g.rope(x, rope),
            None => x,
        };
        let query = g.slice_groups(q, query_dim, a.nope_dim..query_dim);
        let query = placed(g, query);
        let latent = g.slice(kv, 0..a.latent_dim);
        let key = g.slice(kv, a.latent_dim..a.latent_dim + a.shared_dim);
        let key = placed(g, key);
        let latent = self.norm(Role::LatentNorm, latent)?;
        let absorbed = self.head_matmul(Role::LatentKey, nope)?;

        let q = self.w.graph().join_groups(absorbed, query, a.num_heads);
        let q = match a.position_scale {
            Some(scale) => self.w.graph().scale_by_position(q, scale),
            None => q,
        };
        let k = self.w.graph().join_groups(latent, key, 1);
        let attention = Attention {
            latent_dim: Some(a.latent_dim),
            scale: a.scale,
            ..Attention::new(a.kv_layer, a.num_heads, 1, a.latent_dim + a.shared_dim)
        };
        let y = self.w.graph().latent_attention(q, k, &attention);
        let y = self.head_matmul(Role::LatentValue, y)?;
        let y = self.output_gated(a.output_gate, x, y)?;
        self.linear(Role::AttentionOutput, y)
    }

    fn head_matmul(&mut self, role: Role, x: ValueId) -> Result<ValueId, W::Error> {
        let weights = self.w.experts(self.spec, role)?;
        Ok(self.w.graph().head_matmul(x, weights))
    }
}
