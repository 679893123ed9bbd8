//! The launch of matmuls of experts, whose slots are grouped: `kernels/include/rf/matmul_tile.h`
//! and `kernels/include/rf/matmul_half.h`.

use rf_quant::DType;

use super::Launch;
use super::matmul::{ExpertGroups, MatmulDevice, MatmulParams, TileSize};
use super::matmul_half::HalfTile;

/// The tile of a matmul of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertTileSize {
    /// f16 operands.
    Half(HalfTile),
    /// int8 operands, or those of f32.
    Int8(TileSize),
}

impl ExpertTileSize {
    /// Slots of a tile, for weights of a format.
    pub(crate) fn slots(self, dtype: DType) -> u32 {
        match self {
            Self::Half(tile) => tile.tokens(),
            Self::Int8(tile) => tile.extent(dtype.is_float()).1,
        }
    }
}

impl MatmulParams {
    /// A matmul of `experts` experts, whose slots are grouped for this tile.
    pub(crate) fn launch_experts(
        self,
        dtype: DType,
        device: MatmulDevice,
        (experts, tile): (usize, ExpertTileSize),
    ) -> (Self, Launch) {
        let tiles = ExpertGroups::num_tiles(self.tokens as usize, experts, tile.slots(dtype));
        match tile {
            ExpertTileSize::Half(tile) => self.half_experts(dtype, device, tile, tiles as u32),
            ExpertTileSize::Int8(tile) => {
                (self, self.launch_tiles(dtype, device, tile, tiles as u32))
            }
        }
    }

    /// The tile for a matmul of this many experts, by the form of x and the mean number of slots of
    /// an expert.
    pub(crate) fn tile_of_experts(
        &self,
        dtype: DType,
        device: MatmulDevice,
        experts: usize,
    ) -> ExpertTileSize {
        let mean = self.tokens.div_ceil(experts.max(1) as u32);
        if self.x_f16.x != 0 {
            return ExpertTileSize::Half(device.half_tile_of_experts(mean));
        }
        ExpertTileSize::Int8(self.tile(dtype.is_float(), mean, device.compute_units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tile_of_experts_follows_from_their_mean_number_of_slots() {
        let device = MatmulDevice::new(132, "sm_90");
        // 512 tokens, 4 of 32 experts: 64 slots each.
        let mut params = MatmulParams {
            num_projections: 2,
            columns: 4096,
            tokens: 2048,
            ..MatmulParams::default()
        };
        params.projections[0].rows = 2880;
        params.projections[1].rows = 2880;
        let tile = params.tile_of_experts(DType::Mxfp4, device, 32);
        assert_eq!(tile, ExpertTileSize::Int8(TileSize::Middle));
        let (_, launch) = params.launch_experts(DType::Mxfp4, device, (32, tile));
        assert_eq!(launch.kernel, "matmul_middle_mxfp4_q8_f32");
        assert_eq!(launch.grid, [2048 / 64 + 32, 90, 1]);
        let tile = |experts| params.tile_of_experts(DType::Mxfp4, device, experts);
        assert_eq!(tile(8), ExpertTileSize::Int8(TileSize::Wide));
        assert_eq!(tile(512), ExpertTileSize::Int8(TileSize::Narrow));
    }
}
