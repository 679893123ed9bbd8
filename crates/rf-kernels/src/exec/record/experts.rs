//! Mixtures of experts: routing, the matmuls of the selected experts, their weighted sum.

use rf_graph::{GateFunction, Router, ValueId, WeightId};

use super::Recorder;
use super::matmul::format_number;
use crate::error::Error;
use crate::params::{
    ExpertRowsParams, MAX_EXPERT_GROUPS, MatvecParams, Operand, Projection, QuantizeParams,
    RouteParams, RowMemory,
};

impl Recorder<'_> {
    /// Records [`Op::Route`](rf_graph::Op::Route).
    pub(super) fn route(
        &mut self,
        logits: ValueId,
        router: &Router,
        out: ValueId,
    ) -> Result<(), Error> {
        let experts = self.memory.width(logits);
        if let Some(groups) = router.groups
            && (groups.count > MAX_EXPERT_GROUPS
                || experts / groups.count * groups.selected < router.experts_per_token)
        {
            let what = format!("{} of {} groups of experts", groups.selected, groups.count);
            return Err(Error::Unsupported { what });
        }
        let vector = |id: Option<WeightId>| id.map_or(0, |id| self.memory.vector(id));
        let params = RouteParams {
            logits: self.memory.address(logits),
            bias: vector(router.selection_bias),
            expert_scale: vector(router.expert_scale),
            out: self.memory.address(out),
            tokens: self.memory.rows(logits) as u32,
            experts: experts as u32,
            used: router.experts_per_token as u32,
            gate: match router.gate {
                GateFunction::Softmax => 0,
                GateFunction::Sigmoid => 1,
                GateFunction::SoftmaxOfSelected => 2,
                other => return Err(Error::Unsupported { what: format!("the gate {other:?}") }),
            },
            normalize: u32::from(router.normalize),
            groups: router.groups.map_or(0, |groups| groups.count as u32),
            selected_groups: router.groups.map_or(0, |groups| groups.selected as u32),
            scale: router.scale,
        };
        self.launches.push(params.launch(), params);
        Ok(())
    }

    /// Records [`Op::ExpertMatMul`](rf_graph::Op::ExpertMatMul): every slot of every token is a
    /// matrix-vector multiplication.
    pub(super) fn expert_matmul(
        &mut self,
        x: ValueId,
        route: ValueId,
        weights: &[WeightId],
        bias: Option<WeightId>,
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
            bias: bias.map_or(0, |bias| self.memory.vector(bias)),
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

    /// The parameters of [`Op::CombineExperts`](rf_graph::Op::CombineExperts) and
    /// [`Op::ScaleExperts`](rf_graph::Op::ScaleExperts).
    pub(super) fn expert_rows(&self, x: ValueId, route: ValueId, out: ValueId) -> ExpertRowsParams {
        let used = self.memory.width(route) / 2;
        ExpertRowsParams {
            x: self.memory.address(x),
            route: self.memory.address(route),
            out: self.memory.address(out),
            columns: (self.memory.width(x) / used) as u32,
            used: used as u32,
            tokens: self.memory.rows(out) as u32,
            reserved: 0,
        }
    }
}
