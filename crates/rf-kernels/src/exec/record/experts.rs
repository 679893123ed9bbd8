//! Mixtures of experts: routing, the matmuls of the selected experts, their weighted sum.
//!
//! A *slot* is a token with one of its experts. Gate and up of the selected experts are one op with
//! two projections.
//!
//! - Few slots are matrix-vector multiplications of one launch each: gate, up and the gated unit;
//!   then down. They read the selected experts only.
//! - Many slots are grouped by expert on the device (`group_experts`). The matmul kernels run over
//!   tiles of one expert each, and gather their rows. The grid has the upper bound of the number of
//!   tiles, so that a captured graph fits every routing. With f16 operands, gate, up and the gated
//!   unit are one launch.

use rf_graph::{Activation, Combine, DType, ExpertMatMul, GateFunction, Router, ValueId, WeightId};

use super::matmul::format_number;
use super::{Recorder, Slots};
use crate::error::Error;
use crate::exec::analysis::{form_of_experts, has_fused_rows};
use crate::params::{
    Address, ExpertGroups, ExpertRowsParams, ExpertTile, GroupExpertsParams, Halves,
    MAX_EXPERT_GROUPS, MAX_PROJECTIONS, MAX_SLOTS, MatmulParams, MatvecGluParams, MatvecParams,
    MatvecSumParams, NormIn, Operand, Projection, RouteParams, RowMemory, activation_number,
    record_glu, record_rms_norm,
};

/// The mean number of slots per expert above which slots are grouped. Up to it, most experts are
/// read once by matrix-vector multiplications too.
pub(super) const GROUPED_SLOTS_PER_EXPERT: usize = 2;

impl Recorder<'_> {
    /// The parameters of [`Op::Route`](rf_graph::Op::Route).
    pub(super) fn route(
        &self,
        logits: ValueId,
        shared_gate: Option<ValueId>,
        router: &Router,
        out: ValueId,
    ) -> Result<RouteParams, Error> {
        let experts = self.memory.width(logits);
        if router.slots() > MAX_SLOTS {
            let what = format!("{} experts per token", router.slots());
            return Err(Error::Unsupported { what });
        }
        if let Some(groups) = router.groups
            && (groups.count > MAX_EXPERT_GROUPS
                || experts / groups.count * groups.selected < router.experts_per_token)
        {
            let what = format!("{} of {} groups of experts", groups.selected, groups.count);
            return Err(Error::Unsupported { what });
        }
        let vector = |id: Option<WeightId>| id.map_or(0, |id| self.memory.vector(id));
        Ok(RouteParams {
            logits: self.memory.address(logits),
            bias: vector(router.selection_bias),
            expert_scale: vector(router.expert_scale),
            shared_gate: shared_gate.map_or(0, |gate| self.memory.address(gate)),
            out: self.memory.address(out),
            tokens: self.memory.rows(logits) as u32,
            experts: experts as u32,
            used: router.experts_per_token as u32,
            slots: router.slots() as u32,
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
            group: router.group as u32,
        })
    }

    /// Records [`Op::ExpertMatMul`](rf_graph::Op::ExpertMatMul): a matmul of all experts over their
    /// groups of slots, or a matrix-vector multiplication of each slot.
    pub(super) fn expert_matmul(&mut self, m: &ExpertMatMul) {
        let device = self.memory.program.analysis.matmul_device;
        let form = form_of_experts(&self.memory.program.graph, m, device);
        let (x, tokens) = (self.operand(m.x, form), self.memory.rows(m.x));
        // More experts that read the same rows may begin to read f16 at more rows.
        let is_half = form.forms(tokens).f16.is_some() && x.operand.f16.x != 0;
        let slots_per_token = self.memory.width(m.route) / 2;
        let experts = ExpertBatch {
            operand: x.operand,
            norm: x.norm.unwrap_or_default(),
            dtype: self.memory.weight(m.projections[0].weights[0]).dtype,
            experts: m.projections[0].weights.len(),
            columns: form.columns,
            slots_per_token,
            shared_x: self.memory.width(m.x) == form.columns,
            tokens,
            is_half,
        };
        let slots = tokens * slots_per_token;
        let is_grouped = is_half || slots > GROUPED_SLOTS_PER_EXPERT * experts.experts;
        let is_fused = !is_grouped && self.has_fused_rows(m);
        match (m.glu, m.combine) {
            (Some((activation, out)), _) if is_fused => {
                self.expert_gate_and_up(m, &experts, activation, out);
                return;
            }
            (None, Some(sum)) if is_fused && experts.tokens == 1 => {
                self.expert_sum(m, &experts, sum);
                return;
            }
            _ if is_grouped && self.gated_expert_groups(m, &experts) => return,
            _ if is_grouped => self.expert_groups(m, &experts, Halves::default()),
            _ => self.expert_slots(m, &experts),
        }
        if let Some(Combine { residual, out, norm }) = m.combine {
            self.combine_experts(m.projections[0].out, m.route, residual, out);
            if let Some(norm) = norm {
                record_rms_norm(out, &norm, &self.memory, &mut self.launches);
            }
        }
        if let Some((activation, out)) = m.glu {
            let outputs = [0, 1].map(|i| m.projections[i].out);
            record_glu(activation, outputs, out, &self.memory, &mut self.launches);
        }
    }

    /// Returns true if the kernels with epilogues support the weights.
    fn has_fused_rows(&self, m: &ExpertMatMul) -> bool {
        let weight = self.memory.weight(m.projections[0].weights[0]);
        has_fused_rows(weight.dtype, weight.rows)
    }

    /// Kernel parameters of the projections.
    fn expert_projections(&self, m: &ExpertMatMul) -> [Projection; MAX_PROJECTIONS] {
        let mut projections = [Projection::default(); MAX_PROJECTIONS];
        for (to, projection) in projections.iter_mut().zip(&m.projections) {
            // The matrices of later experts follow that of the first.
            let first = *self.memory.weight(projection.weights[0]);
            *to = Projection {
                weight: first.planes,
                bias: projection.bias.map_or(0, |bias| self.memory.vector(bias)),
                out: self.memory.address(projection.out),
                rows: first.rows as u32,
                format: format_number(first.dtype),
                half_unit: first.half_unit,
                ..Projection::default()
            };
        }
        projections
    }

    /// Records gate, up and activation of all experts as one launch, if there is one: with f16
    /// operands, if the gated unit is f16 alone.
    fn gated_expert_groups(&mut self, m: &ExpertMatMul, batch: &ExpertBatch) -> bool {
        let Some((_, out)) = m.glu.filter(|_| batch.is_half) else { return false };
        let out = self.memory.output(out);
        let is_f16_alone = out.is_f16_alone();
        if is_f16_alone {
            self.expert_groups(m, batch, out.f16);
        }
        is_f16_alone
    }

    /// Records one launch for all experts, and groups the slots if no earlier op has. The launch
    /// writes `glu` instead of the projections if it is not null.
    fn expert_groups(&mut self, m: &ExpertMatMul, batch: &ExpertBatch, glu: Halves) {
        let slots = batch.tokens * batch.slots_per_token;
        let params = MatmulParams {
            projections: self.expert_projections(m),
            x_q8: batch.operand.q8,
            x_f32: batch.operand.f32,
            x_f16: if batch.is_half { batch.operand.f16 } else { Halves::default() },
            num_projections: if glu.x == 0 { m.projections.len() as u32 } else { 1 },
            glu,
            activation: m.glu.map_or(0, |(activation, _)| activation_number(activation)),
            columns: batch.columns as u32,
            tokens: slots as u32,
            slots_per_row: if batch.shared_x { batch.slots_per_token as u32 } else { 1 },
            ..MatmulParams::default()
        };
        let route = GroupExpertsParams {
            route: self.memory.address(m.route),
            tokens: batch.tokens as u32,
            experts: batch.experts as u32,
            used: batch.slots_per_token as u32,
            ..GroupExpertsParams::default()
        };
        self.grouped_matmul(&params, batch.dtype, (Slots::Route(m.route), route));
    }

    /// Records one launch for all matrices of a matmul, and groups the slots if no earlier op has.
    /// `route` selects the matrix of each slot.
    pub(super) fn grouped_matmul(
        &mut self,
        params: &MatmulParams,
        dtype: DType,
        (origin, route): (Slots, GroupExpertsParams),
    ) {
        let device = self.memory.program.analysis.matmul_device;
        let (slots, experts) = (params.tokens as usize, route.experts as usize);
        let tile = params.tile_of_experts(dtype, device, experts);
        let tile_slots = tile.slots(dtype);
        let tiles = ExpertGroups::num_tiles(slots, experts, tile_slots);
        let first = self.memory.program.scratch.groups;
        let slots_at = first + (tiles * size_of::<ExpertTile>()) as Address;
        let groups = ExpertGroups { tiles: first, slots: slots_at };
        if self.grouped != Some((origin, tile_slots)) {
            self.grouped = Some((origin, tile_slots));
            let params = GroupExpertsParams { groups, tile_slots, ..route };
            self.launches.push(params.launch(), params);
        }
        let params = MatmulParams { groups, ..*params };
        let (params, launch) = params.launch_experts(dtype, device, (experts, tile));
        self.launches.push(launch, params);
    }

    /// Records one launch for all slots of all projections.
    fn expert_slots(&mut self, m: &ExpertMatMul, batch: &ExpertBatch) {
        let device = self.memory.program.analysis.matmul_device;
        let params = MatvecParams {
            projections: self.expert_projections(m),
            x_q8: batch.operand.q8,
            x_f32: batch.operand.f32,
            route: self.memory.address(m.route),
            norm_in: batch.norm,
            num_projections: m.projections.len() as u32,
            columns: batch.columns as u32,
            tokens: batch.tokens as u32,
            used: batch.slots_per_token as u32,
            shared_x: u32::from(batch.shared_x),
            ..MatvecParams::default()
        }
        .with_waves(&[batch.dtype], device);
        self.launches.push(params.launch(&[batch.dtype], device), params);
    }

    /// Records gate, up, activation and quantisation of all slots as one launch.
    fn expert_gate_and_up(
        &mut self,
        m: &ExpertMatMul,
        batch: &ExpertBatch,
        activation: Activation,
        out: ValueId,
    ) {
        let [gate, up, ..] = self.expert_projections(m);
        let out = self.memory.output(out);
        let device = self.memory.program.analysis.matmul_device;
        let params = MatvecGluParams {
            gate: gate.weight,
            up: up.weight,
            gate_bias: gate.bias,
            up_bias: up.bias,
            x_q8: batch.operand.q8,
            route: self.memory.address(m.route),
            out_f32: out.f32,
            out_q8: out.q8,
            norm_in: batch.norm,
            rows: gate.rows,
            columns: batch.columns as u32,
            tokens: batch.tokens as u32,
            activation: activation_number(activation),
            used: batch.slots_per_token as u32,
            shared_x: u32::from(batch.shared_x),
            ..MatvecGluParams::default()
        }
        .with_waves(batch.dtype, device);
        self.launches.push(params.launch(batch.dtype, device), params);
    }

    /// Records the matmuls of the selected experts of one token, their weighted sum, residual and
    /// norm as one launch.
    fn expert_sum(&mut self, m: &ExpertMatMul, batch: &ExpertBatch, sum: Combine) {
        let norm_out = sum.norm.and_then(|norm| self.memory.norm_out(&norm));
        let [projection, ..] = self.expert_projections(m);
        let params = MatvecSumParams {
            projection: Projection { out: self.memory.address(sum.out), ..projection },
            x_q8: batch.operand.q8,
            route: self.memory.address(m.route),
            residual: sum.residual.map_or(0, |residual| self.memory.address(residual)),
            norm_out: norm_out.unwrap_or_default(),
            partials: self.memory.program.scratch.partials,
            arrivals: self.memory.program.scratch.arrivals,
            columns: batch.columns as u32,
            used: batch.slots_per_token as u32,
            ..MatvecSumParams::default()
        }
        .divided(self.memory.program.analysis.matmul_device.compute_units);
        self.launches.push(params.launch(batch.dtype), params);
        if let (Some(norm), None) = (sum.norm, norm_out) {
            record_rms_norm(sum.out, &norm, &self.memory, &mut self.launches);
        }
    }

    /// Records [`Op::CombineExperts`](rf_graph::Op::CombineExperts).
    pub(super) fn combine_experts(
        &mut self,
        x: ValueId,
        route: ValueId,
        residual: Option<ValueId>,
        out: ValueId,
    ) {
        let residual = residual.map_or(0, |residual| self.memory.address(residual));
        let params = ExpertRowsParams { residual, ..self.expert_rows(x, route, out) };
        self.launches.push(params.combine(), params);
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
            ..ExpertRowsParams::default()
        }
    }
}

/// The left operand and the shape of a matmul of experts in a batch.
struct ExpertBatch {
    operand: Operand,
    /// The missing factor of the operand of one token.
    norm: NormIn,
    /// Format of every matrix.
    dtype: DType,
    experts: usize,
    columns: usize,
    slots_per_token: usize,
    /// True if all slots of a token read the same row.
    shared_x: bool,
    tokens: usize,
    /// True if the kernels read f16.
    is_half: bool,
}
