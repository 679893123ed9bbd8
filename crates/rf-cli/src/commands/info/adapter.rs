//! The report of `info` on an adapter (LoRA).

use rocmforge::Adapter;
use serde::Serialize;

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
}

impl AdapterReport {
    pub(super) fn of(adapter: &Adapter) -> Self {
        let ranks = adapter.ranks().values().copied();
        let ranks = [ranks.clone().min(), ranks.max()].map(Option::unwrap_or_default);
        let changed_tensors = adapter.ranks().len();
        Self { kind: "lora", alpha: adapter.alpha(), ranks, changed_tensors }
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
