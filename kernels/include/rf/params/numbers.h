// Numbers in kernel parameters. crates/rf-kernels/src/params writes them.
#pragma once

// The projections that a launch can have.
constexpr unsigned RF_MAX_PROJECTIONS = 4;

// The bit of a window whose queries see the keys after them in their span, too.
constexpr unsigned RF_BOTH_WAYS = 1u << 31;

// Storage formats of the KV cache: KvType of rf-graph.
enum RfKvType : unsigned {
    RF_KV_F32 = 0,
    RF_KV_F16 = 1,
    RF_KV_Q8_0 = 2,
    RF_KV_FP8 = 3,
    RF_KV_Q4_0 = 4,
    RF_KV_Q5_0 = 5
};

// The pairing of the elements of a head: RopeStyle of rf-graph.
enum RfRopeStyle : unsigned {
    RF_ROPE_NORMAL = 0, // neighbours
    RF_ROPE_NEOX = 1    // a distance of half the rotated elements
};

// The probability of an expert: GateFunction of rf-graph.
enum RfGate : unsigned { RF_GATE_SOFTMAX = 0, RF_GATE_SIGMOID = 1, RF_GATE_SOFTMAX_OF_SELECTED = 2 };

// The activation of a gated unit: Activation of rf-graph.
enum RfActivation : unsigned { RF_SILU = 0, RF_GELU_TANH = 1, RF_CLAMPED_SWIGLU = 2, RF_RELU = 8 };

// The functions of RfMapParams, after those of RfActivation.
enum RfFunction : unsigned {
    RF_SCALE = 3,          // x · parameter
    RF_SOFTCAP = 4,        // parameter · tanh(x / parameter)
    RF_SIGMOID_GATE = 5,   // x · σ(gate)
    RF_POSITION_SCALE = 6, // x · (1 + parameter · ln(1 + ⌊(position + offset) / period⌋))
    RF_SQUARED_RELU = 7,   // max(x, 0)²
    RF_CLAMP = 9,          // min(max(x, parameter), limit)
    RF_XIELU = 10,         // Function::Xielu, with parameter = αₚ
    RF_GELU_ERF = 11,      // x·Φ(x)
    RF_SOFTPLUS_GATE = 12  // x · ln(1 + exp(gate))
};

// What a skinny matmul does with its sums.
enum RfSkinnyEpilogue : unsigned {
    RF_SKINNY_NONE = 0,
    RF_SKINNY_NORM = 1, // one projection, whose rows are a multiple of 32
    RF_SKINNY_GLU = 2   // projections gate and up
};
