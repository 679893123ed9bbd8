//! The report of `info` on an adapter (LoRA).

use rocmforge::Adapter;
use serde::Serialize;

use super::companion::layer;
use crate::terminal;

/// The effect of an adapter on its model.
#[derive(Debug, Serialize)]
pub(super) struct AdapterReport {
    #[serde(rename = "type")]
    kind: &'static str,
    alpha: f32,
    /// The smallest and the largest rank.
    ranks: [usize; 2],
    /// Tensors of the model that it changes.
    changed_tensors: usize,
    /// The layers that the model must have at least.
    layers: usize,
    /// The width of the model, if the adapter changes a tensor with that many columns.
    hidden_size: Option<u64>,
}

impl AdapterReport {
    pub(super) fn of(adapter: &Adapter) -> Self {
        let ranks = adapter.ranks().values().copied();
        let ranks = [ranks.clone().min(), ranks.max()].map(Option::unwrap_or_default);
        let changed_tensors = adapter.ranks().len();
        let layers = adapter.ranks().keys().filter_map(|name| layer(name)).max();
        let reads_hidden =
            |name: &str| ["attn_q.", "attn_k.", "ffn_up."].iter().any(|part| name.contains(part));
        let input = adapter
            .gguf()
            .tensors()
            .iter()
            .find(|tensor| reads_hidden(tensor.name()) && tensor.name().ends_with(".lora_a"));
        Self {
            kind: "lora",
            alpha: adapter.alpha(),
            ranks,
            changed_tensors,
            layers: layers.map_or(0, |last| last + 1),
            hidden_size: input.map(|tensor| tensor.shape()[0]),
        }
    }

    /// The models that it fits.
    pub(super) fn fits(&self, architecture: &str) -> String {
        let width = self.hidden_size.map(|width| format!(" of width {width}")).unwrap_or_default();
        let (architecture, layers) = (terminal::shown(architecture), self.layers);
        format!("{architecture} models{width} with at least {layers} layers")
    }

    /// The line of the text output.
    pub(super) fn line(&self) -> String {
        let [least, most] = self.ranks;
        let rank = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let (alpha, tensors) = (self.alpha, self.changed_tensors);
        format!(
            "LoRA of rank {rank}, alpha {alpha}, changes {tensors} tensors; give it as --lora FILE"
        )
    }
}
