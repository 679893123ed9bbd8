//! Twin of `kernels/include/rf/params/matmul.h`.

use bytemuck::{Pod, Zeroable};

use rf_quant::DType;

use super::{Activations, Address, Launch, Weight};

/// One weight matrix of a matmul.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Projection {
    /// `[rows, columns]`.
    pub weight: Weight,
    /// `[rows]` f32 or null.
    pub bias: Address,
    /// `[tokens, rows]` f32.
    pub out: Address,
    /// Output features.
    pub rows: u32,
    /// Index of the format in `DType::ALL`.
    pub format: u32,
}

/// A tile of a matmul of experts, in device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ExpertTile {
    /// The expert.
    pub expert: u32,
    /// Index of its first slot in the list of slots.
    pub first: u32,
    /// Number of slots; 0 for no tile.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

/// The slots of a batch, grouped by expert.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ExpertGroups {
    /// [`ExpertTile`]s: as many as [`Self::num_tiles`].
    pub tiles: Address,
    /// `[tokens · used]` u32.
    pub slots: Address,
}

impl ExpertGroups {
    /// Entries of the list of tiles. Expert `e` starts at entry `⌊first slot / tile⌋ + e`.
    pub fn num_tiles(slots: usize, experts: usize, tile_slots: u32) -> usize {
        slots / tile_slots as usize + experts
    }
}

/// `outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual)`. With groups, the rows of x are slots of a mixture of
/// experts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MatmulParams {
    /// The first [`num_projections`](Self::num_projections) entries are used.
    pub projections: [Projection; 3],
    /// `[tokens, columns]`, for quantised formats.
    pub x_q8: Activations,
    /// `[tokens, columns]`, for float formats.
    pub x_f32: Address,
    /// `[tokens, rows]` or null; with one projection only, and without groups.
    pub residual: Address,
    /// The groups of a mixture of experts; null without. A projection then has the matrices of all
    /// experts one below the other, with `rows` of one expert and a bias `[experts, rows]`.
    pub groups: ExpertGroups,
    /// Number of projections, 1 to 3.
    pub num_projections: u32,
    /// Input features.
    pub columns: u32,
    /// Rows of the output.
    pub tokens: u32,
    /// With groups: slots that read one row of x.
    pub slots_per_row: u32,
}

/// The device properties that the choice of a tile depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulDevice {
    /// Number of compute units.
    pub compute_units: usize,
    /// True if the code for the device uses matrix units: `RF_MATRIX_UNIT` of `rf/matmul_tile.h`.
    pub matrix_unit: bool,
}

impl MatmulDevice {
    /// A device with this number of compute units and an architecture such as `gfx1100` or `sm_90`.
    pub fn new(compute_units: usize, arch: &str) -> Self {
        let matrix_unit = ["gfx11", "gfx12", "sm_"].iter().any(|family| arch.starts_with(family));
        Self { compute_units, matrix_unit }
    }
}

/// Tokens of the smallest tile.
pub const SMALLEST_TILE: u32 = 32;

/// The part of the output that a workgroup computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileSize {
    /// 128 rows by 128 tokens; floats: by 64.
    Wide,
    /// 64 rows by 64 tokens; not for floats.
    Middle,
    /// 32 rows by 32 tokens.
    Narrow,
}

impl TileSize {
    /// Rows and tokens of a tile, as in `rf/matmul.h` and `rf/matmul_float.h`.
    pub fn extent(self, float: bool) -> (u32, u32) {
        match self {
            Self::Wide if float => (128, 64),
            Self::Wide => (128, 128),
            Self::Middle => (64, 64),
            Self::Narrow => (32, SMALLEST_TILE),
        }
    }
}

/// The kernel for a format and a tile.
fn kernel_of(dtype: DType, tile: TileSize) -> &'static str {
    use TileSize::{Middle, Narrow, Wide};
    match (tile, dtype.is_float()) {
        (Wide, false) => kernel_name!(dtype, "matmul_wide_", "_q8_f32"),
        (Middle, false) => kernel_name!(dtype, "matmul_middle_", "_q8_f32"),
        (Narrow, false) => kernel_name!(dtype, "matmul_narrow_", "_q8_f32"),
        (Wide | Middle, true) => kernel_name!(dtype, "matmul_wide_", "_f32"),
        (Narrow, true) => kernel_name!(dtype, "matmul_narrow_", "_f32"),
    }
}

impl MatmulParams {
    /// The launch; all projections have the format `dtype`.
    pub fn launch(&self, dtype: DType, device: MatmulDevice) -> Launch {
        let tile = self.tile(dtype.is_float(), self.tokens, device.compute_units);
        let (_, tokens) = tile.extent(dtype.is_float());
        self.launch_tiles(dtype, device, tile, self.tokens.div_ceil(tokens))
    }

    /// The launch of a matmul of `experts` experts, whose slots are grouped for this tile.
    pub fn launch_experts(
        &self,
        dtype: DType,
        device: MatmulDevice,
        (experts, tile): (usize, TileSize),
    ) -> Launch {
        let (_, tokens) = tile.extent(dtype.is_float());
        let tiles = ExpertGroups::num_tiles(self.tokens as usize, experts, tokens);
        self.launch_tiles(dtype, device, tile, tiles as u32)
    }

    /// The tile for a matmul of this many experts, by the mean number of slots of an expert.
    pub fn tile_of_experts(&self, dtype: DType, device: MatmulDevice, experts: usize) -> TileSize {
        let mean = self.tokens.div_ceil(experts.max(1) as u32);
        self.tile(dtype.is_float(), mean, device.compute_units)
    }

    fn launch_tiles(
        &self,
        dtype: DType,
        device: MatmulDevice,
        tile: TileSize,
        token_tiles: u32,
    ) -> Launch {
        let float = dtype.is_float();
        // Without a matrix unit, wide and middle tiles need twice the waves.
        let few_waves = float || device.matrix_unit || tile == TileSize::Narrow;
        let threads = if few_waves { 256 } else { 512 };
        let grid = [token_tiles, self.row_tiles(tile.extent(float).0), 1];
        Launch { kernel: kernel_of(dtype, tile), grid, block: [threads, 1, 1], lds_bytes: 0 }
    }

    /// The largest tile that gives every compute unit a workgroup, for matrices that are multiplied
    /// by `tokens` tokens. Larger tiles read fewer bytes per operation.
    fn tile(&self, float: bool, tokens: u32, compute_units: usize) -> TileSize {
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
    fn row_tiles(&self, tile_rows: u32) -> u32 {
        let projections = &self.projections[..self.num_projections as usize];
        projections.iter().map(|p| p.rows.div_ceil(tile_rows)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: MatmulDevice = MatmulDevice { compute_units: 132, matrix_unit: true };

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
        let narrow = params(&[4096, 1024, 1000], 20).launch(DType::Mxfp4, H200);
        assert_eq!((narrow.kernel, narrow.grid), ("matmul_narrow_mxfp4_q8_f32", [1, 192, 1]));
    }

    #[test]
    fn the_tile_of_experts_follows_from_their_mean_number_of_slots() {
        // 512 tokens, 4 of 32 experts: 64 slots each.
        let params = params(&[2880, 2880], 2048);
        let tile = params.tile_of_experts(DType::Mxfp4, H200, 32);
        assert_eq!(tile, TileSize::Middle);
        let launch = params.launch_experts(DType::Mxfp4, H200, (32, tile));
        assert_eq!(launch.kernel, "matmul_middle_mxfp4_q8_f32");
        assert_eq!(launch.grid, [2048 / 64 + 32, 90, 1]);
        assert_eq!(params.tile_of_experts(DType::Mxfp4, H200, 8), TileSize::Wide);
        assert_eq!(params.tile_of_experts(DType::Mxfp4, H200, 512), TileSize::Narrow);
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
        assert_eq!(params(&[64], 32).launch(DType::Q8_0, device).block, [256, 1, 1]);
        assert_eq!(params(&[8192], 512).launch(DType::F16, device).block, [256, 1, 1]);
        assert!(MatmulDevice::new(48, "gfx1100").matrix_unit);
    }
}
