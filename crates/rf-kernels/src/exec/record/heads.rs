//! Matmuls with a matrix per head, as in latent attention: mixtures of experts in which every token
//! has all heads as its experts, in order.

use rf_graph::{ValueId, WeightId};

use super::experts::GROUPED_SLOTS_PER_EXPERT;
use super::matmul::format_number;
use super::{Recorder, Slots};
use crate::exec::analysis::form_of_heads;
use crate::params::{
    GroupExpertsParams, MAX_PROJECTIONS, MatmulParams, MatvecParams, Projection, RowMemory,
};

impl Recorder<'_> {
    /// Records [`Op::HeadMatMul`](rf_graph::Op::HeadMatMul): for few tokens a matrix-vector
    /// multiplication of each token and head, otherwise a matmul of all heads.
    pub(super) fn head_matmul(&mut self, x: ValueId, weights: &[WeightId], out: ValueId) {
        let (heads, tokens) = (weights.len(), self.memory.rows(x));
        let routes = &self.memory.program.head_routes;
        let route = routes.iter().find(|(count, _)| *count == heads).map_or(0, |(_, at)| *at);
        let form = form_of_heads(&self.memory.program.graph, weights);
        let operand = self.operand(x, form).operand;
        // The matrices of later heads follow that of the first.
        let first = *self.memory.weight(weights[0]);
        let projection = Projection {
            weight: first.planes,
            bias: 0,
            out: self.memory.address(out),
            rows: first.rows as u32,
            format: format_number(first.dtype),
            ..Projection::default()
        };
        let mut projections = [Projection::default(); MAX_PROJECTIONS];
        projections[0] = projection;
        let (columns, slots) = (form.columns as u32, (tokens * heads) as u32);
        if tokens > GROUPED_SLOTS_PER_EXPERT {
            let params = MatmulParams {
                projections,
                x_q8: operand.q8,
                x_f32: operand.f32,
                num_projections: 1,
                columns,
                tokens: slots,
                slots_per_row: 1,
                ..MatmulParams::default()
            };
            // The route has no weights: it is that of one token.
            let route = GroupExpertsParams {
                route,
                tokens: 1,
                experts: heads as u32,
                used: slots,
                ..GroupExpertsParams::default()
            };
            self.grouped_matmul(&params, first.dtype, (Slots::Heads(heads), route));
        } else {
            let device = self.memory.program.analysis.matmul_device;
            let params = MatvecParams {
                projections,
                x_q8: operand.q8,
                x_f32: operand.f32,
                route,
                num_projections: 1,
                columns,
                tokens: 1,
                used: slots,
                ..MatvecParams::default()
            }
            .with_waves(&[first.dtype], device);
            self.launches.push(params.launch(&[first.dtype], device), params);
        }
    }
}
