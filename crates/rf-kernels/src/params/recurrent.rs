//! Parameters and launches. `kernels/include/rf/params/recurrent.h` is generated from the table.

use super::table::params;
use super::{Batch, Launch};

/// Largest number of taps of a convolution.
pub(crate) const MAX_TAPS: usize = 4;

/// Largest number of rows of the state of a head whose rows have a decay each.
pub(crate) const MAX_CHANNELS: usize = 128;

/// Largest number of rows of the state of a head.
pub(crate) const MAX_KEY_DIM: usize = 256;

/// Largest number of elements of the state of a channel of a scan.
pub(crate) const MAX_SCAN_DIM: usize = 16;

/// Threads of a workgroup.
const THREADS: u32 = 128;

/// Tokens of a workgroup of a convolution.
const CONV_TOKENS: u32 = 32;

/// Columns of a workgroup of a recurrence.
const COLUMNS: u32 = 32;

params! {
    /// One recurrent state of all sequences: f32 matrices, one per page. The page of a span is
    /// `Batch::pages[Span::first_page]`. What it holds before the first token of a sequence is
    /// arbitrary.
    struct State {
        /// The matrix of page 0.
        first: *mut f32,
        /// Distance between pages, in f32.
        page_floats: u64,
    }

    /// A causal convolution of each column: `y[t] = Σⱼ filter[j] ⊙ x[t − (taps − 1) + j] (+ bias)`,
    /// then `SiLU` if `silu`. The state holds the `taps − 1` rows before the next token.
    struct CausalConvParams {
        /// With the pages of states.
        batch: Batch,
        /// `[taps − 1, width]`.
        state: State,
        /// `[tokens, width]`.
        x: *const f32,
        /// `[taps, width]`.
        filter: *const f32,
        /// `[width]` or null.
        bias: *const f32,
        /// `[tokens, width]`.
        out: *mut f32,
        /// Columns.
        width: u32,
        /// Rows of the filter: 1 to [`MAX_TAPS`].
        taps: u32,
        /// 1 if `SiLU` follows.
        silu: u32,
        /// Zero.
        reserved: u32,
    }

    /// A selective scan over the tokens of each sequence: `rf_oracle::reference`.
    struct ScanParams {
        /// With the pages of states.
        batch: Batch,
        /// `[state_dim, channels]`.
        state: State,
        /// `[tokens, channels]`.
        x: *const f32,
        /// `[tokens, channels]`: the time step, before softplus.
        dt: *const f32,
        /// `[tokens, state_dim]`.
        b: *const f32,
        /// `[tokens, state_dim]`.
        c: *const f32,
        /// `[state_dim, channels]`.
        decay: *const f32,
        /// `[channels]`.
        skip: *const f32,
        /// `[tokens, channels]`.
        out: *mut f32,
        /// Columns of x.
        channels: u32,
        /// Elements of B and C: at most [`MAX_SCAN_DIM`].
        state_dim: u32,
    }

    /// A recurrence over the tokens of each sequence, whose state per head is a matrix. For the
    /// delta rule rows of x are queries, keys and values; for the state space C, B and x.
    struct RecurrenceParams {
        /// With the pages of states.
        batch: Batch,
        /// `[heads][key_dim][value_dim]`.
        state: State,
        /// `[tokens, columns]`.
        x: *const f32,
        /// `[tokens, heads]`: the input of the decay; `[tokens, heads · key_dim]` for decays per
        /// channel.
        alpha: *const f32,
        /// `[tokens, heads]`: the share of the correction of a delta rule, otherwise null.
        beta: *const f32,
        /// `[heads]`.
        decay: *const f32,
        /// `[heads]`, or `[heads · key_dim]`.
        decay_bias: *const f32,
        /// `[heads]` for a state space, otherwise null.
        skip: *const f32,
        /// `[tokens, heads · value_dim]`.
        out: *mut f32,
        /// Width of `x`.
        columns: u32,
        /// First column of the queries, or of C: `[key_heads][key_dim]`.
        queries: u32,
        /// First column of the keys, or of B: `[key_heads][key_dim]`.
        keys: u32,
        /// First column of the values, or of x: `[heads][value_dim]`.
        values: u32,
        /// Heads of values, each with a state.
        heads: u32,
        /// Heads of queries and keys, or groups.
        key_heads: u32,
        /// Elements of a query or key: at most [`MAX_KEY_DIM`].
        key_dim: u32,
        /// Elements of a value.
        value_dim: u32,
        /// 1 if head `h` reads key head `h` mod `key_heads`, 0 if it reads `h` / (`heads` /
        /// `key_heads`).
        interleaved: u32,
        /// Constant that is added to the squared length of a query or key; delta rule alone.
        eps: f32,
        /// The logarithm of the smallest decay of a channel, 0 if there is none.
        bound: f32,
        /// Zero.
        reserved: u32,
    }
}

impl CausalConvParams {
    /// The launch for spans of at most `longest_span` tokens.
    pub(crate) fn launch(&self, longest_span: usize) -> Launch {
        let chunks = (longest_span as u32).div_ceil(CONV_TOKENS);
        let grid = [self.width.div_ceil(THREADS), chunks, self.batch.num_spans];
        Launch { kernel: "causal_conv_f32", grid, block: [THREADS, 1, 1], lds_bytes: 0 }
    }
}

impl ScanParams {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        let grid = [self.channels.div_ceil(THREADS), self.batch.num_spans, 1];
        Launch { kernel: "selective_scan_f32", grid, block: [THREADS, 1, 1], lds_bytes: 0 }
    }
}

impl RecurrenceParams {
    /// The launch of a delta rule.
    pub(crate) fn delta_net(&self) -> Launch {
        self.by_column(["delta_net_f32_d128", "delta_net_f32_d256"])
    }

    /// The launch of a delta rule with decays per channel, of at most [`MAX_CHANNELS`].
    pub(crate) fn channel_delta_net(&self) -> Launch {
        self.by_column(["channel_delta_net_f32_d128"; 2])
    }

    /// The launch of a state space.
    pub(crate) fn state_space(&self) -> Launch {
        self.by_column(["state_space_f32_d128", "state_space_f32_d256"])
    }

    /// A launch of the kernel for at most 128 rows, or of that for more.
    fn by_column(&self, kernels: [&'static str; 2]) -> Launch {
        let kernel = kernels[usize::from(self.key_dim > 128)];
        let grid = [self.value_dim.div_ceil(COLUMNS), self.heads, self.batch.num_spans];
        Launch { kernel, grid, block: [THREADS, 1, 1], lds_bytes: 0 }
    }
}
