//! Attributes of ops that read and replace a recurrent state.

use crate::kv::StateShape;
use crate::value::{ValueId, WeightId};

/// Causal convolution of each column over the last tokens of its sequence, with one filter per
/// column. The state is the tail: the `taps − 1` rows before the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CausalConv {
    /// `[tokens, width]`.
    pub x: ValueId,
    /// `[taps, width]`: the last row multiplies the token itself.
    pub filter: WeightId,
    /// `[width]`.
    pub bias: Option<WeightId>,
    /// True if `SiLU` follows.
    pub silu: bool,
    /// Index into [`KvLayout::states`](crate::KvLayout::states): `[taps − 1, width]`.
    pub state: usize,
    /// Shape of `x`.
    pub out: ValueId,
}

/// Gated delta rule: linear attention whose state of each value head, `S [key_dim, value_dim]`,
/// decays and then stores what it did not predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaNet {
    /// `[tokens, qkv_width]`: queries and keys of all key heads, values of all value heads.
    pub qkv: ValueId,
    /// `[tokens, gates]`: the input of the decay, see [`DeltaDecay`].
    pub alpha: ValueId,
    /// `[tokens, num_value_heads]`: the share of the correction, before the sigmoid.
    pub beta: ValueId,
    /// `[num_value_heads]`: the factor of the gates of a head.
    pub decay: WeightId,
    /// `[gates]`: added to `alpha`.
    pub decay_bias: WeightId,
    /// The heads.
    pub heads: DeltaHeads,
    /// The decay as a function of `alpha`.
    pub form: DeltaDecay,
    /// Constant that is added to the squared length of a query or key.
    pub eps: f32,
    /// Index into [`KvLayout::states`](crate::KvLayout::states):
    /// `[num_value_heads · key_dim, value_dim]`.
    pub state: usize,
    /// `[tokens, num_value_heads · value_dim]`.
    pub out: ValueId,
}

/// The decay of the states of a [`DeltaNet`] at a token, from the sum x of `alpha` and its bias and
/// from the factor a of the head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeltaDecay {
    /// `exp(a · softplus(x))` with a gate per value head; a is negative (Qwen 3.5).
    Head,
    /// `exp(a · softplus(x))` with a gate per row of a head's state, a channel of its keys; a is
    /// negative (Kimi Linear).
    Channel,
    /// `exp(bound · σ(a · x))` with a gate per channel (Ling 3).
    BoundedChannel {
        /// The logarithm of the smallest decay, negative.
        bound: f32,
    },
}

impl DeltaDecay {
    /// Columns of the gates of all heads.
    pub const fn width(self, heads: DeltaHeads) -> usize {
        match self {
            Self::Head => heads.num_value_heads,
            Self::Channel | Self::BoundedChannel { .. } => heads.num_value_heads * heads.key_dim,
        }
    }
}

/// The heads of a [`DeltaNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Heads of queries and keys; divides `num_value_heads`.
    pub num_key_heads: usize,
    /// Heads of values, each with a state.
    pub num_value_heads: usize,
    /// Elements of a query or key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// True if value head `h` reads key head `h mod num_key_heads`, otherwise
    /// `h / (num_value_heads / num_key_heads)`.
    pub interleaved: bool,
}

impl DeltaHeads {
    /// The key head that a value head reads.
    pub const fn key_head(self, value_head: usize) -> usize {
        if self.interleaved {
            value_head % self.num_key_heads
        } else {
            value_head / (self.num_value_heads / self.num_key_heads)
        }
    }

    /// Columns of the queries, and of the keys.
    pub const fn key_width(self) -> usize {
        self.num_key_heads * self.key_dim
    }

    /// Columns of the values, and of the output.
    pub const fn value_width(self) -> usize {
        self.num_value_heads * self.value_dim
    }

    /// Columns of queries, keys and values.
    pub const fn qkv_width(self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// The shape of the state.
    pub const fn state(self) -> StateShape {
        StateShape { rows: self.num_value_heads * self.key_dim, columns: self.value_dim }
    }
}

/// Selective state space of Mamba 2: the state of each head, `S [state_dim, head_dim]`, decays and
/// adds the outer product of its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateSpace {
    /// `[tokens, xbc_width]`: x of all heads, then B and C of all groups.
    pub xbc: ValueId,
    /// `[tokens, num_heads]`: the time step, before bias and softplus.
    pub dt: ValueId,
    /// `[num_heads]`: added to `dt`.
    pub dt_bias: WeightId,
    /// `[num_heads]`: the logarithm of the decay per unit of time, negative.
    pub decay: WeightId,
    /// `[num_heads]`: the factor with which x reaches the output directly.
    pub skip: WeightId,
    /// The heads.
    pub heads: StateSpaceHeads,
    /// Index into [`KvLayout::states`](crate::KvLayout::states):
    /// `[num_heads · state_dim, head_dim]`.
    pub state: usize,
    /// `[tokens, num_heads · head_dim]`.
    pub out: ValueId,
}

/// The heads of a [`StateSpace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSpaceHeads {
    /// Heads, each with a state.
    pub num_heads: usize,
    /// Elements of x and of the output per head.
    pub head_dim: usize,
    /// Groups of successive heads that share B and C; divides `num_heads`.
    pub num_groups: usize,
    /// Elements of B and C per group.
    pub state_dim: usize,
}

impl StateSpaceHeads {
    /// Columns of x, and of the output.
    pub const fn inner_width(self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Columns of x, B and C.
    pub const fn xbc_width(self) -> usize {
        self.inner_width() + 2 * self.num_groups * self.state_dim
    }

    /// The shape of the state.
    pub const fn state(self) -> StateShape {
        StateShape { rows: self.num_heads * self.state_dim, columns: self.head_dim }
    }
}

/// Selective scan of Mamba 1: the state of each channel, a column of `S [state_dim, channels]`, has
/// a separate time step and decays at a rate per element. For each token, with the time step
/// `Δ = softplus(dt)` of a channel: `s ← exp(Δ a) s + Δ B x`, `y = C·s + skip · x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectiveScan {
    /// `[tokens, channels]`.
    pub x: ValueId,
    /// `[tokens, channels]`: the time step, before softplus.
    pub dt: ValueId,
    /// `[tokens, state_dim]`: the inputs B of the state.
    pub b: ValueId,
    /// `[tokens, state_dim]`: the outputs C of the state.
    pub c: ValueId,
    /// `[state_dim, channels]`: the logarithm of the decay per unit of time, negative.
    pub decay: WeightId,
    /// `[channels]`: the factor with which x reaches the output directly.
    pub skip: WeightId,
    /// Index into [`KvLayout::states`](crate::KvLayout::states): `[state_dim, channels]`.
    pub state: usize,
    /// `[tokens, channels]`.
    pub out: ValueId,
}
