//! Parameters and launches. `kernels/include/rf/params/matvec.h` is generated from the table.

use rf_quant::DType;

use super::table::params;
use super::{
    Activations, Launch, MAX_PROJECTIONS, MatmulDevice, MatrixUnit, Operand, Projection,
    RouteParams, Weight,
};
use crate::tuning::Knob;

/// Output rows of a block of int8 activations, which one workgroup computes for one token.
const BLOCK: u32 = 32;

/// Waves of a workgroup.
const WAVES: u32 = 8;

/// Waves of a workgroup of a sum over experts, which computes a block of rows, two each.
const BLOCK_WAVES: u32 = 16;

/// The most rows of x of a matrix-vector kernel.
const MAX_TOKENS: usize = 8;

/// The most rows of x of kernels with epilogues: `FUSED_TOKENS` of `rf/matvec.h`.
const FUSED_TOKENS: u32 = 4;

/// The most rows of x of kernels for several formats.
const MIXED_TOKENS: usize = 2;

/// Rows of a wave for one token, without a choice for the card, and on NVIDIA for two.
const ROWS_PER_WAVE: u32 = 2;

/// Waves of up to 64 registers that a compute unit holds at once.
const WAVES_PER_UNIT: u32 = 32;

/// Waves that stream their rows on a multiprocessor of NVIDIA: enough to keep the memory busy, and
/// as many as it holds of up to 128 registers.
const STREAM_WAVES_PER_UNIT: u32 = 16;

/// The LDS in which such a wave has its next weights. Twin: `rf/weight_ring.h`.
const RING_BYTES: u32 = 6144;

/// The most groups of rows of such a wave. More than fit at once are enough to fill the device.
const MAX_ROW_GROUPS: u32 = 8;

params! {
    /// The RMSNorm epilogue of a matmul of 1 to 4 tokens: it writes `w · x` without the factor `1 /
    /// √(Σ x² / columns + eps)`, and the sums of squares from which the next matmul computes that
    /// factor, which is common to a row.
    struct NormOut {
        /// `[rows]`.
        weight: *const f32,
        /// `[tokens, rows]`: int8 and f32, each or null.
        out: Operand,
        /// `[tokens, rows / 32]`, or null without this epilogue.
        squares: *mut f32,
    }

    /// The factor that a row of x lacks after an RMSNorm epilogue.
    struct NormIn {
        /// `[tokens, count]`, as [`NormOut::squares`].
        squares: *const f32,
        /// Number of squares, `columns / 32`; 0 if x is complete.
        count: u32,
        /// The `eps` of the norm.
        eps: f32,
    }

    /// A matmul of 1 to 8 tokens.
    ///
    /// With a route, a matmul of the selected experts: a projection has the matrices of all experts
    /// one below the other, with `rows` of one expert and a bias `[experts, rows]`, and the
    /// "tokens" are slots: token t has `used` slots. Slot s of token t is multiplied by the expert
    /// `route[t][s]`.
    struct MatvecParams {
        /// The first [`num_projections`](Self::num_projections) entries are used.
        projections: [Projection; MAX_PROJECTIONS],
        /// `[tokens, columns]`, for quantised formats.
        x_q8: Activations,
        /// `[tokens, columns]`, for float formats.
        x_f32: *const f32,
        /// `[tokens, rows]` or null; with one projection only.
        residual: *const f32,
        /// `[tokens, 2 · used]` or null: `Op::Route` of rf-graph.
        route: *const f32,
        /// Missing factor of x; only for one token, or up to 4 with quantised formats.
        norm_in: NormIn,
        /// RMSNorm epilogue; only for up to 4 tokens, quantised formats and one projection of whole
        /// blocks of 32 rows.
        norm_out: NormOut,
        /// Number of projections, 1 to 3.
        num_projections: u32,
        /// Input features.
        columns: u32,
        /// Rows of x: 1 to 8; with a route any number.
        tokens: u32,
        /// Experts per token, with a route.
        used: u32,
        /// With a route: 1 if x has one row per token, 0 if it has one row per slot.
        shared_x: u32,
        /// Waves of a workgroup, from [`with_waves`](Self::with_waves): 4, 8 or 16; 16 with
        /// `norm_out`.
        waves: u32,
        /// Groups of rows that a wave computes one after the other, chosen with the waves; 1 with
        /// `norm_out` and except on NVIDIA.
        row_groups: u32,
        /// Zero.
        reserved: u32,
    }

    /// `activation(x · Gᵀ (+ bias)) · (x · Uᵀ (+ bias))` of 1 to 4 tokens, or of each slot of a
    /// route, as f32 and as int8 for the next matmul.
    struct MatvecGluParams {
        /// `[rows, columns]`.
        gate: Weight,
        /// `[rows, columns]`.
        up: Weight,
        /// `[experts, rows]` or null; with a route only.
        gate_bias: *const f32,
        /// `[experts, rows]` or null; with a route only.
        up_bias: *const f32,
        /// `[tokens, columns]`.
        x_q8: Activations,
        /// `[tokens, 2 · used]` or null.
        route: *const f32,
        /// `[slots, rows]` or null.
        out_f32: *mut f32,
        /// `[slots, rows]` or null.
        out_q8: Activations,
        /// Missing factor of x, as in [`MatvecParams`]; with a route of one token only.
        norm_in: NormIn,
        /// Output features, of one expert with a route: a multiple of 32.
        rows: u32,
        /// Input features.
        columns: u32,
        /// Rows of x: 1 to 4; with a route any number.
        tokens: u32,
        /// `RfActivation`.
        activation: u32,
        /// Experts per token, with a route.
        used: u32,
        /// With a route: 1 if x has one row per token, 0 if it has one row per slot.
        shared_x: u32,
        /// Waves of a workgroup, from [`with_waves`](Self::with_waves): 8 or 16.
        waves: u32,
        /// Zero.
        reserved: u32,
    }

    /// `Σₛ pₛ · (xₛ · Wₑᵀ (+ bias)) (+ residual)` of one token over the slots `s` of a route in
    /// their order, with an RMSNorm epilogue as in [`MatvecParams`].
    struct MatvecSumParams {
        /// The matrices of all experts one below the other, with `rows` of one expert, a multiple
        /// of 32, and a bias `[experts, rows]`; `out` is `[1, rows]`.
        projection: Projection,
        /// `[used, columns]`.
        x_q8: Activations,
        /// `[1, 2 · used]`.
        route: *const f32,
        /// `[1, rows]` or null.
        residual: *const f32,
        /// RMSNorm epilogue.
        norm_out: NormOut,
        /// `[parts, rows]`; unused with one part.
        partials: *mut f32,
        /// `[rows / 32]`, zero before the first and after every launch; as partials.
        arrivals: *mut u32,
        /// Input features.
        columns: u32,
        /// Experts per token, at most 32.
        used: u32,
        /// Parts of the slots, from [`divided`](Self::divided): at most `used`.
        parts: u32,
        /// Zero.
        reserved: u32,
    }

    /// `route(x · Wᵀ (+ bias))` of one token: the logits of a router with float weights, then the
    /// selection of experts.
    struct RouterParams {
        /// `[experts, columns]`.
        weight: *const void,
        /// `[experts]` or null.
        bias: *const f32,
        /// `[1, columns]` or null: the gate of the shared expert, whose product is
        /// `route.shared_gate`.
        shared_weight: *const void,
        /// `[1, columns]`.
        x: *const f32,
        /// Missing factor of x.
        norm_in: NormIn,
        /// A counter, zero before the first and after every launch.
        arrivals: *mut u32,
        /// The selection; the kernel also writes the logits and the gate of the shared expert.
        route: RouteParams,
        /// Input features.
        columns: u32,
        /// Rows of both weights.
        rows: u32,
    }
}

impl MatvecSumParams {
    /// Largest number of parts.
    pub(crate) const MAX_PARTS: usize = 4;

    /// Divides the slots over as many workgroups as the device holds at once.
    #[must_use]
    pub(crate) fn divided(self, compute_units: usize) -> Self {
        let places = compute_units * (WAVES_PER_UNIT / BLOCK_WAVES) as usize;
        let parts = places / (self.projection.rows / BLOCK).max(1) as usize;
        let most = Self::MAX_PARTS.min(self.used as usize);
        Self { parts: parts.clamp(1, most) as u32, ..self }
    }

    /// The launch: 32 rows and a part of the slots per workgroup.
    pub(crate) fn launch(&self, dtype: DType) -> Launch {
        let kernel = kernel_name!(dtype, "matvec_sum_", "_q8_f32_n1");
        let grid = [self.projection.rows / BLOCK, self.parts, 1];
        Launch { kernel, grid, block: [32 * BLOCK_WAVES, 1, 1], lds_bytes: 0 }
    }
}

impl RouterParams {
    /// The launch: a workgroup per row.
    pub(crate) fn launch(&self, dtype: DType) -> Launch {
        let kernel = kernel_name!(dtype, "router_", "_f32_n1");
        Launch::linear(kernel, self.rows as usize, 32 * WAVES)
    }
}

impl MatvecParams {
    /// The launch; `dtypes` are the formats of the projections.
    pub(crate) fn launch(&self, dtypes: &[DType], device: MatmulDevice) -> Launch {
        let (first, columns) = (dtypes[0], self.columns_at_once());
        let kernel = if is_mixed(dtypes) {
            mixed_kernel(dtypes, columns)
        } else {
            kernel_of(first, columns)
        };
        let rows_per_wave = rows_per_wave(dtypes, columns, device);
        let rows_per_group = self.waves * rows_per_wave * self.row_groups;
        let groups = self.projections[..self.num_projections as usize]
            .iter()
            .map(|p| p.rows.div_ceil(rows_per_group))
            .sum();
        let slots = if self.route == 0 { 1 } else { self.tokens * self.used };
        let lds_bytes = device.ring_bytes(first, columns, self.waves);
        Launch { kernel, grid: [groups, slots, 1], block: [32 * self.waves, 1, 1], lds_bytes }
    }

    /// Rows of x that a workgroup multiplies: all, or that of a slot.
    fn columns_at_once(&self) -> u32 {
        if self.route == 0 { self.tokens } else { 1 }
    }

    /// The fewest groups of rows per wave with which the device holds all waves at once, so that
    /// all weights but the first ones are loaded while others are multiplied.
    fn row_groups(&self, device: MatmulDevice) -> u32 {
        let projections = &self.projections[..self.num_projections as usize];
        let rows: u32 = projections.iter().map(|projection| projection.rows).sum();
        let waves = rows.div_ceil(ROWS_PER_WAVE);
        let at_once = device.compute_units as u32 * STREAM_WAVES_PER_UNIT;
        waves.div_ceil(at_once.max(1)).clamp(1, MAX_ROW_GROUPS)
    }

    /// Sets the number of waves of a workgroup. With an RMSNorm epilogue, a workgroup computes
    /// exactly one block of rows. Kernels for several formats, several tokens or floats have
    /// a fixed number.
    #[must_use]
    pub(crate) fn with_waves(self, dtypes: &[DType], device: MatmulDevice) -> Self {
        let (first, columns) = (dtypes[0], self.columns_at_once());
        let is_fixed = is_mixed(dtypes) || first.is_float() || columns > 1;
        let tuned = device.tuned(Knob::MatvecWaves, first).filter(|_| !is_fixed);
        let has_norm = self.norm_out.squares != 0;
        let block_waves = BLOCK / rows_per_wave(dtypes, columns, device);
        let waves = if has_norm { block_waves } else { tuned.unwrap_or(WAVES) };
        let streams = device.streams_rows(first, columns) && self.route == 0 && !has_norm;
        let row_groups = if streams { self.row_groups(device) } else { 1 };
        Self { waves, row_groups, ..self }
    }
}

impl MatmulDevice {
    /// The most rows of x that have the matrix-vector kernels with epilogues for weights of a
    /// format. On matrix units of AMD, 2 columns take as long as 16.
    pub(crate) fn fused_matvec_tokens(self, dtype: DType) -> usize {
        match self.matrix_unit {
            _ if dtype.is_float() => 1,
            MatrixUnit::None => self.matvec_tokens(dtype).min(FUSED_TOKENS as usize),
            MatrixUnit::Nvidia => 2,
            _ => 1,
        }
    }

    /// Returns true if waves copy the next weights to LDS while they multiply: `MATVEC_STREAMS` of
    /// `rf/matvec.h` on NVIDIA.
    fn streams_rows(self, dtype: DType, columns: u32) -> bool {
        self.matrix_unit == MatrixUnit::Nvidia
            && !dtype.is_float()
            && dtype != DType::Mxfp6E3M2
            && columns as usize <= self.fused_matvec_tokens(dtype)
    }

    fn ring_bytes(self, dtype: DType, columns: u32, waves: u32) -> u32 {
        if self.streams_rows(dtype, columns) { waves * RING_BYTES } else { 0 }
    }

    /// Returns true if projections of several formats have a kernel for this many rows of x, where
    /// each of these has a matrix-vector kernel.
    pub(crate) fn mixes_matvec(self, rows: usize, dtype: DType) -> bool {
        rows <= self.fused_matvec_tokens(dtype).min(MIXED_TOKENS)
    }

    /// The most rows of x for matrix-vector kernels with weights of a format, where there is no
    /// kernel for few rows on matrix units.
    pub(crate) fn matvec_tokens(self, dtype: DType) -> usize {
        let is_tuned = self.matrix_unit == MatrixUnit::None && !dtype.is_float();
        let tuned = self.tuned(Knob::MatvecTokens, dtype).filter(|_| is_tuned);
        tuned.map_or(MAX_TOKENS, |tokens| tokens as usize)
    }
}

/// Returns true if the formats differ.
fn is_mixed(dtypes: &[DType]) -> bool {
    dtypes.iter().any(|dtype| *dtype != dtypes[0])
}

/// The kernel for a format and 1, 2, 4 or 8 columns.
fn kernel_of(dtype: DType, columns: u32) -> &'static str {
    match (columns, dtype.is_float()) {
        (1, false) => kernel_name!(dtype, "matvec_", "_q8_f32_n1"),
        (2, false) => kernel_name!(dtype, "matvec_", "_q8_f32_n2"),
        (3 | 4, false) => kernel_name!(dtype, "matvec_", "_q8_f32_n4"),
        (_, false) => kernel_name!(dtype, "matvec_", "_q8_f32_n8"),
        (1, true) => kernel_name!(dtype, "matvec_", "_f32_n1"),
        (2, true) => kernel_name!(dtype, "matvec_", "_f32_n2"),
        (3 | 4, true) => kernel_name!(dtype, "matvec_", "_f32_n4"),
        (_, true) => kernel_name!(dtype, "matvec_", "_f32_n8"),
    }
}

/// The kernel for projections of several formats, and 1 or 2 columns.
fn mixed_kernel(dtypes: &[DType], columns: u32) -> &'static str {
    let all_of = |pair: [DType; 2]| dtypes.iter().all(|dtype| pair.contains(dtype));
    let [one, two] = if all_of([DType::Q4K, DType::Q6K]) {
        ["matvec_mixed_q4_k_q6_k_q8_f32_n1", "matvec_mixed_q4_k_q6_k_q8_f32_n2"]
    } else if all_of([DType::Q5K, DType::Q6K]) {
        ["matvec_mixed_q5_k_q6_k_q8_f32_n1", "matvec_mixed_q5_k_q6_k_q8_f32_n2"]
    } else {
        ["matvec_mixed_q8_f32_n1", "matvec_mixed_q8_f32_n2"]
    };
    if columns == 1 { one } else { two }
}

/// Rows of a wave: `MATVEC_ROWS` of `rf/matvec.h`, and the equivalent of `rf/matvec_float.h`.
fn rows_per_wave(dtypes: &[DType], columns: u32, device: MatmulDevice) -> u32 {
    let dtype = dtypes[0];
    let float = dtype.is_float();
    // A weight of MXFP6 E3M2 is a sum of two values.
    let parts = if dtype == DType::Mxfp6E3M2 { 2 } else { 1 };
    let tuned = device.tuned(Knob::MatvecRowsSteps, dtype).filter(|_| !is_mixed(dtypes));
    let nvidia = device.matrix_unit == MatrixUnit::Nvidia;
    match columns {
        0..=1 if !float => tuned.map_or(ROWS_PER_WAVE, |rows_steps| rows_steps / 10),
        0..=4 if float => 4,
        2 if !nvidia => 4 / parts,
        2..=FUSED_TOKENS => 2,
        _ => 2 / parts,
    }
}

impl MatvecGluParams {
    /// The launch: 32 outputs of all tokens or of a slot per workgroup.
    pub(crate) fn launch(&self, dtype: DType, device: MatmulDevice) -> Launch {
        let kernel = match self.tokens {
            2 if self.route == 0 => kernel_name!(dtype, "matvec_glu_", "_q8_n2"),
            3 | 4 if self.route == 0 => kernel_name!(dtype, "matvec_glu_", "_q8_n4"),
            _ => kernel_name!(dtype, "matvec_glu_", "_q8_n1"),
        };
        let columns = if self.route == 0 { self.tokens } else { 1 };
        let lds_bytes = device.ring_bytes(dtype, columns, self.waves);
        Launch { kernel, grid: self.grid(), block: [32 * self.waves, 1, 1], lds_bytes }
    }

    /// Sets the number of waves of a workgroup: twice as many for few outputs of one token, if the
    /// device holds all waves at once.
    #[must_use]
    pub(crate) fn with_waves(self, dtype: DType, device: MatmulDevice) -> Self {
        if self.route == 0 && self.tokens > 1 {
            return Self { waves: WAVES, ..self };
        }
        let [groups, slots, _] = self.grid();
        let waves = groups * slots * 2 * WAVES;
        let fits = waves as usize <= device.compute_units * WAVES_PER_UNIT as usize;
        let tuned = device.tuned(Knob::GluWaves, dtype);
        Self { waves: tuned.unwrap_or(if fits { 2 * WAVES } else { WAVES }), ..self }
    }

    fn grid(&self) -> [u32; 3] {
        let slots = if self.route == 0 { 1 } else { self.tokens * self.used };
        [self.rows.div_ceil(BLOCK), slots, 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_that_stream_have_a_ring_and_compute_all_rows() {
        let device = MatmulDevice::new(132, "sm_90");
        let mut projections = [Projection::default(); MAX_PROJECTIONS];
        projections[0].rows = 12_288;
        for dtype in DType::ALL {
            let params = MatvecParams {
                projections,
                num_projections: 1,
                tokens: 1,
                columns: 4096,
                ..MatvecParams::default()
            };
            let params = params.with_waves(&[dtype], device);
            let launch = params.launch(&[dtype], device);
            // The kernels of E3M2 do not stream, as unpacking needs their registers.
            let streams = !dtype.is_float() && dtype != DType::Mxfp6E3M2;
            let (row_groups, ring_bytes) = if streams { (3, RING_BYTES) } else { (1, 0) };
            assert_eq!(params.row_groups, row_groups, "{dtype:?}");
            assert_eq!(launch.lds_bytes, params.waves * ring_bytes, "{dtype:?}");
            let rows_per_wave = rows_per_wave(&[dtype], 1, device) * row_groups;
            assert!(launch.grid[0] * params.waves * rows_per_wave >= 12_288, "{dtype:?}");
        }
        let header = include_str!("../../kernels/include/rf/weight_ring.h");
        assert!(header.contains(&format!("RING_BYTES = {RING_BYTES};")));
    }
}
