//! The launch of f16 matmuls: `kernels/include/rf/matmul_half.h`.

use rf_quant::{DType, Family};

use super::matmul::MAX_PARTS;
use super::{Address, Launch, MatmulDevice, MatmulParams, MatrixUnit};
use crate::tuning::Knob;

/// Least number of columns of a wide tile on NVIDIA. It has a multiprocessor for itself, so that no
/// other workgroup computes while it starts and ends.
const MIN_WIDE_COLUMNS: u32 = 2048;

/// Mean numbers of slots of an expert above which tiles of the experts are larger.
const MIN_MIDDLE_SLOTS: u32 = 192;
const MIN_WIDE_SLOTS: u32 = 512;

/// Mean number of slots of an expert up to which tiles of f16 would be at most half full: int8 has
/// smaller ones.
const MAX_INT8_SLOTS: usize = HalfTile::Middle.tokens() as usize / 2;

/// A tile of 128 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfTile {
    /// Tiles of 256 tokens.
    Wide,
    /// Tiles of 128 tokens.
    Middle,
    /// Tiles of 64 tokens, for `wgmma`.
    Narrow,
}

impl HalfTile {
    const ALL: [Self; 3] = [Self::Wide, Self::Middle, Self::Narrow];
    const ROWS: u32 = 128;
    const STAGE_COLUMNS: u32 = 64;

    pub(super) const fn tokens(self) -> u32 {
        match self {
            Self::Wide => 256,
            Self::Middle => 128,
            Self::Narrow => 64,
        }
    }

    /// The tile by this many tokens.
    fn of(tokens: u32) -> Self {
        if tokens > Self::Middle.tokens() { Self::Wide } else { Self::Middle }
    }

    /// Threads of a workgroup. Four more waves copy the operands, if they are `copied`.
    fn threads(self, device: MatmulDevice, copied: bool) -> u32 {
        match (self, device.matrix_unit) {
            _ if copied => 256 + 128,
            (Self::Middle, MatrixUnit::Nvidia) if !device.has_wgmma => 128,
            _ => 256,
        }
    }

    /// Workgroups that a compute unit runs at once, as far as registers and LDS allow. A compute
    /// unit of AMD is a workgroup processor here.
    fn groups_per_unit(self, device: MatmulDevice) -> u32 {
        match (self, device.matrix_unit) {
            (Self::Wide, MatrixUnit::Nvidia) => 1,
            (Self::Middle, unit) if unit != MatrixUnit::Nvidia => 3,
            _ => 2,
        }
    }

    /// LDS that the launch adds: two stages of weights and three of tokens, in rows of 72 f16. For
    /// `wgmma` three stages of weights and three or four of tokens, in rows of 64 f16, and space
    /// for an alignment of 1024; where operands are `copied`, as many stages of weights as of
    /// tokens, and barriers. On AMD the kernel has its LDS.
    fn dynamic_lds_bytes(self, device: MatmulDevice, copied: bool) -> u32 {
        match device.matrix_unit {
            MatrixUnit::Nvidia if device.has_wgmma => {
                let token_stages = if self == Self::Middle { 3 } else { 4 };
                let (row_stages, barriers) = if copied { (token_stages, 64) } else { (3, 0) };
                2 * 64 * (row_stages * Self::ROWS + token_stages * self.tokens()) + barriers + 1024
            }
            MatrixUnit::Nvidia => 2 * 72 * (2 * Self::ROWS + 3 * self.tokens()),
            _ => 0,
        }
    }
}

impl MatmulDevice {
    /// Returns true if matmuls of more than [`few_tokens`](Self::few_tokens) tokens with weights of
    /// this format have f16 operands.
    ///
    /// On RDNA 4 int8 is faster where unpacking to f16 and to int8 take about as long: a
    /// multiplication of 16 × 16 × 16 takes 16 cycles in f16 and 8 in int8, and int8 needs about 8
    /// vector instructions more for scales of 32 columns, 11 or more with minima or scales of 16.
    pub(crate) fn halves(self, dtype: DType, columns: usize) -> bool {
        let is_half = match (dtype.family(), self.tuned(Knob::PrefillBits, dtype)) {
            (Family::Float, _) => dtype != DType::F32 && columns.is_multiple_of(32),
            (_, Some(bits)) => bits == 16,
            (Family::Block32, None) => self.matrix_unit != MatrixUnit::Rdna4,
            (_, None) => true,
        };
        self.matrix_unit != MatrixUnit::None && is_half
    }

    /// The most rows of which experts are multiplied in int8, where
    /// [`halves`](Self::halves) says that they have f16 operands, too. Each row has
    /// `slots_per_token` of the experts.
    pub(crate) fn int8_expert_tokens(self, experts: usize, slots_per_token: usize) -> usize {
        if self.has_wgmma {
            return self.few_tokens;
        }
        self.few_tokens.max(MAX_INT8_SLOTS * experts / slots_per_token.max(1))
    }

    /// The f16 tile for a matmul of experts with this many slots on average.
    pub(super) fn half_tile_of_experts(self, mean_slots: u32) -> HalfTile {
        let wide = HalfTile::Wide;
        if self.has_wgmma && mean_slots <= MIN_MIDDLE_SLOTS {
            return HalfTile::Narrow;
        }
        // With `wgmma` a wide tile has a multiprocessor for itself, which idles while it starts and
        // ends.
        let is_wide = !self.has_wgmma && mean_slots > MIN_WIDE_SLOTS;
        if is_wide && self.has_lds(wide.dynamic_lds_bytes(self, false)) {
            return wide;
        }
        HalfTile::Middle
    }

    /// Workgroups of an f16 matmul: as many as the device runs at once.
    fn streams(self, tile: HalfTile) -> u32 {
        self.compute_units as u32 * tile.groups_per_unit(self)
    }

    /// Floats of the partial sums of any f16 matmul: for each workgroup those of a tile that it
    /// begins and of one that it ends.
    pub(super) fn half_partial_floats(self) -> usize {
        if self.matrix_unit == MatrixUnit::None {
            return 0;
        }
        let floats = |tile: HalfTile| 2 * self.streams(tile) * HalfTile::ROWS * tile.tokens();
        HalfTile::ALL.map(floats).into_iter().max().unwrap_or(0) as usize
    }

    /// Counters of any f16 matmul: one for each workgroup, for the tile that it begins.
    pub(super) fn half_arrivals(self) -> usize {
        HalfTile::ALL.map(|tile| self.streams(tile)).into_iter().max().unwrap_or(0) as usize
    }
}

impl MatmulParams {
    /// An f16 matmul of more than [`few_tokens`](MatmulDevice::few_tokens) tokens; all projections
    /// have the format `dtype`. `scratch` are the addresses of partial sums and of arrivals.
    ///
    /// Every workgroup computes the same number of whole tiles, and some or all of them share those
    /// that are left.
    pub(crate) fn halves(
        self,
        dtype: DType,
        device: MatmulDevice,
        scratch: (Address, Address),
    ) -> (Self, Launch) {
        let tile = self.half_tile(dtype, device);
        let token_tiles = self.tokens.div_ceil(tile.tokens());
        let tiles = token_tiles * self.half_row_tiles();
        let places = device.streams(tile).max(1);
        let rounds = tiles / places;
        let (streams, sharers) = if rounds == 0 {
            let streams = self.streams_of_parts(tiles, places);
            (streams, streams)
        } else {
            (places, self.sharers(tiles % places, device, places))
        };
        let (partials, arrivals) = scratch;
        let launch = self.half_launch(dtype, device, tile, [streams, 1, 1]);
        let x_f16 = self.x_f16.untagged();
        (Self { partials, arrivals, streams, x_f16, rounds, token_tiles, sharers, ..self }, launch)
    }

    /// An f16 matmul of experts with up to `token_tiles` tiles of slots. Each workgroup computes
    /// one tile.
    pub(super) fn half_experts(
        self,
        dtype: DType,
        device: MatmulDevice,
        tile: HalfTile,
        token_tiles: u32,
    ) -> (Self, Launch) {
        let row_tiles = self.half_row_tiles();
        let launch = self.half_launch(dtype, device, tile, [row_tiles, token_tiles, 1]);
        let (x_f16, streams) = (self.x_f16.untagged(), row_tiles * token_tiles);
        (Self { x_f16, streams, token_tiles, rounds: 1, sharers: 1, ..self }, launch)
    }

    fn half_launch(
        &self,
        dtype: DType,
        device: MatmulDevice,
        tile: HalfTile,
        grid: [u32; 3],
    ) -> Launch {
        let natural = self.x_f16.is_natural();
        let copied = natural && tile == HalfTile::Wide;
        let kernel = match (tile, natural) {
            (HalfTile::Wide, false) => kernel_name!(dtype, "matmul_wide_", "_f16_f32"),
            (HalfTile::Middle, false) => kernel_name!(dtype, "matmul_middle_", "_f16_f32"),
            (HalfTile::Narrow, false) => kernel_name!(dtype, "matmul_narrow_", "_f16_f32"),
            (HalfTile::Wide, true) => "matmul_wide_f16_natural_f16_f32",
            (HalfTile::Middle, true) => "matmul_middle_f16_natural_f16_f32",
            (HalfTile::Narrow, true) => "matmul_narrow_f16_natural_f16_f32",
        };
        Launch {
            kernel,
            grid,
            block: [tile.threads(device, copied), 1, 1],
            lds_bytes: tile.dynamic_lds_bytes(device, copied),
        }
    }
}

impl MatmulParams {
    /// Tiles along the rows. Gate and up of a gated unit share one.
    fn half_row_tiles(&self) -> u32 {
        self.row_tiles(if self.glu.x == 0 { HalfTile::ROWS } else { HalfTile::ROWS / 2 })
    }

    /// The tile: narrow ones for few tokens if there are any, wide ones for many, on NVIDIA where
    /// they are long and halves of them keep nine tenths of the multiprocessors busy.
    fn half_tile(&self, dtype: DType, device: MatmulDevice) -> HalfTile {
        if device.has_wgmma && self.tokens <= HalfTile::Narrow.tokens() {
            return HalfTile::Narrow;
        }
        let wide = HalfTile::Wide;
        let fits = device.has_lds(wide.dynamic_lds_bytes(device, self.x_f16.is_natural()));
        if self.tokens <= HalfTile::Middle.tokens() || !fits {
            return HalfTile::Middle;
        }
        if let Some(tokens) = device.tuned(Knob::PrefillTile, dtype) {
            return HalfTile::of(tokens);
        }
        let tiles = self.tokens.div_ceil(wide.tokens()) * self.half_row_tiles();
        let is_long = self.columns >= MIN_WIDE_COLUMNS && 20 * tiles >= 9 * device.streams(wide);
        if device.matrix_unit != MatrixUnit::Nvidia || is_long { wide } else { HalfTile::Middle }
    }

    /// Workgroups that share the last tiles, fewer than `places`: all, or with `wgmma` as many as
    /// have a tile or an equal part of one each, if that takes less time. Where all share them,
    /// most have parts of two tiles.
    fn sharers(&self, tiles: u32, device: MatmulDevice, places: u32) -> u32 {
        if !device.has_wgmma || tiles == 0 {
            return places;
        }
        let stages = self.columns.div_ceil(HalfTile::STAGE_COLUMNS);
        let most = (stages / MIN_PART_STAGES).clamp(1, MAX_PARTS).min(places / tiles);
        let further_parts = (places / tiles).saturating_sub(1) * PART_STAGES;
        let of_all = (tiles * stages / places + 2 * JOIN_STAGES + further_parts, places);
        let equal = (1..=most).filter(|parts| stages.is_multiple_of(*parts)).map(|parts| {
            let join = if parts == 1 { 0 } else { JOIN_STAGES + (parts - 2) * PART_STAGES };
            (stages / parts + join, parts * tiles)
        });
        equal.fold(of_all, Ord::min).1
    }

    /// Workgroups for less than one tile each. A tile is divided into few parts, since the last
    /// workgroup to finish adds them all. Equal parts of whole stages are preferred where they keep
    /// nine tenths of the places busy: no workgroup has parts of two tiles then.
    fn streams_of_parts(&self, tiles: u32, places: u32) -> u32 {
        let stages = self.columns.div_ceil(HalfTile::STAGE_COLUMNS);
        let most = (stages / MIN_PART_STAGES).clamp(1, MAX_PARTS);
        let mut equal = (1..=most).filter(|parts| stages.is_multiple_of(*parts)).map(|n| n * tiles);
        let is_full = |streams: &u32| *streams <= places && 10 * streams >= 9 * places;
        equal.find(is_full).unwrap_or(places.min(most * tiles))
    }
}

/// Stages of `wgmma` that take as long as it takes to pass the sums of a part on and to add two
/// parts, and as long as each further part takes. Estimates from the cycles of matmuls on an H200,
/// before two halves exchanged their sums.
const JOIN_STAGES: u32 = 14;
const PART_STAGES: u32 = 3;

/// Fewest stages of a part: fewer take less time than the addition of the parts.
const MIN_PART_STAGES: u32 = 4;

#[cfg(test)]
mod tests {
    use rf_graph::OperandFormat;

    use super::*;
    use crate::params::{Halves, Projection};

    fn params(rows: u32, tokens: u32) -> MatmulParams {
        let mut params =
            MatmulParams { num_projections: 1, columns: 4096, tokens, ..MatmulParams::default() };
        params.projections[0] = Projection { rows, ..Projection::default() };
        params
    }

    fn launched(rows: u32, tokens: u32, arch: &str) -> (MatmulParams, Launch) {
        params(rows, tokens).halves(DType::Q4K, MatmulDevice::new(132, arch), (1, 2))
    }

    #[test]
    fn wide_tiles_need_their_lds() {
        let mut device = MatmulDevice::new(132, "sm_90");
        let params = params(12288, 512);
        assert_eq!(params.half_tile(DType::Q4K, device), HalfTile::Wide);
        // As on consumer cards.
        device.lds_bytes = 99 << 10;
        assert!(device.tuning.set(Knob::PrefillTile, OperandFormat::Weight(DType::Q4K), Some(256)));
        let (_, launch) = params.halves(DType::Q4K, device, (1, 2));
        assert_eq!(launch.kernel, "matmul_middle_q4_k_f16_f32");
        assert!(launch.lds_bytes <= device.lds_bytes);
    }

    #[test]
    fn gate_and_up_have_as_many_tiles_in_one_as_apart() {
        let mut apart = params(11008, 512);
        apart.projections[1] = apart.projections[0];
        let gated = MatmulParams { glu: Halves { x: 1, scale: 2 }, ..apart };
        let apart = MatmulParams { num_projections: 2, ..apart };
        for arch in ["sm_90a", "gfx1100"] {
            let shares = |params: MatmulParams| {
                let (params, launch) =
                    params.halves(DType::Q4K, MatmulDevice::new(132, arch), (1, 2));
                (params.streams, params.rounds, params.token_tiles, launch)
            };
            assert_eq!(shares(gated), shares(apart), "{arch}");
        }
    }

    #[test]
    fn workgroups_share_the_tiles_that_are_left() {
        let (params, launch) = launched(12288, 512, "sm_90");
        assert_eq!(launch.kernel, "matmul_wide_q4_k_f16_f32");
        assert_eq!((launch.grid, launch.block), ([132, 1, 1], [256, 1, 1]));
        // 192 tiles: one for each workgroup, and 60 for all.
        assert_eq!((params.streams, params.rounds, params.token_tiles), (132, 1, 2));
        let (params, launch) = launched(12288, 512, "gfx1100");
        assert_eq!((launch.kernel, launch.lds_bytes), ("matmul_wide_q4_k_f16_f32", 0));
        assert_eq!((params.streams, params.rounds, params.token_tiles), (264, 0, 2));
    }

    #[test]
    fn few_workgroups_share_tiles_where_parts_would_cost_more() {
        for (rows, tokens, sharers) in [
            // 60 tiles are left: two parts each. 116: a tile each. 4: four parts each.
            (12288, 512, 120),
            (4096, 4096, 116),
            (17408, 256, 4 * 4),
        ] {
            let (params, _) = launched(rows, tokens, "sm_90a");
            assert_eq!(params.sharers, sharers, "{rows} × {tokens}");
            let (params, _) = launched(rows, tokens, "sm_90");
            assert_eq!(params.sharers, params.streams, "{rows} × {tokens}");
        }
    }

    #[test]
    fn operands_of_wgmma_fit() {
        let natural = Halves { x: 16, scale: 32 }.natural();
        for (tokens, x_f16, tile, threads, most) in [
            (512, Halves::default(), "wide_q4_k", 256, 1),
            (100, Halves::default(), "middle_q4_k", 256, 2),
            (64, Halves::default(), "narrow_q4_k", 256, 2),
            (512, natural, "wide_f16_natural", 384, 1),
            (100, natural, "middle_f16_natural", 256, 2),
            (64, natural, "narrow_f16_natural", 256, 2),
        ] {
            let params = MatmulParams { x_f16, ..params(12288, tokens) };
            let (params, launch) =
                params.halves(DType::Q4K, MatmulDevice::new(132, "sm_90a"), (1, 2));
            assert_eq!(launch.kernel, format!("matmul_{tile}_f16_f32"));
            assert_eq!(launch.block, [threads, 1, 1]);
            // 1 KiB of a workgroup is the driver's.
            assert!(most * (launch.lds_bytes + 2048) <= 228 << 10, "{}", launch.lds_bytes);
            assert_eq!(params.x_f16.x % 16, 0);
        }
    }

    #[test]
    fn experts_have_a_workgroup_per_tile() {
        let launched = |arch, experts| {
            let params = MatmulParams {
                x_f16: Halves { x: 16, scale: 32 },
                glu: Halves { x: 48, scale: 64 },
                ..params(768, 4096)
            };
            let device = MatmulDevice::new(132, arch);
            let tile = params.tile_of_experts(DType::Q4K, device, experts);
            let (params, launch) = params.launch_experts(DType::Q4K, device, (experts, tile));
            assert_eq!(params.streams, launch.grid[0] * launch.grid[1]);
            assert_eq!((params.rounds, params.token_tiles), (1, launch.grid[1]));
            (launch.kernel, launch.grid)
        };
        // A tile has 64 rows of the gated unit; 32, 256 and 1024 slots per expert.
        let narrow = "matmul_narrow_q4_k_f16_f32";
        let middle = "matmul_middle_q4_k_f16_f32";
        assert_eq!(launched("sm_90a", 128), (narrow, [12, 4096 / 64 + 128, 1]));
        assert_eq!(launched("sm_90a", 16), (middle, [12, 4096 / 128 + 16, 1]));
        assert_eq!(launched("gfx1100", 16), (middle, [12, 4096 / 128 + 16, 1]));
        let wide = "matmul_wide_q4_k_f16_f32";
        assert_eq!(launched("gfx1100", 4), (wide, [12, 4096 / 256 + 4, 1]));
        assert_eq!(launched("sm_90a", 4), (middle, [12, 4096 / 128 + 4, 1]));
    }

    #[test]
    fn experts_read_int8_where_tiles_of_f16_would_be_half_empty() {
        let most =
            |arch, experts, slots| MatmulDevice::new(132, arch).int8_expert_tokens(experts, slots);
        assert_eq!(most("sm_90a", 128, 8), 32);
        assert_eq!(most("gfx1100", 128, 8), 1024);
        assert_eq!(most("gfx1100", 8, 2), 256);
        assert_eq!(most("gfx1100", 2, 2), 64);
    }

    #[test]
    fn tiles_have_equal_parts_where_these_fill_the_device() {
        // 64 tiles of 64 stages: two parts each.
        let (params, _) = launched(4096, 512, "sm_90");
        assert_eq!((params.streams, params.rounds, params.token_tiles), (128, 0, 2));
        // 48 wide tiles are too few, and two parts of 96 would leave a quarter of the places idle.
        let (params, _) = launched(3072, 512, "sm_90");
        assert_eq!((params.streams, params.rounds, params.token_tiles), (264, 0, 4));
    }

    #[test]
    fn a_small_matrix_has_few_parts_per_tile() {
        let (params, launch) = launched(256, 100, "sm_90");
        assert_eq!((params.streams, params.rounds), (2 * MAX_PARTS, 0));
        assert_eq!(launch.grid, [2 * MAX_PARTS, 1, 1]);
    }

    #[test]
    fn formats_have_f16_operands_where_these_are_faster() {
        let halves = |arch, dtype| MatmulDevice::new(48, arch).halves(dtype, 4096);
        for dtype in [DType::Q4_0, DType::Q4K, DType::F16, DType::Mxfp4, DType::Iq2S] {
            assert!(
                halves("gfx1100", dtype) && halves("sm_90", dtype) && !halves("gfx1030", dtype)
            );
        }
        assert!(halves("gfx1201", DType::Q4K) && !halves("gfx1201", DType::Q8_0));
        assert!(!halves("sm_90", DType::F32));
        assert!(!MatmulDevice::new(48, "sm_90").halves(DType::F16, 40));
    }
}
