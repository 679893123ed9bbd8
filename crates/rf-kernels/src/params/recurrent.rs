//! Twin of `kernels/include/rf/params/recurrent.h`.

use bytemuck::{Pod, Zeroable};

use super::{Address, Batch, Launch};

/// Largest number of taps of a convolution.
pub const MAX_TAPS: usize = 4;

/// Largest number of rows of the state of a head.
pub const MAX_KEY_DIM: usize = 256;

/// Threads of a workgroup.
const THREADS: u32 = 128;

/// Tokens of a workgroup of a convolution.
const CONV_TOKENS: u32 = 32;

/// Columns of a workgroup of a recurrence.
const COLUMNS: u32 = 32;

/// One recurrent state of all sequences: f32 matrices, one per page.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct State {
    /// The matrix of page 0.
    pub first: Address,
    /// Distance between pages, in f32.
    pub page_floats: u64,
}

/// A causal convolution of each column.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CausalConvParams {
    /// With the pages of states.
    pub batch: Batch,
    /// `[taps − 1, width]`.
    pub state: State,
    /// `[tokens, width]` f32.
    pub x: Address,
    /// `[taps, width]` f32.
    pub filter: Address,
    /// `[width]` f32 or null.
    pub bias: Address,
    /// `[tokens, width]` f32.
    pub out: Address,
    /// Columns.
    pub width: u32,
    /// Rows of the filter: 1 to [`MAX_TAPS`].
    pub taps: u32,
    /// 1 if `SiLU` follows.
    pub silu: u32,
    /// Zero.
    pub reserved: u32,
}

impl CausalConvParams {
    /// The launch for spans of at most `longest_span` tokens.
    pub fn launch(&self, longest_span: usize) -> Launch {
        let chunks = (longest_span as u32).div_ceil(CONV_TOKENS);
        let grid = [self.width.div_ceil(THREADS), chunks, self.batch.num_spans];
        Launch { kernel: "causal_conv_f32", grid, block: [THREADS, 1, 1], lds_bytes: 0 }
    }
}

/// A recurrence over the tokens of each sequence, whose state per head is a matrix.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct RecurrenceParams {
    /// With the pages of states.
    pub batch: Batch,
    /// `[heads · key_dim, value_dim]`.
    pub state: State,
    /// `[tokens, columns]` f32.
    pub x: Address,
    /// `[tokens, heads]` f32: the input of the decay.
    pub alpha: Address,
    /// `[tokens, heads]` f32: the share of the correction of a delta rule, otherwise null.
    pub beta: Address,
    /// `[heads]` f32.
    pub decay: Address,
    /// `[heads]` f32.
    pub decay_bias: Address,
    /// `[heads]` f32 for a state space, otherwise null.
    pub skip: Address,
    /// `[tokens, heads · value_dim]` f32.
    pub out: Address,
    /// Width of `x`.
    pub columns: u32,
    /// First column of the queries, or of C.
    pub queries: u32,
    /// First column of the keys, or of B.
    pub keys: u32,
    /// First column of the values, or of x.
    pub values: u32,
    /// Heads of values, each with a state.
    pub heads: u32,
    /// Heads of queries and keys, or groups.
    pub key_heads: u32,
    /// Elements of a query or key: at most [`MAX_KEY_DIM`].
    pub key_dim: u32,
    /// Elements of a value.
    pub value_dim: u32,
    /// 1 if head `h` reads key head `h` mod `key_heads`, otherwise 0.
    pub interleaved: u32,
    /// Constant that is added to the squared length of a query or key.
    pub eps: f32,
}

impl RecurrenceParams {
    /// The launch of a delta rule.
    pub fn delta_net(&self) -> Launch {
        self.by_column(["delta_net_f32_d128", "delta_net_f32_d256"])
    }

    /// The launch of a state space.
    pub fn state_space(&self) -> Launch {
        self.by_column(["state_space_f32_d128", "state_space_f32_d256"])
    }

    /// A launch of the kernel for at most 128 rows, or of that for more.
    fn by_column(&self, kernels: [&'static str; 2]) -> Launch {
        let kernel = kernels[usize::from(self.key_dim > 128)];
        let grid = [self.value_dim.div_ceil(COLUMNS), self.heads, self.batch.num_spans];
        Launch { kernel, grid, block: [THREADS, 1, 1], lds_bytes: 0 }
    }
}
