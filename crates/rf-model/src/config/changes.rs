//! Changes that several families make to what they have in common.

use rf_graph::layer::{ExpertSpec, OutputGate};
use rf_graph::{GateFunction, Gating, RopeStyle};

use super::ModelConfig;
use crate::error::Error;
use crate::keys::Keys;

impl ModelConfig {
    /// The mixtures of experts, to change.
    pub(crate) fn experts_mut(&mut self) -> impl Iterator<Item = &mut ExpertSpec> {
        self.layers.iter_mut().filter_map(|layer| layer.experts.as_mut())
    }

    /// Makes the first layers dense, as many as `leading_dense_block_count` says.
    pub(crate) fn set_leading_dense(&mut self, keys: &Keys<'_>) -> Result<(), Error> {
        let leading_dense = keys.count("leading_dense_block_count")?;
        self.dense_layers(keys, |layer| layer < leading_dense)
    }

    /// Makes the layers dense that have no router.
    pub(crate) fn set_dense_without_router(&mut self, keys: &Keys<'_>) -> Result<(), Error> {
        self.dense_layers(keys, |layer| {
            !keys.has_tensor(&format!("blk.{layer}.ffn_gate_inp.weight"))
        })
    }

    /// Sets what routers do where the keys do not say it: they have sigmoids, and the weights of
    /// the selected experts stay as they are.
    pub(crate) fn set_sigmoid_router(&mut self, keys: &Keys<'_>) -> Result<(), Error> {
        let has_gate = keys.count("expert_gating_func")? != 0;
        let normalize = keys.flag("expert_weights_norm")?.unwrap_or(false);
        for experts in self.experts_mut() {
            experts.normalize = normalize;
            if !has_gate {
                experts.gate = GateFunction::Sigmoid;
            }
        }
        Ok(())
    }

    /// Sets the bounds of the gated units of experts, and of those of the shared one.
    pub(crate) fn set_expert_clamps(&mut self, keys: &Keys<'_>) -> Result<(), Error> {
        let bounds = keys.clamps("swiglu_clamp_exp", self.num_layers())?;
        let shared_bounds = keys.clamps("swiglu_clamp_shexp", self.num_layers())?;
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if let Some(experts) = &mut layer.experts {
                (experts.clamp, experts.shared_clamp) = (bounds[index], shared_bounds[index]);
            }
        }
        Ok(())
    }

    /// Leaves the weights of the selected experts as they are.
    pub(crate) fn set_unnormalized_router(&mut self) {
        for experts in self.experts_mut() {
            experts.normalize = false;
        }
    }

    /// Removes RoPE from the layers without a window, if others have one.
    pub(crate) fn rotate_only_windows(&mut self, windowed: &[bool]) {
        if windowed.contains(&true) {
            for (attention, windowed) in self.attentions_mut().zip(windowed) {
                if !windowed {
                    attention.rope = None;
                }
            }
        }
    }

    /// Sets the windows of the layers that a list names, or else of all but the first of every
    /// four.
    pub(crate) fn set_windows_after_full(&mut self, keys: &Keys<'_>) -> Result<Vec<bool>, Error> {
        let is_windowed = |layer: usize| !layer.is_multiple_of(4);
        let listed = keys.flags("attention.sliding_window_pattern")?;
        let windowed: Vec<bool> =
            listed.unwrap_or_else(|| (0..self.num_layers()).map(is_windowed).collect());
        let window = keys.count("attention.sliding_window")?;
        if window == 0 {
            return Ok(vec![false; windowed.len()]);
        }
        for (attention, _) in self.attentions_mut().zip(&windowed).filter(|(_, w)| **w) {
            attention.window = Some(window);
        }
        Ok(windowed)
    }

    /// Sets the RoPE of the layers with a window: positions are not scaled, and the base is that
    /// of `rope.freq_base_swa`, otherwise that of other layers.
    pub(crate) fn set_window_rope(
        &mut self,
        keys: &Keys<'_>,
        windowed: &[bool],
        style: RopeStyle,
    ) -> Result<(), Error> {
        for (attention, _) in self.attentions_mut().zip(windowed).filter(|(_, w)| **w) {
            let rope = keys.rope(attention.head_dim)?;
            let mut rope = rope.unscaled(keys.rope_theta("rope.freq_base_swa", rope.theta)?);
            if keys.count("rope.dimension_count_swa")? > 0 {
                rope.dims = keys.rope_dims("rope.dimension_count_swa", attention.head_dim)?;
            }
            attention.rope = Some(rope.build(style, None));
        }
        Ok(())
    }

    /// Gates the output of attention: a gate per head where the matrix of the gate has as many rows
    /// as the layer has heads, otherwise one per element.
    pub(crate) fn set_output_gate(&mut self, keys: &Keys<'_>, function: Gating) {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let Some(attention) = layer.attention_mut() else { continue };
            let rows = keys.rows(&format!("blk.{index}.attn_gate.weight"));
            let width = match rows {
                Some(rows) if rows == attention.num_heads => rows,
                _ => attention.num_heads * attention.value_dim,
            };
            attention.output_gate = Some(OutputGate { function, width });
        }
    }

    /// Sets the bound of queries, keys and values that the file has, if any.
    pub(crate) fn set_clamp(&mut self, keys: &Keys<'_>) -> Result<(), Error> {
        const NAME: &str = "attention.clamp_kqv";
        let bound = keys.optional_f64(NAME)?.filter(|bound| *bound != 0.0);
        if let Some(bound) = bound.filter(|bound| *bound < 0.0) {
            return Err(keys.invalid(NAME, &bound, "it must be positive"));
        }
        for attention in self.attentions_mut() {
            attention.clamp = bound.map(|bound| bound as f32);
        }
        Ok(())
    }
}
