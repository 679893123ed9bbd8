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

/// `outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MatmulParams {
    /// The first [`num_projections`](Self::num_projections) entries are used.
    pub projections: [Projection; 3],
    /// `[tokens, columns]`, for quantised formats.
    pub x_q8: Activations,
    /// `[tokens, columns]`, for float formats.
    pub x_f32: Address,
    /// `[tokens, rows]` or null; with one projection only.
    pub residual: Address,
    /// Number of projections, 1 to 3.
    pub num_projections: u32,
    /// Input features.
    pub columns: u32,
    /// Rows of x.
    pub tokens: u32,
    /// Zero.
    pub reserved: u32,
}

/// The device properties that the choice of a tile depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulDevice {
    /// Number of compute units.
    pub compute_units: usize,
    /// Whether the code for the device uses matrix units: `RF_MATRIX_UNIT` of `rf/matmul_tile.h`.
    pub matrix_unit: bool,
}

impl MatmulDevice {
    /// A device with this number of compute units and an architecture such as `gfx1100` or `sm_90`.
    pub fn new(compute_units: usize, arch: &str) -> Self {
        let matrix_unit = ["gfx11", "gfx12", "sm_"].iter().any(|family| arch.starts_with(family));
        Self { compute_units, matrix_unit }
    }
}

/// The part of the output that a workgroup computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tile {
    Wide,
    Middle,
    Narrow,
}

impl Tile {
    /// Rows and tokens of a tile, as in `rf/matmul.h` and `rf/matmul_float.h`.
    fn extent(self, float: bool) -> (u32, u32) {
        match self {
            Self::Wide if float => (128, 64),
            Self::Wide => (128, 128),
            Self::Middle => (64, 64),
            Self::Narrow => (32, 32),
        }
    }
}

/// The kernel for a format and a tile.
fn kernel_of(dtype: DType, tile: Tile) -> &'static str {
    match (tile, dtype.is_float()) {
        (Tile::Wide, false) => kernel_name!(dtype, "matmul_wide_", "_q8_f32"),
        (Tile::Middle, false) => kernel_name!(dtype, "matmul_middle_", "_q8_f32"),
        (Tile::Narrow, false) => kernel_name!(dtype, "matmul_narrow_", "_q8_f32"),
        (Tile::Wide | Tile::Middle, true) => kernel_name!(dtype, "matmul_wide_", "_f32"),
        (Tile::Narrow, true) => kernel_name!(dtype, "matmul_narrow_", "_f32"),
    }
}

impl MatmulParams {
    /// The launch; all projections have the format `dtype`.
    pub fn launch(&self, dtype: DType, device: MatmulDevice) -> Launch {
        let float = dtype.is_float();
        let tile = self.tile(float, device.compute_units);
        let kernel = kernel_of(dtype, tile);
        // Without a matrix unit, wide and middle tiles need twice the waves.
        let threads = if float || device.matrix_unit || tile == Tile::Narrow { 256 } else { 512 };
        let [tokens, rows] = self.groups(tile.extent(float));
        Launch { kernel, grid: [tokens, rows, 1], block: [threads, 1, 1], lds_bytes: 0 }
    }

    /// The largest tile that gives every compute unit a workgroup. Larger tiles read fewer bytes
    /// per operation.
    fn tile(&self, float: bool, compute_units: usize) -> Tile {
        let all: &[Tile] = if float { &[Tile::Wide] } else { &[Tile::Wide, Tile::Middle] };
        all.iter()
            .copied()
            .find(|tile| {
                let (rows, tokens) = tile.extent(float);
                let [token_tiles, row_tiles] = self.groups((rows, tokens));
                // A tile that is half empty is slower than a smaller one.
                self.tokens > tokens / 2 && (token_tiles * row_tiles) as usize >= compute_units
            })
            .unwrap_or(Tile::Narrow)
    }

    /// Workgroups along the tokens and along the rows of all projections.
    fn groups(&self, (rows, tokens): (u32, u32)) -> [u32; 2] {
        let projections = &self.projections[..self.num_projections as usize];
        [self.tokens.div_ceil(tokens), projections.iter().map(|p| p.rows.div_ceil(rows)).sum()]
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
