//! Mixtures of experts: routing, the matmuls of the selected experts, their weighted sum.

use rf_graph::{ValueId, WeightId};

use super::Recorder;
use super::matmul::format_number;
use crate::params::{
    CombineExpertsParams, MatvecParams, Operand, Projection, QuantizeParams, RouteParams, RowMemory,
};

impl Recorder<'_> {
    /// Records [`Op::Route`](rf_graph::Op::Route).
    pub(super) fn route(&mut self, logits: ValueId, experts_per_token: usize, out: ValueId) {
        let params = RouteParams {
            logits: self.memory.address(logits),
            out: self.memory.address(out),
            experts: self.memory.width(logits) as u32,
            used: experts_per_token as u32,
            tokens: self.memory.rows(logits) as u32,
            reserved: 0,
        };
        self.launches.push(params.launch(), params);
    }

    /// Records [`Op::ExpertMatMul`](rf_graph::Op::ExpertMatMul): every slot of every token is a
    /// matrix-vector multiplication.
    pub(super) fn expert_matmul(
        &mut self,
        x: ValueId,
        route: ValueId,
        weights: &[WeightId],
        out: ValueId,
    ) {
        let experts_per_token = self.memory.width(route) / 2;
        let first = *self.memory.weight(weights[0]);
        let columns = self.memory.program.graph.weight(weights[0]).columns;
        let tokens = self.memory.rows(x);
        let shared_x = self.memory.width(x) == columns;
        let x_rows = if shared_x { tokens } else { tokens * experts_per_token };
        let mut operand = Operand { f32: self.memory.address(x), ..Operand::default() };
        if !first.dtype.is_float() {
            operand.q8 = self.memory.program.scratch.operand;
            let params = QuantizeParams {
                x: operand.f32,
                out: Operand { f32: 0, ..operand },
                columns: columns as u32,
                rows: x_rows as u32,
            };
            self.launches.push(params.launch(), params);
        }
        let projection = Projection {
            weight: first.planes,
            bias: 0,
            out: self.memory.address(out),
            rows: first.rows as u32,
            format: format_number(first.dtype),
        };
        let params = MatvecParams {
            projections: [projection, Projection::default(), Projection::default()],
            x_q8: operand.q8,
            x_f32: operand.f32,
            route: self.memory.address(route),
            num_projections: 1,
            columns: columns as u32,
            tokens: tokens as u32,
            used: experts_per_token as u32,
            shared_x: u32::from(shared_x),
            ..MatvecParams::default()
        }
        .with_waves();
        self.launches.push(params.launch(&[first.dtype]), params);
    }

    /// Records [`Op::CombineExperts`](rf_graph::Op::CombineExperts).
    pub(super) fn combine_experts(&mut self, x: ValueId, route: ValueId, out: ValueId) {
        let params = CombineExpertsParams {
            x: self.memory.address(x),
            route: self.memory.address(route),
            out: self.memory.address(out),
            columns: self.memory.width(out) as u32,
            used: (self.memory.width(route) / 2) as u32,
            tokens: self.memory.rows(out) as u32,
            reserved: 0,
        };
        self.launches.push(params.launch(), params);
    }
}
