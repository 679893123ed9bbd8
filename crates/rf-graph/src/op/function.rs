//! Functions of single elements.

/// The non-linearity of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// `x · Φ(x)` in the tanh form: `½x(1 + tanh(√(2/π)(x + 0.044715x³)))`.
    GeluTanh,
    /// The gated unit of gpt-oss, with the gate `g = min(gate, 7)` and `u = clamp(up, −7, 7)`:
    /// `g · σ(1.702 g) · (u + 1)`. As a function of `g` alone: `g · σ(1.702 g)`.
    ClampedSwiglu,
    /// `max(x, 0)²`, in layers without a gate.
    SquaredRelu,
}

impl Activation {
    /// The activations of gated units.
    pub const GATED: [Self; 3] = [Self::Silu, Self::GeluTanh, Self::ClampedSwiglu];

    /// Bound of gate and up in [`Self::ClampedSwiglu`].
    pub const CLAMP: f32 = 7.0;
    /// Factor in the sigmoid of [`Self::ClampedSwiglu`].
    pub const ALPHA: f32 = 1.702;
}

/// The function of a gate that multiplies a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gating {
    /// `σ(gate)`.
    Sigmoid,
    /// `ln(1 + exp(gate))` (Laguna).
    Softplus,
}

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Function {
    /// `x · factor`.
    Scale(f32),
    /// `c · tanh(x / c)`.
    Softcap(f32),
    /// `min(max(x, −c), c)`.
    Clamp(f32),
    /// The activation function.
    Activation(Activation),
}

impl Function {
    /// A short name for telemetry.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scale(_) => "scale",
            Self::Softcap(_) => "softcap",
            Self::Clamp(_) => "clamp",
            Self::Activation(_) => "activation",
        }
    }

    /// Arithmetic operations; an activation function counts as one.
    pub(super) fn operations(self) -> usize {
        match self {
            Self::Scale(_) | Self::Activation(_) => 1,
            Self::Clamp(_) => 2,
            // Two multiplications and the hyperbolic tangent.
            Self::Softcap(_) => 3,
        }
    }
}
