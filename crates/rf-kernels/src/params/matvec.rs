//! `kernels/include/rf/params/matvec.h`.

use bytemuck::{Pod, Zeroable};
use rf_quant::DType;

use super::{Activations, Address, Launch, Projection, Weight};

/// Rows that one factor for 8-bit activations spans, and that a workgroup makes of a product of one token.
const BLOCK: u32 = 32;

/// Waves of a workgroup.
const WAVES: u32 = 8;

/// Threads of a workgroup of the gated unit.
const GLU_THREADS: u32 = 256;

/// What a product does of the RMS norm behind it: it writes `w · x` as int8, without the factor
/// `1 / √(Σ x² / columns + eps)`, and the sums of squares that the next product makes that factor of.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct NormOut {
    /// `[rows]`.
    pub weight: Address,
    /// `[1, rows]`.
    pub out: Activations,
    /// `[rows / 32]`, or null: no norm behind this product.
    pub squares: Address,
}

/// The factor that the rows of x still lack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct NormIn {
    /// `[count]`, as [`NormOut::squares`].
    pub squares: Address,
    /// `columns / 32`, or 0: x is complete.
    pub count: u32,
    /// Of the norm.
    pub eps: f32,
}

/// A product with few tokens; with a route, of the experts of a mixture.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MatvecParams {
    /// The first [`num_projections`](Self::num_projections) count. With a route one: the experts' matrices
    /// one below the other, `rows` those of one expert.
    pub projections: [Projection; 3],
    /// `[tokens, columns]`, for quantised formats.
    pub x_q8: Activations,
    /// `[tokens, columns]`, for float formats.
    pub x_f32: Address,
    /// `[tokens, rows]` or null; with one projection only.
    pub residual: Address,
    /// `[tokens, 2 · used]` f32 or null.
    pub route: Address,
    /// With one token of quantised formats only.
    pub norm_in: NormIn,
    /// The same, and with one projection of whole blocks of 32 rows.
    pub norm_out: NormOut,
    /// 1 to 3.
    pub num_projections: u32,
    /// Input features.
    pub columns: u32,
    /// Rows of x: 1 to 8; with a route any number.
    pub tokens: u32,
    /// Experts per token.
    pub used: u32,
    /// With a route: x has one row per token, not per slot.
    pub shared_x: u32,
    /// Of a workgroup: see [`with_waves`](Self::with_waves).
    pub waves: u32,
}

/// `activation(x · Gᵀ) · (x · Uᵀ)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MatvecGluParams {
    /// `[rows, columns]`.
    pub gate: Weight,
    /// `[rows, columns]`.
    pub up: Weight,
    /// `[tokens, columns]`, for quantised formats.
    pub x_q8: Activations,
    /// `[tokens, columns]`, for float formats.
    pub x_f32: Address,
    /// `[tokens, rows]` or null.
    pub out_f32: Address,
    /// `[tokens, rows]` or null.
    pub out_q8: Activations,
    /// As in [`MatvecParams`].
    pub norm_in: NormIn,
    /// Output features, a multiple of 32.
    pub rows: u32,
    /// Input features.
    pub columns: u32,
    /// 1 to 8.
    pub tokens: u32,
    /// 0 `SiLU`, 1 GELU in the tanh form.
    pub activation: u32,
}

/// The kernel for a format and 1, 2, 4 or 8 columns.
macro_rules! kernels {
    ($dtype:expr, $columns:expr, $($name:ident => $text:literal),*) => {
        match ($dtype, $columns) {
            $(
                (DType::$name, 1) => concat!("matvec_", $text, "_f32_n1"),
                (DType::$name, 2) => concat!("matvec_", $text, "_f32_n2"),
                (DType::$name, 3 | 4) => concat!("matvec_", $text, "_f32_n4"),
                (DType::$name, _) => concat!("matvec_", $text, "_f32_n8"),
            )*
            _ => "matvec_of_unknown_format",
        }
    };
}

/// The kernel of the gated unit for a format.
macro_rules! glu_kernels {
    ($dtype:expr, $($name:ident => $text:literal),*) => {
        match $dtype {
            $(DType::$name => concat!("matvec_glu_", $text, "_q8_n1"),)*
            _ => "matvec_glu_of_unknown_format",
        }
    };
}

impl MatvecParams {
    /// How it is launched; `dtypes` are the formats of the projections.
    pub fn launch(&self, dtypes: &[DType]) -> Launch {
        let first = dtypes[0];
        let mixed = dtypes.iter().any(|dtype| *dtype != first);
        let columns = if self.route == 0 { self.tokens } else { 1 };
        let kernel = if mixed {
            mixed_kernel(dtypes)
        } else {
            kernels!(first, columns,
                F32 => "f32", F16 => "f16", Bf16 => "bf16",
                Q4_0 => "q4_0_q8", Q4_1 => "q4_1_q8", Q5_0 => "q5_0_q8", Q5_1 => "q5_1_q8",
                Q8_0 => "q8_0_q8", Q2K => "q2_k_q8", Q3K => "q3_k_q8", Q4K => "q4_k_q8",
                Q5K => "q5_k_q8", Q6K => "q6_k_q8", Mxfp4 => "mxfp4_q8",
                Mxfp6E2M3 => "mxfp6_e2m3_q8", Mxfp6E3M2 => "mxfp6_e3m2_q8")
        };
        let rows_per_group = self.waves * rows_per_wave(first, columns);
        let groups = self.projections[..self.num_projections as usize]
            .iter()
            .map(|p| p.rows.div_ceil(rows_per_group))
            .sum();
        let slots = if self.route == 0 { 1 } else { self.tokens * self.used };
        Launch { kernel, grid: [groups, slots, 1], block: [32 * self.waves, 1, 1], lds_bytes: 0 }
    }

    /// The same with as many waves in a workgroup as it needs: with a norm behind it, those that make a block of
    /// rows.
    #[must_use]
    pub fn with_waves(self) -> Self {
        let waves =
            if self.norm_out.squares == 0 { WAVES } else { BLOCK / rows_per_wave(DType::Q4_0, 1) };
        Self { waves, ..self }
    }
}

/// The kernel for projections of several formats.
fn mixed_kernel(dtypes: &[DType]) -> &'static str {
    let all_of = |pair: [DType; 2]| dtypes.iter().all(|dtype| pair.contains(dtype));
    if all_of([DType::Q4K, DType::Q6K]) {
        "matvec_mixed_q4_k_q6_k_q8_f32_n1"
    } else if all_of([DType::Q5K, DType::Q6K]) {
        "matvec_mixed_q5_k_q6_k_q8_f32_n1"
    } else {
        "matvec_mixed_q8_f32_n1"
    }
}

/// Rows of a wave: `MATVEC_ROWS` of `rf/matvec.h`, and its counterpart of `rf/matvec_float.h`.
fn rows_per_wave(dtype: DType, columns: u32) -> u32 {
    let float = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    // Two values of its weights have to be added up.
    let parts = if dtype == DType::Mxfp6E3M2 { 2 } else { 1 };
    match columns {
        0..=1 if !float => 2,
        0..=4 if float => 4,
        2 => 4 / parts,
        _ => 2 / parts,
    }
}

impl MatvecGluParams {
    /// How it is launched: 32 outputs per workgroup.
    pub fn launch(&self, dtype: DType) -> Launch {
        let kernel = glu_kernels!(dtype,
            Q4_0 => "q4_0", Q4_1 => "q4_1", Q5_0 => "q5_0", Q5_1 => "q5_1", Q8_0 => "q8_0",
            Q2K => "q2_k", Q3K => "q3_k", Q4K => "q4_k", Q5K => "q5_k", Q6K => "q6_k",
            Mxfp4 => "mxfp4", Mxfp6E2M3 => "mxfp6_e2m3", Mxfp6E3M2 => "mxfp6_e3m2");
        Launch::linear(kernel, self.rows.div_ceil(BLOCK) as usize, GLU_THREADS)
    }
}
