//! Matmuls of 2 to 64 rows on matrix units, with their epilogues.

use rf_graph::{Activation, DType, MatMul, ValueId};

use super::Recorder;
use crate::exec::program::StoredOperand;
use crate::params::{
    MAX_PROJECTIONS, NormOut, Projection, RowMemory, SkinnyEpilogue, SkinnyParams,
    activation_number,
};

impl Recorder<'_> {
    /// Returns true if a matmul of this many rows with weights of this format has f16 operands and
    /// a kernel for few rows on matrix units.
    pub(super) fn is_skinny(&self, rows: usize, dtype: DType, columns: u32) -> bool {
        let device = self.memory.program.analysis.matmul_device;
        (2..=device.few_tokens).contains(&rows)
            && rows > device.fused_matvec_tokens(dtype)
            && device.is_skinny(dtype, columns as usize)
    }

    /// Records a matmul of few rows. With `norm_out` it also writes the operand of the matmuls
    /// after the norm.
    pub(super) fn skinny(&mut self, params: &SkinnyParams, dtype: DType, norm_out: NormOut) {
        let epilogue = match norm_out.squares {
            0 => SkinnyEpilogue::None,
            _ => SkinnyEpilogue::Norm,
        };
        let params = SkinnyParams {
            out: norm_out.out.f16,
            norm_weight: norm_out.weight,
            out_f32: norm_out.out.f32,
            squares: norm_out.squares,
            ..*params
        };
        self.push_skinny(&params, dtype, epilogue);
    }

    /// Records gate, up and activation of few rows as one launch, if there is a kernel for it.
    pub(super) fn skinny_glu(
        &mut self,
        m: &MatMul,
        x: StoredOperand,
        rows: usize,
        (activation, out): (Activation, ValueId),
    ) -> bool {
        let projections = self.typed_projections(m);
        let [gate, up] = projections[..] else { return false };
        let columns = self.memory.program.graph.weight(m.projections[0].weight).columns as u32;
        let out = self.memory.output(out);
        let is_plain = gate.params.bias == 0 && up.params.bias == 0 && gate.dtype == up.dtype;
        let is_f16_alone = out.f16.x != 0 && out.q8.q == 0 && out.f32 == 0;
        if !self.is_skinny(rows, gate.dtype, columns) || !is_plain || !is_f16_alone {
            return false;
        }
        let mut projections = [Projection::default(); MAX_PROJECTIONS];
        projections[..2].copy_from_slice(&[gate.params, up.params]);
        let params = SkinnyParams {
            projections,
            x: x.operand.f16,
            norm_in: x.norm.unwrap_or_default(),
            out: out.f16,
            num_projections: 2,
            columns,
            tokens: rows as u32,
            activation: activation_number(activation),
            ..SkinnyParams::default()
        };
        self.push_skinny(&params, gate.dtype, SkinnyEpilogue::Glu);
        true
    }

    fn push_skinny(&mut self, params: &SkinnyParams, dtype: DType, epilogue: SkinnyEpilogue) {
        let device = self.memory.program.analysis.matmul_device;
        let scratch = self.memory.program.scratch;
        let (partials, arrivals) = (scratch.partials, scratch.arrivals);
        let params = SkinnyParams { partials, arrivals, ..*params };
        let params = params.with_epilogue(epilogue, dtype, device);
        self.launches.push(params.launch(dtype, device), params);
    }
}
