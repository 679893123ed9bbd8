//! Matmuls: every format and shape, and every op that is fused with them.

use rf_graph::{Activation, OperandFormat, ValueId};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::{Case, CaseShape};
use super::net::{Net, part_of_super_block};
use super::schedule::Schedule;

/// Batch sizes on both sides of the block sizes of kernels.
const TOKENS: [usize; 7] = [1, 2, 3, 5, 13, 20, 33];

/// Batch sizes above the largest tile, with the last tile partly filled.
pub(super) const MANY_TOKENS: [usize; 2] = [70, 140];

/// `x [tokens, columns] · Wᵀ`, `W [rows, columns]` in a format. Copies read the same `x`.
pub fn matmul(dtype: DType, rows: usize, columns: usize, schedule: Schedule) -> Case {
    named(format!("matmul/{dtype}/{rows}x{columns}"), dtype, [rows, columns], schedule)
}

/// `silu(x · Gᵀ) · (x · Uᵀ)`, G and U `[rows, columns]` in a format. Copies read the same `x`.
pub fn gated_unit(dtype: DType, rows: usize, columns: usize, schedule: Schedule) -> Case {
    let what = (Some(OperandFormat::Weight(dtype)), CaseShape::Matrix { rows, columns });
    let name = format!("gated_unit/{dtype}/{rows}x{columns}");
    Case::new(name, what, ErrorBound::of_matmul(dtype), schedule, move |net, copies| {
        let mut out = net.input(columns);
        let x = out;
        let weights = net.matrices(2 * copies, dtype, rows, columns);
        for pair in weights.chunks_exact(2) {
            let (gate, up) = (net.g.matmul(x, pair[0]), net.g.matmul(x, pair[1]));
            out = net.g.glu(Activation::Silu, gate, up);
        }
        out
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = shapes();
    for dtype in DType::ALL {
        cases.extend(fused(dtype));
    }
    cases.extend(microscaled());
    cases.extend(subnormals());
    cases.extend(mixed());
    cases
}

fn named(name: String, dtype: DType, [rows, columns]: [usize; 2], schedule: Schedule) -> Case {
    let what = (Some(OperandFormat::Weight(dtype)), CaseShape::Matrix { rows, columns });
    Case::new(name, what, ErrorBound::of_matmul(dtype), schedule, move |net, copies| {
        let x = net.input(columns);
        let weights = net.matrices(copies, dtype, rows, columns);
        let outs: Vec<_> = weights.into_iter().map(|weight| net.g.matmul(x, weight)).collect();
        outs.last().copied().unwrap_or(x)
    })
}

fn shapes() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        // One and three super-blocks. Formats of small blocks also have a part of a super-block,
        // and more than one.
        let part = part_of_super_block(dtype);
        let small = [part, 256, 256 + dtype.block_elements().max(32), 768];
        let columns = if part == 256 { &[256, 768][..] } else { &small };
        for &columns in columns {
            for rows in [1, 37, 64] {
                cases.push(matmul(dtype, rows, columns, Schedule::batches(&TOKENS)));
            }
        }
        // Without blocks, a row may have any length.
        let columns: &[usize] = if dtype.block_elements() == 1 { &[1, 33, 100] } else { &[] };
        for &columns in columns {
            cases.push(matmul(dtype, 37, columns, Schedule::batches(&TOKENS)));
        }
        let name = format!("matmul/{dtype}/150x512/large");
        cases.push(named(name, dtype, [150, 512], Schedule::batches(&MANY_TOKENS)));
    }
    cases
}

/// A matmul among other ops.
fn among(
    name: String,
    format: OperandFormat,
    bound: ErrorBound,
    build: impl Fn(&mut Net) -> ValueId + Send + Sync + 'static,
) -> Case {
    Case::program_of(name, Some(format), bound, Schedule::batches(&TOKENS), build)
}

fn fused(dtype: DType) -> Vec<Case> {
    let (rows, columns) = (37, 256);
    let (format, bound) = (OperandFormat::Weight(dtype), ErrorBound::of_matmul(dtype));
    let mut cases = vec![
        among(format!("matmul/{dtype}/bias"), format, bound, move |net| {
            let (x, w) = (net.input(columns), net.matrix(dtype, rows, columns));
            let bias = net.vector(rows);
            net.g.linear(x, w, Some(bias))
        }),
        among(format!("matmul/{dtype}/residual"), format, bound, move |net| {
            let (residual, x) = (net.input(rows), net.input(columns));
            let w = net.matrix(dtype, rows, columns);
            let y = net.g.matmul(x, w);
            net.g.add(residual, y)
        }),
        among(format!("matmul/{dtype}/bias+residual"), format, bound, move |net| {
            let (residual, x) = (net.input(rows), net.input(columns));
            let (w, bias) = (net.matrix(dtype, rows, columns), net.vector(rows));
            let y = net.g.linear(x, w, Some(bias));
            net.g.add(y, residual)
        }),
        among(format!("matmul/{dtype}/rms_norm"), format, bound, move |net| {
            let (x, weight) = (net.input(columns), net.norm_weight(columns));
            let w = net.matrix(dtype, rows, columns);
            let x = net.g.rms_norm(x, weight, 1e-5);
            net.g.matmul(x, w)
        }),
    ];
    for activation in Activation::GATED {
        let bound = ErrorBound::of_gated_matmul(dtype);
        let name = format!("matmul/{dtype}/glu-{activation:?}");
        cases.push(among(name, format, bound, move |net| {
            let (gate, up) = (net.input(columns), net.input(columns));
            let w = net.matrix(dtype, rows, columns);
            let x = net.g.glu(activation, gate, up);
            net.g.matmul(x, w)
        }));
    }
    cases
}

/// Scales near the ends of E8M0, with activations that bring results back to the range in which
/// floats are exact.
fn microscaled() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::Mxfp4, DType::Mxfp6E2M3, DType::Mxfp6E3M2] {
        // Backends multiply integers of up to 2²⁴ with this scale before they apply that of the
        // activations, so 2¹⁰³ is about the largest scale that does not overflow.
        let (least, largest) = (vec![0, 1, 2], vec![229, 230, 231]);
        let tests = [("least", least, 2f32.powi(60)), ("largest", largest, 2f32.powi(-60))];
        for (which, exponents, scale) in tests {
            let name = format!("matmul/{dtype}/{which}-exponents");
            let bound = ErrorBound::of_matmul(dtype);
            cases.push(among(name, OperandFormat::Weight(dtype), bound, move |net| {
                let x = net.embedding(DType::F32, 256, scale);
                let w = net.microscaled(dtype, 37, 256, &exponents);
                net.g.matmul(x, w)
            }));
        }
    }
    cases
}

/// Weights and activations that are subnormal in f16. A matrix unit that takes them for 0 loses the
/// whole result.
fn subnormals() -> Vec<Case> {
    // f16 has normal numbers from 6.1e-5 and subnormal ones in steps of 6e-8.
    let tests = [("weights", 4e-6, 1.0), ("activations", 1.0, 1e-5)];
    let case = |(which, weight_scale, scale): (&str, f32, f32)| {
        let name = format!("matmul/F16/f16-subnormal-{which}");
        let (format, bound) =
            (OperandFormat::Weight(DType::F16), ErrorBound::of_matmul(DType::F16));
        among(name, format, bound, move |net| {
            let x = net.embedding(DType::F32, 256, scale);
            let w = net.scaled_matrix(DType::F16, 37, 256, weight_scale);
            net.g.matmul(x, w)
        })
    };
    tests.map(case).into()
}

/// Several matmuls of one normalised operand, such as QKV. Each case outputs one of them.
fn mixed() -> Vec<Case> {
    let mixes: [&'static [DType]; 6] = [
        &[DType::Q4K, DType::Q6K],
        &[DType::Q5_0, DType::Q8_0, DType::Q4K],
        &[DType::F16, DType::Q4_0],
        &[DType::Mxfp6E3M2, DType::Q8_0],
        &[DType::Q4K, DType::Q4K, DType::Q6K],
        &[DType::F32, DType::Bf16, DType::F16],
    ];
    let mut cases = Vec::new();
    for mix in mixes {
        for output in 0..mix.len() {
            let names: Vec<_> = mix.iter().map(|dtype| dtype.name()).collect();
            let name = format!("matmul/{}/projection-{output}", names.join("+"));
            let bound = ErrorBound::of_matmul(mix[output]);
            cases.push(among(name, OperandFormat::Mixed, bound, move |net| {
                let (x, weight) = (net.input(256), net.norm_weight(256));
                let x = net.g.rms_norm(x, weight, 1e-5);
                let outs: Vec<_> = mix
                    .iter()
                    .zip([64, 20, 37])
                    .map(|(dtype, rows)| {
                        let (w, bias) = (net.matrix(*dtype, rows, 256), net.vector(rows));
                        net.g.linear(x, w, Some(bias))
                    })
                    .collect();
                outs[output]
            }));
        }
    }
    cases
}
