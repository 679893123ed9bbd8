//! Chains of matmuls whose intermediate values a fused program stores as operands.

use rf_graph::{Activation, Attention, KvType, OperandFormat, ValueId};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::{Case, CaseShape};
use super::matmul::MANY_TOKENS;
use super::net::{Net, part_of_super_block};
use super::schedule::Schedule;

/// Batch sizes on both sides of what kernels block by; one and two rows have their own kernels.
const TOKENS: [usize; 5] = [1, 2, 3, 13, 33];

/// Columns that GPUs divide over workgroups.
const WIDE: usize = 2048;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let families = [DType::Q4K, DType::Q8_0, DType::F16];
    for dtype in DType::ALL {
        // Sums do not depend on what follows them, so some formats show every activation.
        let is_shown = |a: &Activation| *a == Activation::Silu || families.contains(&dtype);
        let activations = Activation::GATED.into_iter().filter(is_shown);
        cases.extend(activations.map(|activation| gated_unit(dtype, activation)));
        cases.extend([norm(dtype, "rms_norm", 512), attention(dtype)]);
    }
    for dtype in families {
        cases.extend([norm(dtype, "rms_norm/wide", WIDE), wide_gated_unit(dtype)]);
        cases.extend([large_gated_unit(dtype), sums_over_parts(dtype)]);
    }
    cases
}

/// The feed-forward part of a layer: norm, gated unit of `ffn_size` elements, down and residual.
/// The input of a copy is the output of the one before.
pub fn feed_forward(dtype: DType, [hidden_size, ffn_size]: [usize; 2], schedule: Schedule) -> Case {
    let what = (Some(OperandFormat::Weight(dtype)), CaseShape::Program);
    let name = format!("feed_forward/{dtype}/{hidden_size}x{ffn_size}");
    Case::new(name, what, bound(dtype), schedule, move |net, copies| {
        let mut stream = net.input(hidden_size);
        let wide = net.matrices(2 * copies, dtype, ffn_size, hidden_size);
        let down = net.matrices(copies, dtype, hidden_size, ffn_size);
        for (gate_up, down) in wide.chunks_exact(2).zip(down) {
            let gains = net.norm_weight(hidden_size);
            let x = net.g.rms_norm(stream, gains, 1e-5);
            let (gate, up) = (net.g.matmul(x, gate_up[0]), net.g.matmul(x, gate_up[1]));
            let y = net.g.glu(Activation::Silu, gate, up);
            let y = net.g.matmul(y, down);
            stream = net.g.add(stream, y);
        }
        stream
    })
}

/// Two matmuls of a format, one after the other.
fn case(
    name: &str,
    dtype: DType,
    schedule: Schedule,
    build: impl Fn(&mut Net) -> ValueId + Send + Sync + 'static,
) -> Case {
    let name = format!("epilogue/{dtype}/{name}");
    Case::program_of(name, Some(OperandFormat::Weight(dtype)), bound(dtype), schedule, build)
}

/// The bound of several matmuls of a format.
fn bound(dtype: DType) -> ErrorBound {
    match ErrorBound::of_matmul(dtype) {
        ErrorBound::Float => ErrorBound::FloatModel,
        _ => ErrorBound::Int8Model,
    }
}

/// Gate and up, the gated unit, down.
fn gated_unit(dtype: DType, activation: Activation) -> Case {
    case(&format!("glu-{activation:?}"), dtype, Schedule::batches(&TOKENS), move |net| {
        let x = net.input(256);
        let (gate, up) = (net.matrix(dtype, 512, 256), net.matrix(dtype, 512, 256));
        let (gate, up) = (net.g.matmul(x, gate), net.g.matmul(x, up));
        let y = net.g.glu(activation, gate, up);
        let down = net.matrix(dtype, 37, 512);
        net.g.matmul(y, down)
    })
}

/// Gate and up of many columns, and the gated unit.
fn wide_gated_unit(dtype: DType) -> Case {
    case("glu/wide", dtype, Schedule::batches(&[2, 3, 48]), move |net| {
        let x = net.input(WIDE);
        let (gate, up) = (net.matrix(dtype, 96, WIDE), net.matrix(dtype, 96, WIDE));
        let (gate, up) = (net.g.matmul(x, gate), net.g.matmul(x, up));
        let y = net.g.glu(Activation::Silu, gate, up);
        let down = net.matrix(DType::F32, 37, 96);
        net.g.matmul(y, down)
    })
}

/// Gate and up of many tokens, the gated unit, down.
fn large_gated_unit(dtype: DType) -> Case {
    case("glu/large", dtype, Schedule::batches(&MANY_TOKENS), move |net| {
        // Not a multiple of 64 where the format allows it.
        let ffn_size = part_of_super_block(dtype);
        let x = net.input(512);
        let (gate, up) = (net.matrix(dtype, ffn_size, 512), net.matrix(dtype, ffn_size, 512));
        let (gate, up) = (net.g.matmul(x, gate), net.g.matmul(x, up));
        let y = net.g.glu(Activation::Silu, gate, up);
        let down = net.matrix(dtype, 37, ffn_size);
        net.g.matmul(y, down)
    })
}

/// A matmul with residual, the norm of their sum, and a matmul that is added to the sum.
fn norm(dtype: DType, name: &str, columns: usize) -> Case {
    case(name, dtype, Schedule::batches(&TOKENS), move |net| {
        let (stream, x) = (net.input(256), net.input(columns));
        let w = net.matrix(dtype, 256, columns);
        let y = net.g.matmul(x, w);
        let stream = net.g.add(stream, y);
        let gains = net.norm_weight(256);
        let y = net.g.rms_norm(stream, gains, 1e-5);
        let w = net.matrix(dtype, 256, 256);
        let y = net.g.matmul(y, w);
        net.g.add(stream, y)
    })
}

/// Two matmuls whose outputs are summed over parts and added to the residual, and the norm between
/// them.
fn sums_over_parts(dtype: DType) -> Case {
    let schedule = Schedule::batches(&[1, 2, 3, 13, 33, 70]);
    let what = Some(OperandFormat::Weight(dtype));
    let name = format!("all_reduce/{dtype}/rms_norm");
    Case::program_of(name, what, bound(dtype), schedule, move |net| {
        let (stream, x) = (net.input(256), net.input(256));
        let w = net.matrix(dtype, 256, 256);
        let y = net.g.matmul(x, w);
        let y = net.g.all_reduce(y);
        let stream = net.g.add(stream, y);
        let gains = net.norm_weight(256);
        let y = net.g.rms_norm(stream, gains, 1e-5);
        let w = net.matrix(dtype, 256, 256);
        let y = net.g.matmul(y, w);
        let y = net.g.all_reduce(y);
        net.g.add(y, stream)
    })
}

/// Attention and the output projection.
fn attention(dtype: DType) -> Case {
    let schedule = Schedule::batches(&TOKENS).with_cache(KvType::F32, vec![(2, 64)]);
    case("attention", dtype, schedule, move |net| {
        let (q, k, v) = (net.input(256), net.input(128), net.input(128));
        let y = net.g.attention(q, k, v, &Attention::new(0, 4, 2, 64));
        let w = net.matrix(dtype, 37, 256);
        net.g.matmul(y, w)
    })
}
