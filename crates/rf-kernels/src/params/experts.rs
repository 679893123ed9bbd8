//! Parameters and launches. `kernels/include/rf/params/experts.h` is generated from the table.

use super::table::params;
use super::{ExpertGroups, Launch};

/// Threads of a workgroup that groups the slots of an expert.
const GROUP_THREADS: u32 = 1024;

/// Threads of a workgroup: four waves.
const EXPERT_THREADS: u32 = 128;

/// Columns that a lane of the weighted sum computes.
const COMBINED_COLUMNS: u32 = 4;

/// Largest number of groups of experts: the kernel has a lane for each.
pub(crate) const MAX_EXPERT_GROUPS: usize = 32;

/// Largest number of experts that compute a token: the kernel has a lane for each.
pub(crate) const MAX_SLOTS: usize = 32;

params! {
    /// Selection and weighting of the experts of each token, [`rf_graph::Router`]. A shared expert
    /// is one more slot, whose number is `experts`.
    struct RouteParams {
        /// `[tokens, experts]`.
        logits: *const f32,
        /// `[experts]` or null: is added to the probabilities for the selection.
        bias: *const f32,
        /// `[experts]` or null: factors on the weights.
        expert_scale: *const f32,
        /// `[tokens]` or null: the weight of the shared expert before the sigmoid.
        shared_gate: *const f32,
        /// `[tokens, 2 · slots]`: indices, then weights.
        out: *mut f32,
        /// Number of tokens.
        tokens: u32,
        /// Number of experts, without the shared one.
        experts: u32,
        /// Selected experts per token, at most `experts`.
        used: u32,
        /// Experts per token with the shared one, at most [`MAX_SLOTS`].
        slots: u32,
        /// Probability of an expert: `RfGate`.
        gate: u32,
        /// 1 if the weights are divided by their sum.
        normalize: u32,
        /// Number of groups, at most [`MAX_EXPERT_GROUPS`]; 0 for none.
        groups: u32,
        /// Groups from which experts are selected, at most `groups`.
        selected_groups: u32,
        /// Factor on the weights.
        scale: f32,
        /// The weight of expert e is that of expert e / `group`: 1 for its own.
        group: u32,
    }

    /// The slots of a batch by expert, those of an expert in ascending order, and tiles of at most
    /// `tile_slots` of them. Tiles of expert e start at index ⌊first slot of e / `tile_slots`⌋ + e;
    /// unused entries have a count of 0.
    struct GroupExpertsParams {
        /// `[tokens, 2 · used]`.
        route: *const f32,
        /// The tiles and the slots that the kernel writes; tiles: `[⌊tokens · used / tile_slots⌋ +
        /// experts]`.
        groups: ExpertGroups,
        /// Number of tokens.
        tokens: u32,
        /// Number of experts.
        experts: u32,
        /// Experts per token.
        used: u32,
        /// Slots of a tile.
        tile_slots: u32,
    }

    /// The outputs of the experts and their weights `p = route[t][used + s]`, slots s in order: the
    /// kernels `combine_*` and `scale_*`.
    struct ExpertRowsParams {
        /// `[tokens, used · columns]`.
        x: *const f32,
        /// `[tokens, 2 · used]`.
        route: *const f32,
        /// `[tokens, columns]` or null; `combine_*` alone.
        residual: *const f32,
        /// `combine_*`: Σₛ p·x (+ residual), `[tokens, columns]`; `scale_*`: p·x, as x.
        out: *mut f32,
        /// Number of tokens.
        tokens: u32,
        /// Width of a slot.
        columns: u32,
        /// Experts per token.
        used: u32,
        /// Zero.
        reserved: u32,
    }
}

impl RouteParams {
    /// The launch: a wave per token.
    pub(crate) fn launch(&self) -> Launch {
        let groups = self.tokens.div_ceil(EXPERT_THREADS / 32);
        Launch::linear("route_f32", groups as usize, EXPERT_THREADS)
    }
}

impl GroupExpertsParams {
    /// The launch: a workgroup per expert.
    pub(crate) fn launch(&self) -> Launch {
        Launch::linear("group_experts", self.experts as usize, GROUP_THREADS)
    }
}

impl ExpertRowsParams {
    /// The launch of the weighted sum.
    pub(crate) fn combine(&self) -> Launch {
        self.by_columns("combine_experts_f32", COMBINED_COLUMNS)
    }

    /// The launch that weights each slot.
    pub(crate) fn scale(&self) -> Launch {
        self.by_columns("scale_experts_f32", 1)
    }

    /// A launch with a lane for this many columns; tokens in y.
    fn by_columns(&self, kernel: &'static str, columns: u32) -> Launch {
        let grid = [self.columns.div_ceil(EXPERT_THREADS * columns), self.tokens, 1];
        Launch { kernel, grid, block: [EXPERT_THREADS, 1, 1], lds_bytes: 0 }
    }
}
