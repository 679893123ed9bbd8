//! Parameters and launches. `kernels/include/rf/params/skinny.h` is generated from the table.

use rf_quant::{DType, Family};

use super::matmul::MAX_PARTS;
use super::table::params;
use super::{
    FEW_TOKENS, Halves, Launch, MAX_PROJECTIONS, MatmulDevice, MatrixUnit, NormIn, Projection,
};
use crate::tuning::Knob;

/// The work of a skinny matmul after its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkinnyEpilogue {
    /// Nothing: the outputs of the projections.
    None,
    /// Also the operand of the matmuls after an RMS norm, without the factor of a row.
    Norm,
    /// The gated unit of two projections, in their place.
    Glu,
}

params! {
    /// `outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual)` for 2 to [`FEW_TOKENS`] rows of f16, all projections
    /// of the same x and format, with an epilogue:
    ///
    /// - norm: the operand of the matmuls after an RMSNorm, without its factor per row: out ·
    ///   `norm_weight` as f16 (and f32), and the sums of squares of 32 columns each, from which a
    ///   reader computes the factor ([`NormIn`]);
    /// - gated unit: activation(out₀) · out₁ as f16; neither out₀ nor out₁ is written.
    struct SkinnyParams {
        /// The first [`num_projections`](Self::num_projections) entries are used; all have one
        /// format.
        projections: [Projection; MAX_PROJECTIONS],
        /// `[tokens, columns]`.
        x_f16: Halves,
        /// `[tokens, rows]` or null; with one projection only.
        residual: *const f32,
        /// The factor that the rows of x lack: `[tokens, count]` squares.
        norm_in: NormIn,
        /// `[tokens, rows]`: the result of the epilogue, with a fixed scale.
        out: Halves,
        /// `[rows]`; norm.
        norm_weight: *const f32,
        /// `[tokens, rows]` or null: the result of the norm as f32.
        out_f32: *mut f32,
        /// `[tokens, rows / 32]`; norm.
        squares: *mut f32,
        /// `[tiles of rows, parts, tokens of the kernel, 32]`, with several parts.
        partials: *mut f32,
        /// `[tiles of rows]`, zero before the first and after every launch.
        arrivals: *mut u32,
        /// Number of projections, 1 to 4.
        num_projections: u32,
        /// Input features.
        columns: u32,
        /// Rows of the output.
        tokens: u32,
        /// Parts of the columns, at least 1, from [`with_epilogue`](Self::with_epilogue).
        parts: u32,
        /// `RfSkinnyEpilogue`.
        epilogue: u32,
        /// `RfActivation`.
        activation: u32,
        /// Waves of a workgroup, from [`with_epilogue`](Self::with_epilogue): 4; on NVIDIA with up
        /// to 16 tokens also 8 or 12.
        waves: u32,
        /// Zero.
        reserved: u32,
    }
}

/// Waves of a workgroup, and the most with up to [`MANY_WAVES_TOKENS`] on NVIDIA.
const WAVES: u32 = 4;
const MAX_WAVES: u32 = 12;

/// The most tokens of a kernel whose workgroups can have more than [`WAVES`].
const MANY_WAVES_TOKENS: u32 = 16;

/// Rows of a workgroup.
const ROWS: u32 = 32;

/// Largest number of workgroups per compute unit.
const MAX_GROUPS: u32 = 8;

/// Largest number of parts per compute unit, of all groups of 32 rows that have several.
const MAX_UNIT_PARTS: u32 = 2 * MAX_GROUPS;

/// Least number of blocks of 32 columns of a wave of a part.
const MIN_WAVE_BLOCKS: u32 = 8;

impl MatmulDevice {
    /// Returns true if matmuls of 2 to [`FEW_TOKENS`] tokens with weights of this format have f16
    /// operands.
    pub(crate) fn is_skinny(self, dtype: DType, columns: usize) -> bool {
        let is_half = match dtype.family() {
            Family::Float => dtype != DType::F32 && columns.is_multiple_of(32),
            _ => true,
        };
        self.matrix_unit != MatrixUnit::None && is_half
    }

    /// Workgroups of a skinny matmul that a compute unit runs at once, as far as registers allow.
    pub(crate) fn skinny_groups(self, tokens: u32) -> u32 {
        match self.matrix_unit {
            MatrixUnit::Nvidia if tokens <= 32 => 3,
            MatrixUnit::Nvidia => 2,
            _ => 6,
        }
    }

    /// Workgroups over which a skinny matmul is divided, for the tokens of a kernel.
    fn skinny_places(self, dtype: DType, tokens: u32) -> u32 {
        let knob = match tokens {
            0..=16 => Knob::SkinnyGroups16,
            17..=32 => Knob::SkinnyGroups32,
            _ => Knob::SkinnyGroups64,
        };
        let groups = self.tuned(knob, dtype).unwrap_or_else(|| self.skinny_groups(tokens));
        self.compute_units as u32 * groups
    }

    /// Workgroups of any skinny matmul.
    fn most_skinny_places(self) -> u32 {
        self.compute_units as u32 * MAX_GROUPS
    }

    /// Groups of 32 rows in a workgroup of the kernel for this many tokens: each wave has its own,
    /// or all have the same.
    fn skinny_row_groups(self, kernel_tokens: u32) -> u32 {
        if self.matrix_unit == MatrixUnit::Nvidia && kernel_tokens > 32 { WAVES } else { 1 }
    }

    /// Parts of any skinny matmul, of all its groups of 32 rows.
    fn most_parts(self) -> u32 {
        self.compute_units as u32 * MAX_UNIT_PARTS
    }

    /// Floats of the partial sums of any skinny matmul.
    pub(super) fn skinny_partial_floats(self) -> usize {
        (self.most_parts() * ROWS) as usize * FEW_TOKENS
    }

    /// Counters of any skinny matmul.
    pub(super) fn skinny_arrivals(self) -> usize {
        self.most_skinny_places() as usize
    }
}

impl SkinnyParams {
    /// Sets the epilogue, and divides the columns such that the workgroups fill the device. All
    /// projections have the format `dtype`.
    #[must_use]
    pub(crate) fn with_epilogue(
        self,
        epilogue: SkinnyEpilogue,
        dtype: DType,
        device: MatmulDevice,
    ) -> Self {
        let number = match epilogue {
            SkinnyEpilogue::None => 0,
            SkinnyEpilogue::Norm => 1,
            SkinnyEpilogue::Glu => 2,
        };
        let params = Self { epilogue: number, ..self };
        let tokens = Self::kernel_tokens(self.tokens, device);
        let row_groups = device.skinny_row_groups(tokens);
        // The blocks of a part are divided over four waves, or each wave has all of them.
        let min_blocks = if row_groups > 1 { 2 } else { WAVES } * MIN_WAVE_BLOCKS;
        let most = MAX_PARTS.min(self.columns / 32 / min_blocks).max(1);
        let tiles = params.row_tiles(row_groups).max(1);
        let places = device.skinny_places(dtype, tokens);
        let parts = match places / tiles {
            0 | 1 if row_groups > 1 => Self::even_parts(tiles, device.compute_units as u32),
            parts => parts,
        };
        let room = device.most_parts() / (tiles * row_groups);
        let parts = parts.min(room).clamp(1, most);
        let is_few = device.matrix_unit == MatrixUnit::Nvidia && tokens <= MANY_WAVES_TOKENS;
        if is_few && tiles <= device.compute_units as u32 {
            // A workgroup per compute unit adds up in LDS what several would hand over in memory.
            let together = parts.min(MAX_WAVES / WAVES);
            return Self { parts: parts / together, waves: together * WAVES, ..params };
        }
        Self { parts, waves: WAVES, ..params }
    }

    /// The number of parts of `tiles` workgroups for which the compute unit with the most work has
    /// the least. More parts divide it more evenly, but memory hands over their sums.
    fn even_parts(tiles: u32, compute_units: u32) -> u32 {
        // In 60ths of the work of a workgroup with all columns.
        let most_work = |parts: u32| (tiles * parts).div_ceil(compute_units.max(1)) * 60 / parts;
        (1..=4).min_by_key(|parts| most_work(*parts) + 3 * (parts - 1)).unwrap_or(1)
    }

    /// The launch; all projections have the format `dtype`.
    pub(crate) fn launch(&self, dtype: DType, device: MatmulDevice) -> Launch {
        let kernel = match Self::kernel_tokens(self.tokens, device) {
            8 => kernel_name!(dtype, "matmul_skinny8_", "_f16_f32"),
            16 => kernel_name!(dtype, "matmul_skinny16_", "_f16_f32"),
            32 => kernel_name!(dtype, "matmul_skinny32_", "_f16_f32"),
            _ => kernel_name!(dtype, "matmul_skinny64_", "_f16_f32"),
        };
        let groups = device.skinny_row_groups(Self::kernel_tokens(self.tokens, device));
        let grid = [self.row_tiles(groups), self.parts, 1];
        Launch { kernel, grid, block: [32 * self.waves, 1, 1], lds_bytes: 0 }
    }

    /// Tokens of the kernel: the matrix unit has tiles of 8 on NVIDIA, of 16 on AMD.
    fn kernel_tokens(tokens: u32, device: MatmulDevice) -> u32 {
        let smallest = if device.matrix_unit == MatrixUnit::Nvidia { 8 } else { 16 };
        tokens.next_power_of_two().max(smallest)
    }

    /// Workgroups along the rows, with this many groups of 32 rows each.
    fn row_tiles(&self, groups: u32) -> u32 {
        let all: u32 = if self.epilogue == 2 {
            self.projections[0].rows.div_ceil(ROWS / 2)
        } else {
            let projections = &self.projections[..self.num_projections as usize];
            projections.iter().map(|p| p.rows.div_ceil(ROWS)).sum()
        };
        all.div_ceil(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(rows: &[u32], tokens: u32, epilogue: SkinnyEpilogue, arch: &str) -> Launch {
        let device = MatmulDevice::new(132, arch);
        let mut params = SkinnyParams {
            num_projections: rows.len() as u32,
            columns: 4096,
            tokens,
            ..SkinnyParams::default()
        };
        for (projection, rows) in params.projections.iter_mut().zip(rows) {
            projection.rows = *rows;
        }
        let params = params.with_epilogue(epilogue, DType::Q4K, device);
        let row_groups = device.skinny_row_groups(SkinnyParams::kernel_tokens(tokens, device));
        let parts = params.parts * params.row_tiles(row_groups) * row_groups;
        assert!(params.parts == 1 || parts <= device.most_parts());
        params.launch(DType::Q4K, device)
    }

    #[test]
    fn columns_are_divided_until_the_device_is_full() {
        let launch = launched(&[4096], 2, SkinnyEpilogue::None, "sm_90");
        assert_eq!((launch.kernel, launch.grid), ("matmul_skinny8_q4_k_f16_f32", [128, 1, 1]));
        assert_eq!(launch.block, [384, 1, 1]);
        let launch = launched(&[4096, 1024, 1000], 16, SkinnyEpilogue::None, "sm_90");
        assert_eq!((launch.kernel, launch.grid), ("matmul_skinny16_q4_k_f16_f32", [192, 2, 1]));
        let launch = launched(&[64], 33, SkinnyEpilogue::None, "gfx1100");
        assert_eq!((launch.kernel, launch.grid), ("matmul_skinny64_q4_k_f16_f32", [2, 4, 1]));
    }

    #[test]
    fn waves_of_many_tokens_have_rows_of_their_own() {
        let launch = launched(&[4096], 48, SkinnyEpilogue::Norm, "sm_90");
        assert_eq!((launch.kernel, launch.grid), ("matmul_skinny64_q4_k_f16_f32", [32, 8, 1]));
        // Of 172 workgroups on 132 units some units have two; of 516 thirds none has more than
        // four.
        let launch = launched(&[11008, 11008], 64, SkinnyEpilogue::Glu, "sm_90");
        assert_eq!(launch.grid, [172, 3, 1]);
        let launch = launched(&[32000], 64, SkinnyEpilogue::None, "sm_90");
        assert_eq!(launch.grid, [250, 1, 1]);
    }

    #[test]
    fn the_memory_of_parts_holds_every_choice() {
        for knob in [Knob::SkinnyGroups16, Knob::SkinnyGroups32, Knob::SkinnyGroups64] {
            assert!(knob.values().iter().all(|groups| *groups <= MAX_GROUPS));
        }
    }

    #[test]
    fn gate_and_up_share_a_workgroup() {
        let launch = launched(&[11008, 11008], 5, SkinnyEpilogue::Glu, "gfx1201");
        assert_eq!((launch.kernel, launch.grid), ("matmul_skinny16_q4_k_f16_f32", [688, 1, 1]));
    }
}
