//! Twin of `kernels/include/rf/params/experts.h`.

use bytemuck::{Pod, Zeroable};

use super::{Address, Launch};

/// Threads of a workgroup: four waves.
const EXPERT_THREADS: u32 = 128;

/// Selection of the most probable experts of each token.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct RouteParams {
    /// `[tokens, experts]` f32.
    pub logits: Address,
    /// `[tokens, 2 · used]` f32: indices, then probabilities.
    pub out: Address,
    /// Number of tokens.
    pub tokens: u32,
    /// Number of experts.
    pub experts: u32,
    /// Experts per token, at most `experts`.
    pub used: u32,
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

/// The sum of the experts' outputs, weighted by their probabilities.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CombineExpertsParams {
    /// `[tokens, used · columns]` f32.
    pub x: Address,
    /// `[tokens, 2 · used]` f32.
    pub route: Address,
    /// `[tokens, columns]` f32.
    pub out: Address,
    /// Number of tokens.
    pub tokens: u32,
    /// Width.
    pub columns: u32,
    /// Experts per token.
    pub used: u32,
    /// Zero.
    pub reserved: u32,
}

impl CombineExpertsParams {
    /// The launch: a lane per column, tokens in y.
    pub fn launch(&self) -> Launch {
        let grid = [self.columns.div_ceil(EXPERT_THREADS), self.tokens, 1];
        let block = [EXPERT_THREADS, 1, 1];
        Launch { kernel: "combine_experts_f32", grid, block, lds_bytes: 0 }
    }
}
