//! Twin of `kernels/include/rf/params/experts.h`.

use bytemuck::{Pod, Zeroable};

use super::{Address, ExpertGroups, Launch};

/// Threads of a workgroup that groups the slots of an expert.
const GROUP_THREADS: u32 = 256;

/// Threads of a workgroup: four waves.
const EXPERT_THREADS: u32 = 128;

/// Largest number of groups of experts: the kernel has a lane for each.
pub const MAX_EXPERT_GROUPS: usize = 32;

/// Largest number of experts that compute a token: the kernel has a lane for each.
pub const MAX_SLOTS: usize = 32;

/// Selection and weighting of the experts of each token: [`rf_graph::Router`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct RouteParams {
    /// `[tokens, experts]` f32.
    pub logits: Address,
    /// `[experts]` f32 or null: is added to the probabilities for the selection.
    pub bias: Address,
    /// `[experts]` f32 or null: factors on the weights.
    pub expert_scale: Address,
    /// `[tokens]` f32 or null: the weight of the shared expert before the sigmoid.
    pub shared_gate: Address,
    /// `[tokens, 2 · slots]` f32: indices, then weights.
    pub out: Address,
    /// Number of tokens.
    pub tokens: u32,
    /// Number of experts, without the shared one.
    pub experts: u32,
    /// Selected experts per token, at most `experts`.
    pub used: u32,
    /// Experts per token with the shared one, at most [`MAX_SLOTS`].
    pub slots: u32,
    /// Probability of an expert: 0 softmax, 1 sigmoid, 2 softmax over the selected experts.
    pub gate: u32,
    /// 1 if the weights are divided by their sum.
    pub normalize: u32,
    /// Number of groups, at most [`MAX_EXPERT_GROUPS`]; 0 for none.
    pub groups: u32,
    /// Groups from which experts are selected.
    pub selected_groups: u32,
    /// Factor on the weights.
    pub scale: f32,
    /// Zero.
    pub reserved: u32,
}

impl RouteParams {
    /// The launch: a wave per token.
    pub fn launch(&self) -> Launch {
        let groups = self.tokens.div_ceil(EXPERT_THREADS / 32);
        Launch::linear("route_f32", groups as usize, EXPERT_THREADS)
    }
}

/// The slots of a batch, grouped by expert.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct GroupExpertsParams {
    /// `[tokens, 2 · used]` f32.
    pub route: Address,
    /// The tiles and the slots that the kernel writes.
    pub groups: ExpertGroups,
    /// Number of tokens.
    pub tokens: u32,
    /// Number of experts.
    pub experts: u32,
    /// Experts per token.
    pub used: u32,
    /// Slots of a tile.
    pub tile_slots: u32,
}

impl GroupExpertsParams {
    /// The launch: a workgroup per expert.
    pub fn launch(&self) -> Launch {
        Launch::linear("group_experts", self.experts as usize, GROUP_THREADS)
    }
}

/// The experts' outputs, and their weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ExpertRowsParams {
    /// `[tokens, used · columns]` f32.
    pub x: Address,
    /// `[tokens, 2 · used]` f32.
    pub route: Address,
    /// `[tokens, columns]` f32 that is added to the sum, or null.
    pub residual: Address,
    /// `[tokens, columns]` f32 for the sum, otherwise the shape of `x`.
    pub out: Address,
    /// Number of tokens.
    pub tokens: u32,
    /// Width of a slot.
    pub columns: u32,
    /// Experts per token.
    pub used: u32,
    /// Zero.
    pub reserved: u32,
}

impl ExpertRowsParams {
    /// The launch of the weighted sum.
    pub fn combine(&self) -> Launch {
        self.by_column("combine_experts_f32")
    }

    /// The launch that weights each slot.
    pub fn scale(&self) -> Launch {
        self.by_column("scale_experts_f32")
    }

    /// A launch with a lane per column; tokens in y.
    fn by_column(&self, kernel: &'static str) -> Launch {
        let grid = [self.columns.div_ceil(EXPERT_THREADS), self.tokens, 1];
        Launch { kernel, grid, block: [EXPERT_THREADS, 1, 1], lds_bytes: 0 }
    }
}
