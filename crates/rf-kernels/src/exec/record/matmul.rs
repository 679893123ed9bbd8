//! Matmuls: the kernel for a format and a number of rows, and the epilogue.

use rf_graph::{Activation, DType, Epilogue, MatMul, Op, Prologue, ValueId};
use rf_quant::Family;

use super::Recorder;
use crate::error::Error;
use crate::exec::analysis::{OperandForm, form_of, has_fused_rows};
use crate::exec::program::StoredOperand;
use crate::params::{
    Address, Halves, MAX_PROJECTIONS, MatmulDevice, MatmulParams, MatvecGluParams, MatvecParams,
    NormOut, Operand, Projection, QuantizeParams, RouteParams, RouterParams, RowMemory,
    SkinnyParams, activation_number, record_glu, record_rms_norm,
};

/// Largest extent of a grid in y.
const MAX_GRID: usize = 65535;

/// Returns true if the mixed matrix-vector kernels support a format together with others in one
/// launch.
fn mixes(dtype: DType) -> bool {
    matches!(dtype.family(), Family::Block32 | Family::KQuant)
}

/// A projection with the format that selects its kernel.
#[derive(Clone, Copy)]
pub(super) struct TypedProjection {
    pub(super) dtype: DType,
    pub(super) params: Projection,
}

/// Gate and up of one format without biases, whose gated unit is an f16 operand.
pub(super) struct GatedMatmul {
    pub(super) dtype: DType,
    pub(super) projections: [Projection; MAX_PROJECTIONS],
    pub(super) columns: u32,
    pub(super) activation: u32,
    pub(super) out: Halves,
}

impl Recorder<'_> {
    /// Records [`Op::MatMul`].
    pub(super) fn matmul(&mut self, m: &MatMul) -> Result<(), Error> {
        let Prologue::Plain(x) = m.prologue else {
            let what = Op::MatMul(m.clone()).name().into();
            return Err(Error::Unsupported { what });
        };
        let rows = self.memory.rows(x);
        if rows == 0 {
            return Ok(());
        }
        let device = self.memory.program.analysis.matmul_device;
        let x = self.operand(x, form_of(&self.memory.program.graph, m, device));
        match &m.epilogue {
            Epilogue::None => self.projections(m, x, rows, NormOut::default()),
            Epilogue::RmsNorm(norm) => {
                let norm_out = self.memory.norm_out(norm);
                self.projections(m, x, rows, norm_out.unwrap_or_default());
                if norm_out.is_none() {
                    let out = m.projections[0].out;
                    record_rms_norm(out, norm, &self.memory, &mut self.launches);
                }
            }
            Epilogue::Route { router, out } => {
                let [projection, gate @ ..] = m.projections.as_slice() else { return Ok(()) };
                let shared_gate = gate.first().map(|gate| gate.out);
                let route = self.route(projection.out, shared_gate, router, *out)?;
                let dtype = self.memory.weight(projection.weight).dtype;
                let is_plain = |gate: &rf_graph::Projection| {
                    gate.bias.is_none() && self.memory.weight(gate.weight).dtype == dtype
                };
                if rows == 1 && dtype.is_float() && gate.iter().all(is_plain) {
                    self.router(m, x, route);
                } else {
                    self.projections(m, x, rows, NormOut::default());
                    self.launches.push(route.launch(), route);
                }
            }
            Epilogue::Glu { activation, out } => {
                let weight = self.memory.weight(m.projections[0].weight);
                let is_fused = rows <= device.fused_matvec_tokens(weight.dtype)
                    && has_fused_rows(weight.dtype, weight.rows)
                    && self.memory.output(*out).f16.x == 0;
                if is_fused {
                    self.gate_and_up(m, x, rows, (*activation, *out));
                } else if !self.half_glu(m, x, rows, (*activation, *out)) {
                    self.projections(m, x, rows, NormOut::default());
                    let outputs = [0, 1].map(|i| m.projections[i].out);
                    record_glu(*activation, outputs, *out, &self.memory, &mut self.launches);
                }
            }
        }
        Ok(())
    }

    /// Records gate, up and activation as one launch, if there is one with f16 operands.
    fn half_glu(
        &mut self,
        m: &MatMul,
        x: StoredOperand,
        rows: usize,
        (activation, out): (Activation, ValueId),
    ) -> bool {
        let typed = self.typed_projections(m);
        let [gate, up] = typed[..] else { return false };
        let out = self.memory.output(out);
        let is_plain = gate.params.bias == 0 && up.params.bias == 0 && gate.dtype == up.dtype;
        if !is_plain || !out.is_f16_alone() {
            return false;
        }
        let mut projections = [Projection::default(); MAX_PROJECTIONS];
        projections[..2].copy_from_slice(&[gate.params, up.params]);
        let gated = GatedMatmul {
            dtype: gate.dtype,
            projections,
            columns: self.memory.program.graph.weight(m.projections[0].weight).columns as u32,
            activation: activation_number(activation),
            out: out.f16,
        };
        if self.is_skinny(rows, gated.dtype, gated.columns) {
            self.skinny_glu(&gated, x, rows);
        } else if self.has_half_tiles(rows, gated.dtype, gated.columns) {
            let params = MatmulParams {
                projections,
                num_projections: 1,
                glu: gated.out,
                activation: gated.activation,
                columns: gated.columns,
                tokens: rows as u32,
                x_f16: x.operand.f16,
                ..MatmulParams::default()
            };
            self.half_tiles(&params, gated.dtype);
        } else {
            return false;
        }
        true
    }

    /// Returns true if a matmul of this many rows with weights of this format has f16 operands and
    /// large tiles.
    fn has_half_tiles(&self, rows: usize, dtype: DType, columns: u32) -> bool {
        let device = self.memory.program.analysis.matmul_device;
        rows > device.few_tokens && device.halves(dtype, columns as usize)
    }

    fn half_tiles(&mut self, params: &MatmulParams, dtype: DType) {
        let device = self.memory.program.analysis.matmul_device;
        let scratch = self.memory.program.scratch;
        let (params, launch) = params.halves(dtype, device, (scratch.partials, scratch.arrivals));
        self.launches.push(launch, params);
    }

    /// A left operand in the form that the weight formats need. Records its quantisation.
    pub(super) fn operand(&mut self, x: ValueId, form: OperandForm) -> StoredOperand {
        if let Some(stored) = self.memory.operand(x) {
            return stored;
        }
        let (scratch, forms) = (self.memory.program.scratch, form.forms(self.memory.rows(x)));
        let mut operand = Operand { f32: self.memory.address(x), ..Operand::default() };
        if forms.q8 {
            operand.q8 = scratch.operand;
        }
        if let Some(order) = forms.f16 {
            operand.f16 = order.of(scratch.halves);
        }
        if forms.q8 || forms.f16.is_some() {
            let rows = self.memory.rows(x) * self.memory.width(x) / form.columns;
            for first in (0..rows).step_by(MAX_GRID) {
                let params = QuantizeParams {
                    x: operand.f32 + (4 * first * form.columns) as Address,
                    out: operand.at_row(first, form.columns),
                    columns: form.columns as u32,
                    rows: (rows - first).min(MAX_GRID) as u32,
                };
                self.launches.push(params.launch(), params);
            }
        }
        StoredOperand { operand, norm: None }
    }

    /// The projections of a matmul, with their formats.
    pub(super) fn typed_projections(&self, m: &MatMul) -> Vec<TypedProjection> {
        let typed = |p: &rf_graph::Projection| {
            let place = self.memory.weight(p.weight);
            let params = Projection {
                weight: place.planes,
                bias: p.bias.map_or(0, |bias| self.memory.vector(bias)),
                out: self.memory.address(p.out),
                rows: place.rows as u32,
                format: format_number(place.dtype),
                half_unit: place.half_unit,
                reserved: 0,
            };
            TypedProjection { dtype: place.dtype, params }
        };
        m.projections.iter().map(typed).collect()
    }

    /// Records all projections, with one launch for those of one format or of mixed formats.
    fn projections(&mut self, m: &MatMul, x: StoredOperand, rows: usize, norm_out: NormOut) {
        let projections = self.typed_projections(m);
        let columns = self.memory.program.graph.weight(m.projections[0].weight).columns as u32;
        let device = self.memory.program.analysis.matmul_device;
        let (x_q8, x_f32, tokens) = (x.operand.q8, x.operand.f32, rows as u32);
        let residual = m.residual.map_or(0, |residual| self.memory.address(residual));
        for group in groups(&projections, rows, device) {
            let mut projections = [Projection::default(); MAX_PROJECTIONS];
            for (slot, projection) in projections.iter_mut().zip(&group) {
                *slot = projection.params;
            }
            let num_projections = group.len() as u32;
            if self.is_skinny(rows, group[0].dtype, columns) {
                let params = SkinnyParams {
                    projections,
                    x_f16: x.operand.f16,
                    residual,
                    norm_in: x.norm.unwrap_or_default(),
                    num_projections,
                    columns,
                    tokens,
                    ..SkinnyParams::default()
                };
                self.skinny(&params, group[0].dtype, norm_out);
            } else if rows <= device.matvec_tokens(group[0].dtype) {
                let dtypes: Vec<DType> = group.iter().map(|p| p.dtype).collect();
                let params = MatvecParams {
                    projections,
                    x_q8,
                    x_f32,
                    residual,
                    norm_in: x.norm.unwrap_or_default(),
                    norm_out,
                    num_projections,
                    columns,
                    tokens,
                    ..MatvecParams::default()
                }
                .with_waves(&dtypes, device);
                self.launches.push(params.launch(&dtypes, device), params);
            } else {
                let params = MatmulParams {
                    projections,
                    x_q8,
                    x_f32,
                    x_f16: x.operand.f16,
                    residual,
                    num_projections,
                    columns,
                    tokens,
                    ..MatmulParams::default()
                };
                let dtype = group[0].dtype;
                if self.has_half_tiles(rows, dtype, columns) {
                    self.half_tiles(&params, dtype);
                } else {
                    let scratch = self.memory.program.scratch;
                    let scratch = (scratch.partials, scratch.arrivals);
                    let params = params.divided(dtype, device, scratch);
                    self.launches.push(params.launch(dtype, device), params);
                }
            }
        }
    }

    /// Records the logits of one row and the selection of its experts as one launch.
    fn router(&mut self, m: &MatMul, x: StoredOperand, route: RouteParams) {
        let projection = &m.projections[0];
        let place = self.memory.weight(projection.weight);
        let shared = m.projections.get(1).map(|gate| self.memory.weight(gate.weight));
        let params = RouterParams {
            weight: place.planes.low,
            bias: projection.bias.map_or(0, |bias| self.memory.vector(bias)),
            shared_weight: shared.map_or(0, |place| place.planes.low),
            x: x.operand.f32,
            norm_in: x.norm.unwrap_or_default(),
            arrivals: self.memory.program.scratch.arrivals,
            route,
            columns: self.memory.program.graph.weight(projection.weight).columns as u32,
            rows: route.experts + u32::from(shared.is_some()),
        };
        self.launches.push(params.launch(place.dtype), params);
    }

    /// Records gate, up, activation and quantisation of few rows as one launch.
    fn gate_and_up(
        &mut self,
        m: &MatMul,
        x: StoredOperand,
        rows: usize,
        (activation, out): (Activation, ValueId),
    ) {
        let [gate, up] = [0, 1].map(|i| *self.memory.weight(m.projections[i].weight));
        let out = self.memory.output(out);
        let device = self.memory.program.analysis.matmul_device;
        let params = MatvecGluParams {
            gate: gate.planes,
            up: up.planes,
            x_q8: x.operand.q8,
            out_f32: out.f32,
            out_q8: out.q8,
            norm_in: x.norm.unwrap_or_default(),
            rows: gate.rows as u32,
            columns: self.memory.program.graph.weight(m.projections[0].weight).columns as u32,
            tokens: rows as u32,
            activation: activation_number(activation),
            ..MatvecGluParams::default()
        }
        .with_waves(gate.dtype, device);
        self.launches.push(params.launch(gate.dtype, device), params);
    }
}

/// Position of a format in [`DType::ALL`], the number by which kernels identify it.
pub(super) fn format_number(dtype: DType) -> u32 {
    DType::ALL.iter().position(|other| *other == dtype).map_or(u32::MAX, |at| at as u32)
}

/// Projections by launch. Projections of one format share a launch; for one or two rows, mixed
/// formats too.
fn groups(
    projections: &[TypedProjection],
    rows: usize,
    device: MatmulDevice,
) -> Vec<Vec<TypedProjection>> {
    let mut groups: Vec<Vec<TypedProjection>> = Vec::new();
    for projection in projections {
        let joins = |group: &&mut Vec<TypedProjection>| {
            let first = group[0].dtype;
            group.len() < MAX_PROJECTIONS
                && (first == projection.dtype
                    || (device.mixes_matvec(rows, first)
                        && mixes(first)
                        && mixes(projection.dtype)))
        };
        match groups.iter_mut().find(joins) {
            Some(group) => group.push(*projection),
            None => groups.push(vec![*projection]),
        }
    }
    groups
}
