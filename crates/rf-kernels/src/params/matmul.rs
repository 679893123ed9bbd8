//! Parameters and launches. `kernels/include/rf/params/matmul.h` is generated from the table.

use rf_graph::OperandFormat;
use rf_quant::DType;

use super::table::params;
use super::{Activations, Address, Halves, Launch, Weight};
use crate::tuning::{Knob, Tuning};

params! {
    /// One weight matrix of a matmul.
    struct Projection {
        /// `[rows, columns]`.
        weight: Weight,
        /// `[rows]` or null.
        bias: *const f32,
        /// `[tokens, rows]`.
        out: *mut f32,
        /// Output features.
        rows: u32,
        /// Number of the format: its index in `DType::ALL`.
        format: u32,
        /// Of a matmul with f16 operands: the power of two by which the weights are multiplied
        /// before they become f16.
        half_unit: f32,
        /// Zero.
        reserved: u32,
    }

    /// A tile of a matmul of experts, in device memory: slots of one expert.
    struct ExpertTile {
        /// The expert.
        expert: u32,
        /// Index of its first slot in [`ExpertGroups::slots`].
        first: u32,
        /// Number of slots; 0 for no tile.
        count: u32,
        /// Zero.
        reserved: u32,
    }

    /// The slots of a batch, grouped by expert: slot t · used + s is the s-th expert of token t.
    struct ExpertGroups {
        /// [`ExpertTile`]s: as many as [`Self::num_tiles`].
        tiles: *mut ExpertTile,
        /// `[tokens · used]`, in the order of their experts.
        slots: *mut u32,
    }

    /// `outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual)`, all projections of the same x.
    ///
    /// With groups, the rows of x are slots of a mixture of experts. A projection has the matrices
    /// of all experts one below the other, with `rows` of one expert and a bias `[experts, rows]`.
    /// The groups are those of a tile of the kernel's width. Slot s reads row s / `slots_per_row`
    /// of x and writes row s of out.
    ///
    /// With several parts, workgroup z of a tile of rows sums part z of the columns, and the last
    /// one adds the sums in the order of the parts. There is one tile of tokens then.
    struct MatmulParams {
        /// The first [`num_projections`](Self::num_projections) entries are used.
        projections: [Projection; MAX_PROJECTIONS],
        /// `[tokens, columns]`, for quantised formats.
        x_q8: Activations,
        /// `[tokens, columns]`, for float formats.
        x_f32: *const f32,
        /// `[tokens, rows]` or null; with one projection only, and without groups.
        residual: *const f32,
        /// The groups of a mixture of experts; null without.
        groups: ExpertGroups,
        /// Number of projections, 1 to 3.
        num_projections: u32,
        /// Input features.
        columns: u32,
        /// Rows of the output.
        tokens: u32,
        /// With groups: slots that read one row of x.
        slots_per_row: u32,
        /// `[tiles of rows, parts, sums of a workgroup]`, at most [`MatmulDevice::partial_floats`];
        /// with several parts.
        partials: *mut f32,
        /// `[tiles of rows]`, zero before the first and after every launch: at most
        /// [`MatmulDevice::arrivals`].
        arrivals: *mut u32,
        /// Parts of the columns, from [`divided`](Self::divided): the extent of the grid in z. 0
        /// and 1 are the whole.
        parts: u32,
        /// Workgroups of an f16 matmul, which share all tiles ([`halves`](Self::halves)).
        streams: u32,
        /// `[tokens, columns]`, for f16 matmuls.
        x_f16: Halves,
        /// Tiles of an f16 matmul that each workgroup computes alone; rounds · streams is at most
        /// the number of tiles.
        rounds: u32,
        /// Tiles of an f16 matmul along the tokens, or the most of the groups.
        token_tiles: u32,
        /// `[tokens, rows]` or null: instead of its own output, an f16 matmul writes the gated unit
        /// of projections 0 (gate) and 1 (up), with scale `FIXED_HALF_SCALE`.
        /// [`num_projections`](Self::num_projections) is 1 then.
        glu: Halves,
        /// The activation of the gated unit: `RfActivation`.
        activation: u32,
        /// Workgroups that share the remaining tiles of an f16 matmul after the full rounds.
        sharers: u32,
    }
}

impl ExpertGroups {
    /// Entries of the list of tiles. Expert `e` starts at entry `⌊first slot / tile⌋ + e`.
    pub(crate) fn num_tiles(slots: usize, experts: usize, tile_slots: u32) -> usize {
        slots / tile_slots as usize + experts
    }
}

/// The projections that a launch can have.
pub(crate) const MAX_PROJECTIONS: usize = 4;

/// The device properties that the choice of a tile depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatmulDevice {
    /// Number of compute units.
    pub(crate) compute_units: usize,
    /// The matrix units that the code for the device uses.
    pub(crate) matrix_unit: MatrixUnit,
    /// f16 matmuls use `wgmma`: the code is for `sm_90a`.
    pub(crate) has_wgmma: bool,
    /// The most LDS of a workgroup.
    pub(crate) lds_bytes: u32,
    /// The most tokens of a skinny matmul, at most [`FEW_TOKENS`].
    pub(crate) few_tokens: usize,
    /// Choices that replace those of the formulas.
    pub(crate) tuning: Tuning,
}

/// A kind of matrix unit; all but `None` are `RF_MATRIX_UNIT` of `rf/matmul_tile.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixUnit {
    /// None: dot products of four int8.
    None,
    /// RDNA 3: int8 and f16 at the same speed.
    Rdna3,
    /// RDNA 4: int8 at twice the speed of f16.
    Rdna4,
    /// NVIDIA's `mma`.
    Nvidia,
}

impl MatmulDevice {
    /// A device with this number of compute units and code for an architecture such as `gfx1100` or
    /// `sm_90`, and with the most LDS that devices of its kind have.
    pub(crate) fn new(compute_units: usize, arch: &str) -> Self {
        let matrix_unit = match arch {
            arch if arch.starts_with("gfx11") => MatrixUnit::Rdna3,
            arch if arch.starts_with("gfx12") => MatrixUnit::Rdna4,
            arch if arch.starts_with("sm_") => MatrixUnit::Nvidia,
            _ => MatrixUnit::None,
        };
        let lds_bytes = if matrix_unit == MatrixUnit::Nvidia { 227 << 10 } else { 64 << 10 };
        let has_wgmma = arch == "sm_90a";
        Self {
            compute_units,
            matrix_unit,
            has_wgmma,
            lds_bytes,
            few_tokens: if has_wgmma { WGMMA_FEW_TOKENS } else { FEW_TOKENS },
            tuning: Tuning::default(),
        }
    }

    /// Returns true if a workgroup may have this much dynamic LDS besides a few static values.
    pub(super) fn has_lds(self, dynamic_bytes: u32) -> bool {
        const STATIC_BYTES: u32 = 1024;
        dynamic_bytes == 0 || dynamic_bytes + STATIC_BYTES <= self.lds_bytes
    }

    /// The value of a knob for matrices of a format; `None` where formulas choose.
    pub(crate) fn tuned(self, knob: Knob, dtype: DType) -> Option<u32> {
        self.tuning.get(knob, OperandFormat::Weight(dtype))
    }

    /// Floats of the partial sums of any matmul.
    pub(crate) fn partial_floats(self) -> usize {
        let slim = SLIM.map(|tile| {
            let (rows, tokens) = tile.extent(false);
            self.compute_units * (tile.groups_per_unit() * rows * tokens) as usize
        });
        let skinny = match self.matrix_unit {
            MatrixUnit::None => 0,
            _ => self.skinny_partial_floats(),
        };
        slim.into_iter().max().unwrap_or(0).max(self.half_partial_floats()).max(skinny)
    }

    /// Counters of any matmul: tiles whose columns are divided.
    pub(crate) fn arrivals(self) -> usize {
        let slim = SLIM.map(TileSize::groups_per_unit).into_iter().max().unwrap_or(0);
        let slim = self.compute_units * slim as usize / 2;
        slim.max(self.half_arrivals()).max(self.skinny_arrivals())
    }
}

/// Largest number of tokens of a matmul whose time is that of loading and unpacking its weights.
/// More have tiles.
pub(crate) const FEW_TOKENS: usize = 64;

/// The same where `wgmma` multiplies: unpacked weights go to LDS once for 64 tokens, while a skinny
/// matmul reads the operands of every 16 × 16 products from registers.
const WGMMA_FEW_TOKENS: usize = 32;

/// Tokens of the smallest tile.
pub(crate) const SMALLEST_TILE: u32 = 32;

/// The part of the output that a workgroup computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileSize {
    /// 128 rows by 128 tokens; floats: by 64.
    Wide,
    /// 64 rows by 64 tokens; not for floats.
    Middle,
    /// 32 rows by 32 tokens.
    Narrow,
    /// 64 rows by 64 tokens, with the columns divided over workgroups; not for floats, as below.
    Slim64,
    /// 64 rows by 32 tokens.
    Slim32,
    /// 64 rows by 16 tokens.
    Slim16,
}

/// The tiles for a single tile of tokens.
const SLIM: [TileSize; 3] = [TileSize::Slim16, TileSize::Slim32, TileSize::Slim64];

/// Largest number of parts into which columns are divided.
pub(super) const MAX_PARTS: u32 = 8;

/// Least number of columns of a part: a stage of a workgroup.
const MIN_PART_COLUMNS: u32 = 256;

impl TileSize {
    /// Rows and tokens of a tile, as in `rf/matmul.h` and `rf/matmul_float.h`.
    pub(crate) fn extent(self, float: bool) -> (u32, u32) {
        match self {
            Self::Wide if float => (128, 64),
            Self::Wide => (128, 128),
            Self::Middle | Self::Slim64 => (64, 64),
            Self::Narrow => (32, SMALLEST_TILE),
            Self::Slim32 => (64, 32),
            Self::Slim16 => (64, 16),
        }
    }

    /// Workgroups that a compute unit runs at once, as far as registers and LDS allow. Columns are
    /// divided into as many parts as fill these places.
    fn groups_per_unit(self) -> u32 {
        match self {
            Self::Slim64 | Self::Slim16 => 4,
            Self::Slim32 => 3,
            Self::Wide | Self::Middle | Self::Narrow => 2,
        }
    }

    /// Threads of a workgroup.
    fn threads(self, float: bool, matrix_unit: MatrixUnit) -> u32 {
        let matrix_unit = matrix_unit != MatrixUnit::None;
        match self {
            // Without a matrix unit, a wave has half the sums.
            Self::Wide | Self::Middle if !float && !matrix_unit => 512,
            Self::Slim64 if !matrix_unit => 256,
            Self::Wide | Self::Middle | Self::Narrow => 256,
            Self::Slim64 | Self::Slim32 | Self::Slim16 => 128,
        }
    }
}

/// The kernel for a format and a tile.
fn kernel_of(dtype: DType, tile: TileSize) -> &'static str {
    use TileSize::{Middle, Narrow, Slim16, Slim32, Slim64, Wide};
    match (tile, dtype.is_float()) {
        (Wide, false) => kernel_name!(dtype, "matmul_wide_", "_q8_f32"),
        (Middle, false) => kernel_name!(dtype, "matmul_middle_", "_q8_f32"),
        (Narrow, false) => kernel_name!(dtype, "matmul_narrow_", "_q8_f32"),
        (Slim64, _) => kernel_name!(dtype, "matmul_slim64_", "_q8_f32"),
        (Slim32, _) => kernel_name!(dtype, "matmul_slim32_", "_q8_f32"),
        (Slim16, _) => kernel_name!(dtype, "matmul_slim16_", "_q8_f32"),
        (Wide | Middle, true) => kernel_name!(dtype, "matmul_wide_", "_f32"),
        (Narrow, true) => kernel_name!(dtype, "matmul_narrow_", "_f32"),
    }
}

impl MatmulParams {
    /// The launch; all projections have the format `dtype`.
    pub(crate) fn launch(&self, dtype: DType, device: MatmulDevice) -> Launch {
        let tile = self.tile_of(dtype, device);
        let (_, tokens) = tile.extent(dtype.is_float());
        self.launch_tiles(dtype, device, tile, self.tokens.div_ceil(tokens))
    }

    /// Divides the columns such that the workgroups fill the device, if the kernel can add parts.
    /// `scratch` are the addresses of partial sums and of arrivals. The number of parts depends on
    /// the matrices and the tile, but not on the number of tokens in a tile.
    #[must_use]
    pub(crate) fn divided(
        self,
        dtype: DType,
        device: MatmulDevice,
        scratch: (Address, Address),
    ) -> Self {
        let (tile, float) = (self.tile_of(dtype, device), dtype.is_float());
        if !(SLIM.contains(&tile) || float && tile == TileSize::Narrow) {
            return self;
        }
        let (partials, arrivals) = scratch;
        let places = device.compute_units as u32 * tile.groups_per_unit();
        let (tile_rows, tile_tokens) = tile.extent(float);
        let tiles = (self.tokens.div_ceil(tile_tokens) * self.row_tiles(tile_rows)).max(1);
        let most = MAX_PARTS.min(self.columns / MIN_PART_COLUMNS).max(1);
        Self { partials, arrivals, parts: (places / tiles).clamp(1, most), ..self }
    }

    /// The tile of a matmul without experts.
    fn tile_of(&self, dtype: DType, device: MatmulDevice) -> TileSize {
        match self.tokens {
            _ if dtype.is_float() => self.tile(true, self.tokens, device.compute_units),
            0..=16 => TileSize::Slim16,
            17..=32 => TileSize::Slim32,
            33..=64 => TileSize::Slim64,
            _ => self.tile(false, self.tokens, device.compute_units),
        }
    }

    pub(super) fn launch_tiles(
        &self,
        dtype: DType,
        device: MatmulDevice,
        tile: TileSize,
        token_tiles: u32,
    ) -> Launch {
        let float = dtype.is_float();
        let threads = tile.threads(float, device.matrix_unit);
        let grid = [token_tiles, self.row_tiles(tile.extent(float).0), self.parts.max(1)];
        Launch { kernel: kernel_of(dtype, tile), grid, block: [threads, 1, 1], lds_bytes: 0 }
    }

    /// The largest tile that gives every compute unit a workgroup, for matrices that are multiplied
    /// by `tokens` tokens. Larger tiles read fewer bytes per operation.
    pub(super) fn tile(&self, float: bool, tokens: u32, compute_units: usize) -> TileSize {
        let all: &[_] = if float { &[TileSize::Wide] } else { &[TileSize::Wide, TileSize::Middle] };
        all.iter()
            .copied()
            .find(|tile| {
                let (tile_rows, tile_tokens) = tile.extent(float);
                let tiles = self.tokens.div_ceil(tile_tokens) * self.row_tiles(tile_rows);
                // A tile that is half empty is slower than a smaller one.
                tokens > tile_tokens / 2 && tiles as usize >= compute_units
            })
            .unwrap_or(TileSize::Narrow)
    }

    /// Tiles along the rows of all projections.
    pub(super) fn row_tiles(&self, tile_rows: u32) -> u32 {
        let projections = &self.projections[..self.num_projections as usize];
        projections.iter().map(|p| p.rows.div_ceil(tile_rows)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: MatmulDevice = MatmulDevice {
        compute_units: 132,
        matrix_unit: MatrixUnit::Nvidia,
        has_wgmma: false,
        lds_bytes: 227 << 10,
        few_tokens: FEW_TOKENS,
        tuning: Tuning::NONE,
    };

    fn params(rows: &[u32], tokens: u32) -> MatmulParams {
        let mut params = MatmulParams {
            num_projections: rows.len() as u32,
            columns: 4096,
            tokens,
            ..MatmulParams::default()
        };
        for (projection, rows) in params.projections.iter_mut().zip(rows) {
            projection.rows = *rows;
        }
        params
    }

    #[test]
    fn the_tile_is_the_largest_that_fills_the_device() {
        let wide = params(&[11008, 11008], 512).launch(DType::Q4K, H200);
        assert_eq!((wide.kernel, wide.grid), ("matmul_wide_q4_k_q8_f32", [4, 172, 1]));
        let middle = params(&[4096], 300).launch(DType::Q4_0, H200);
        assert_eq!((middle.kernel, middle.grid), ("matmul_middle_q4_0_q8_f32", [5, 64, 1]));
        let narrow = params(&[1024, 1000], 70).launch(DType::Mxfp4, H200);
        assert_eq!((narrow.kernel, narrow.grid), ("matmul_narrow_mxfp4_q8_f32", [3, 64, 1]));
    }

    #[test]
    fn up_to_64_tokens_are_one_tile_with_divided_columns() {
        let launch = |rows: &[u32], tokens| {
            let params = params(rows, tokens).divided(DType::Q4K, H200, (1, 2));
            let Launch { kernel, grid, block, .. } = params.launch(DType::Q4K, H200);
            (kernel, grid, block[0])
        };
        let slim16 = "matmul_slim16_q4_k_q8_f32";
        assert_eq!(launch(&[4096], 9), (slim16, [1, 64, 8], 128));
        assert_eq!(launch(&[4096, 1024, 1000], 16), (slim16, [1, 96, 5], 128));
        assert_eq!(launch(&[11008], 17), ("matmul_slim32_q4_k_q8_f32", [1, 172, 2], 128));
        assert_eq!(launch(&[11008, 11008], 64), ("matmul_slim64_q4_k_q8_f32", [1, 344, 1], 128));
        // A part has at least one stage.
        let few = MatmulParams { columns: 768, ..params(&[64], 16) };
        assert_eq!(few.divided(DType::Q4K, H200, (1, 2)).parts, 3);
    }

    #[test]
    fn parts_fit_in_their_memory() {
        for (rows, tokens) in [(64, 64), (8192, 64), (16960, 64), (16896, 32), (29568, 16)] {
            let params = params(&[rows], tokens).divided(DType::Q4K, H200, (1, 2));
            let tiles = rows.div_ceil(64);
            let floats = tiles * params.parts * 64 * tokens;
            if params.parts > 1 {
                assert!(floats as usize <= H200.partial_floats(), "{rows} x {tokens}");
                assert!(tiles as usize <= H200.arrivals(), "{rows} x {tokens}");
            }
        }
    }

    #[test]
    fn floats_have_two_tiles() {
        let wide = params(&[4096], 512).launch(DType::F16, H200);
        assert_eq!((wide.kernel, wide.grid), ("matmul_wide_f16_f32", [8, 32, 1]));
        let narrow = params(&[37], 512).launch(DType::F32, H200);
        assert_eq!((narrow.kernel, narrow.grid), ("matmul_narrow_f32_f32", [16, 2, 1]));
    }

    #[test]
    fn dot_products_need_more_waves() {
        let device = MatmulDevice::new(40, "gfx1030");
        assert_eq!(params(&[8192], 512).launch(DType::Q8_0, device).block, [512, 1, 1]);
        assert_eq!(params(&[64], 64).launch(DType::Q8_0, device).block, [256, 1, 1]);
        assert_eq!(params(&[64], 32).launch(DType::Q8_0, device).block, [128, 1, 1]);
        assert_eq!(params(&[8192], 512).launch(DType::F16, device).block, [256, 1, 1]);
        let unit = |arch| MatmulDevice::new(48, arch).matrix_unit;
        assert_eq!(unit("gfx1100"), MatrixUnit::Rdna3);
        assert_eq!((unit("gfx1030"), unit("gfx90a")), (MatrixUnit::None, MatrixUnit::None));
    }
}
