//! Matmuls of 2 to 64 rows on matrix units, with their epilogues.

use rf_graph::DType;

use super::Recorder;
use super::matmul::GatedMatmul;
use crate::exec::program::StoredOperand;
use crate::params::{NormOut, SkinnyEpilogue, SkinnyParams};

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

    /// Records gate, up and activation of few rows.
    pub(super) fn skinny_glu(&mut self, gated: &GatedMatmul, x: StoredOperand, rows: usize) {
        let params = SkinnyParams {
            projections: gated.projections,
            x_f16: x.operand.f16,
            norm_in: x.norm.unwrap_or_default(),
            out: gated.out,
            num_projections: 2,
            columns: gated.columns,
            tokens: rows as u32,
            activation: gated.activation,
            ..SkinnyParams::default()
        };
        self.push_skinny(&params, gated.dtype, SkinnyEpilogue::Glu);
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
