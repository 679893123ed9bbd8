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
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)` with the exact distribution function of the normal distribution. Layers compose
    /// their gated units.
    GeluErf,
}

impl Activation {
    /// The activations of gated units.
    pub const GATED: [Self; 4] = [Self::Silu, Self::GeluTanh, Self::ClampedSwiglu, Self::Relu];

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

/// The expanded integral of the ELU (Apertus): `αₚx² + βx` for x > 0, otherwise
/// `αₙ(expm1(min(x, ε)) − x) + βx`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    /// The factor of positive elements.
    pub alpha_p: f32,
    /// The factor of other elements.
    pub alpha_n: f32,
    /// The slope at 0.
    pub beta: f32,
    /// Bound of the argument of the exponential, negative.
    pub eps: f32,
}

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Function {
    /// `x · factor`.
    Scale(f32),
    /// `c · tanh(x / c)`.
    Softcap(f32),
    /// `min(max(x, min), max)`.
    Clamp {
        /// The smallest result.
        min: f32,
        /// The largest result; at least `min`.
        max: f32,
    },
    /// The activation function.
    Activation(Activation),
    /// The activation function with parameters of a layer.
    Xielu(Xielu),
}

impl Function {
    /// A short name for telemetry.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scale(_) => "scale",
            Self::Softcap(_) => "softcap",
            Self::Clamp { .. } => "clamp",
            Self::Activation(_) | Self::Xielu(_) => "activation",
        }
    }

    /// Arithmetic operations; an activation function counts as one.
    pub(super) fn operations(self) -> usize {
        match self {
            Self::Scale(_) | Self::Activation(_) => 1,
            // Two comparisons.
            Self::Clamp { .. } => 2,
            // Two multiplications and the hyperbolic tangent.
            Self::Softcap(_) => 3,
            // The exponential, a difference, and two multiply-adds.
            Self::Xielu(_) => 6,
        }
    }
}
