//! Networks under construction: stages of a program, between which rows are rearranged on the host.

use std::ops::Range;

use rf_graph::layer::{AttentionSpec, DenseSpec, LayerSpec, Mixer, NormKind, layer};
use rf_graph::{Activation, Function, Graph, ValueId, Weight};

use crate::config::ProjectorSettings;
use crate::error::Error;
use crate::modality::Transformer;
use crate::network::Stage;
use crate::weights::ProjectorWeights;

/// The graph of a projector under construction. `S` are the settings of its kind of input.
pub(crate) struct Builder<'a, S = ProjectorSettings> {
    pub(crate) settings: &'a S,
    pub(crate) weights: ProjectorWeights<'a>,
    stages: usize,
    last: Option<ValueId>,
}

/// Rows of the stage under construction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) id: ValueId,
    pub(crate) width: usize,
}

impl<'a, S> Builder<'a, S> {
    pub(crate) fn new(settings: &'a S, weights: ProjectorWeights<'a>) -> Self {
        Self { settings, weights, stages: 0, last: None }
    }

    /// The graph of all stages, and its weights.
    ///
    /// # Panics
    ///
    /// If it has no stage.
    pub(crate) fn finish(self, projector: &'static str) -> Result<(Graph, Vec<Weight>), Error> {
        let tensors = self.weights.unused();
        if !tensors.is_empty() {
            return Err(Error::UnknownTensors { projector, tensors });
        }
        Ok(self.weights.graph.finish(self.last.expect("a network has a stage")))
    }

    /// Rows that a stage gets from the host; they come before everything else in it.
    pub(crate) fn input(&mut self, width: usize) -> Rows {
        Rows { id: self.weights.graph.input(width), width }
    }

    /// Ends a stage with the rows that the host gets.
    pub(crate) fn end(&mut self, x: Rows) -> Stage {
        self.end_all(&[x])
    }

    /// Ends a stage with several matrices that the host gets, one after the other.
    pub(crate) fn end_all(&mut self, outputs: &[Rows]) -> Stage {
        for x in outputs {
            self.weights.graph.output(x.id);
            self.last = Some(x.id);
        }
        self.stages += 1;
        Stage { index: self.stages - 1, width: outputs.iter().map(|x| x.width).sum() }
    }

    /// `x · Wᵀ (+ b)` with the tensors `NAME.weight` and `NAME.bias`, whatever rows they have.
    pub(crate) fn linear(&mut self, name: &str, x: Rows) -> Result<Rows, Error> {
        let width = self.weights.axis(&format!("{name}.weight"), 1)?;
        self.linear_to(name, x, width)
    }

    /// [`Self::linear`] with a known number of rows.
    pub(crate) fn linear_to(&mut self, name: &str, x: Rows, width: usize) -> Result<Rows, Error> {
        let weight = self.weights.matrix(&format!("{name}.weight"), width, x.width)?;
        let bias = self.weights.optional_vector(&format!("{name}.bias"), width)?;
        let clamps = self.weights.clamps_of(name)?;
        let g = &mut self.weights.graph;
        let clamp = |[min, max]: [f32; 2]| Function::Clamp { min, max };
        let x = clamps.input.map_or(x.id, |bounds| g.map(x.id, clamp(bounds)));
        let y = g.linear(x, weight, bias);
        let id = clamps.output.map_or(y, |bounds| g.map(y, clamp(bounds)));
        Ok(Rows { id, width })
    }

    pub(crate) fn activation(&mut self, x: Rows, activation: Activation) -> Rows {
        let id = self.weights.graph.map(x.id, Function::Activation(activation));
        Rows { id, ..x }
    }

    pub(crate) fn add(&mut self, a: Rows, b: Rows) -> Rows {
        Rows { id: self.weights.graph.add(a.id, b.id), ..a }
    }

    /// A norm of whole rows with the tensors `NAME.weight` and `NAME.bias`.
    pub(crate) fn norm(
        &mut self,
        name: &str,
        kind: NormKind,
        eps: f32,
        x: Rows,
    ) -> Result<Rows, Error> {
        let weight = self.weights.vector(&format!("{name}.weight"), x.width)?;
        let id = match kind {
            NormKind::Rms => self.weights.graph.rms_norm(x.id, weight, eps),
            NormKind::Layer => {
                let bias = self.weights.optional_vector(&format!("{name}.bias"), x.width)?;
                self.weights.graph.layer_norm(x.id, weight, bias, eps)
            }
        };
        Ok(Rows { id, ..x })
    }

    /// [`Self::norm`] if the file has it.
    pub(crate) fn optional_norm(
        &mut self,
        name: &str,
        kind: NormKind,
        eps: f32,
        x: Rows,
    ) -> Result<Rows, Error> {
        if self.weights.has(&format!("{name}.weight")) {
            self.norm(name, kind, eps, x)
        } else {
            Ok(x)
        }
    }

    /// Layers of an encoder with this norm; attention sees all rows of a span.
    pub(crate) fn spec(&self, t: &Transformer, norm: NormKind) -> LayerSpec {
        let attention = AttentionSpec {
            causal: false,
            // Layers run one after the other, so all of them use the same cache.
            ..AttentionSpec::new(t.num_heads, t.num_kv_heads, t.head_dim, 0)
        };
        let gate = format!("{}.blk.0.ffn_gate.weight", self.weights.prefix());
        LayerSpec {
            hidden_size: t.hidden_size,
            norm,
            norm_eps: t.norm_eps,
            post_norm_eps: t.norm_eps,
            mixer: Mixer::Attention(attention),
            dense: Some(DenseSpec {
                intermediate_size: t.intermediate_size,
                activation: t.activation,
                gated: self.weights.has(&gate),
                xielu: None,
                clamp: None,
            }),
            experts: None,
            parallel: false,
            residual_scale: 1.0,
            output_scale: 1.0,
            per_layer_input: None,
            altup: None,
        }
    }

    pub(crate) fn layers(
        &mut self,
        spec: &LayerSpec,
        layers: Range<usize>,
        mut x: Rows,
    ) -> Result<Rows, Error> {
        for index in layers {
            x = self.layer(&format!("{}.blk.{index}", self.weights.prefix()), spec, x)?;
        }
        Ok(x)
    }

    /// The layer whose tensors begin with a name.
    pub(crate) fn layer(&mut self, name: &str, spec: &LayerSpec, x: Rows) -> Result<Rows, Error> {
        self.weights.enter(name.to_owned());
        Ok(Rows { id: layer(&mut self.weights, spec, x.id, None)?, ..x })
    }
}

impl Builder<'_> {
    /// The embedding of patches, a convolution whose windows do not overlap: a matmul with the
    /// pixels of a patch.
    pub(crate) fn patch_embedding(&mut self, patches: Rows) -> Result<Rows, Error> {
        self.linear_to("v.patch_embd", patches, self.settings.transformer.hidden_size)
    }

    /// The layers of a vision transformer with this norm; attention sees all rows of a span.
    pub(crate) fn layer_spec(&self, norm: NormKind) -> LayerSpec {
        self.spec(&self.settings.transformer, norm)
    }
}
