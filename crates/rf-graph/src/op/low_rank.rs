//! Low-rank updates of matrices (LoRA), in existing ops: a matmul whose weight has an update adds
//! `(s ⊙ (x · Aᵀ)) · Bᵀ` to its output.
//!
//! Several adapters share the matrices: the rows of all `A` are one after the other, and so are the
//! columns of all `B`. Each row of `s` selects adapters by the factors of their ranks. A factor of 0
//! adds exactly 0, so a row without adapters is what it is without any update.

use super::GraphBuilder;
use crate::value::{RowKind, ValueId, WeightId};

/// The update of a weight, or of the weights of all experts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowRank {
    /// `A`, `[rank, columns]`: one, or one per expert.
    pub a: Vec<WeightId>,
    /// `B`, `[output features, rank]`: as many.
    pub b: Vec<WeightId>,
    /// Factors, `[tokens, rank]`.
    pub scales: ValueId,
}

impl GraphBuilder {
    /// Gives a weight an update, which later matmuls apply. The weight of experts is the first one
    /// of their list.
    ///
    /// # Panics
    ///
    /// If the numbers of matrices differ.
    pub fn update(&mut self, weight: WeightId, update: LowRank) {
        assert_eq!(update.a.len(), update.b.len());
        self.updates.insert(weight, update);
    }

    /// The output `y` of the matmul of `x` with `weight`, with the update of the weight if it has
    /// one.
    pub(super) fn updated(&mut self, x: ValueId, weight: WeightId, y: ValueId) -> ValueId {
        let Some(LowRank { a, b, scales }) = self.updates.get(&weight).cloned() else { return y };
        let scales = match self.rows(x) {
            RowKind::Token => scales,
            RowKind::Output => self.select_rows(scales),
        };
        let latent = self.matmul(x, a[0]);
        let latent = self.mul(latent, scales);
        let update = self.matmul(latent, b[0]);
        self.add(y, update)
    }

    /// [`updated`](Self::updated) for a matmul of experts, which has a slot for each expert of a
    /// token.
    pub(super) fn updated_experts(
        &mut self,
        x: ValueId,
        route: ValueId,
        first: WeightId,
        y: ValueId,
    ) -> ValueId {
        let Some(LowRank { a, b, scales }) = self.updates.get(&first).cloned() else { return y };
        let slots = self.width(route) / 2;
        let scales = (1..slots).fold(scales, |all, _| self.join_groups(all, scales, 1));
        let latent = self.expert_matmul(x, route, a, None);
        let latent = self.mul(latent, scales);
        let update = self.expert_matmul(latent, route, b, None);
        self.add(y, update)
    }
}

#[cfg(test)]
mod tests {
    use crate::{GraphBuilder, LowRank, Op, Weight};

    fn weight(g: &mut GraphBuilder, rows: usize, columns: usize) -> crate::WeightId {
        g.weight(Weight::f32("w", rows, columns, vec![0.0; rows * columns]))
    }

    #[test]
    fn only_matmuls_of_an_updated_weight_have_more_ops() {
        let mut g = GraphBuilder::new();
        let (scales, x) = (g.input(2), g.input(4));
        let [plain, w, a, b] =
            [(4, 4), (3, 4), (2, 4), (3, 2)].map(|(rows, columns)| weight(&mut g, rows, columns));
        g.update(w, LowRank { a: vec![a], b: vec![b], scales });
        let x = g.matmul(x, plain);
        let selected = g.select_rows(x);
        let out = g.matmul(selected, w);
        let (graph, _) = g.finish(out);
        let names: Vec<_> = graph.ops().iter().map(Op::name).collect();
        let update = ["matmul", "select_rows", "matmul", "mul", "matmul", "add"];
        assert_eq!(names, [&["input", "input", "matmul", "select_rows"], &update[..]].concat());
        assert_eq!(graph.value(graph.output()).width, 3);
    }
}
