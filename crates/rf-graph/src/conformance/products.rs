//! Products: every format and shape, and everything that is fused with them.

use rf_quant::DType;

use super::inputs::batches;
use super::{Bound, Case};
use crate::op::Activation;

/// Batch sizes on both sides of what kernels block by.
const TOKENS: [usize; 5] = [1, 3, 5, 13, 33];

/// Batch sizes that take more than one of the largest tiles, the last of them partly filled.
const MANY_TOKENS: [usize; 2] = [70, 140];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = shapes();
    for dtype in DType::ALL {
        cases.extend(fused(dtype));
    }
    cases.extend(microscaled());
    cases.extend(mixed());
    cases
}

fn shapes() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        // One and three super-blocks; with small blocks also a part of one and a bit more than one.
        let columns: &[usize] =
            if dtype.block_elements() == 256 { &[256, 768] } else { &[96, 256, 288, 768] };
        for &columns in columns {
            for rows in [1, 37, 64] {
                let name = format!("matmul/{dtype}/{rows}x{columns}");
                let bound = Bound::of_product(dtype);
                cases.push(Case::new(name, bound, batches(&TOKENS), move |net| {
                    let (x, w) = (net.input(columns), net.matrix(dtype, rows, columns));
                    net.g.matmul(x, w)
                }));
            }
        }
        let (rows, columns) = (150, 512);
        let name = format!("matmul/{dtype}/{rows}x{columns}/large");
        cases.push(Case::new(name, Bound::of_product(dtype), batches(&MANY_TOKENS), move |net| {
            let (x, w) = (net.input(columns), net.matrix(dtype, rows, columns));
            net.g.matmul(x, w)
        }));
    }
    cases
}

/// Bias, residual and prologues of one format.
fn fused(dtype: DType) -> Vec<Case> {
    let (rows, columns) = (37, 256);
    let bound = Bound::of_product(dtype);
    let mut cases = vec![
        Case::new(format!("matmul/{dtype}/bias"), bound, batches(&TOKENS), move |net| {
            let (x, w) = (net.input(columns), net.matrix(dtype, rows, columns));
            let bias = net.vector(rows);
            net.g.linear(x, w, Some(bias))
        }),
        Case::new(format!("matmul/{dtype}/residual"), bound, batches(&TOKENS), move |net| {
            let (stream, x) = (net.input(rows), net.input(columns));
            let w = net.matrix(dtype, rows, columns);
            let y = net.g.matmul(x, w);
            net.g.add(stream, y)
        }),
        Case::new(format!("matmul/{dtype}/bias+residual"), bound, batches(&TOKENS), move |net| {
            let (stream, x) = (net.input(rows), net.input(columns));
            let (w, bias) = (net.matrix(dtype, rows, columns), net.vector(rows));
            let y = net.g.linear(x, w, Some(bias));
            net.g.add(y, stream)
        }),
        Case::new(format!("matmul/{dtype}/rms_norm"), bound, batches(&TOKENS), move |net| {
            let (x, gains) = (net.input(columns), net.gains(columns));
            let w = net.matrix(dtype, rows, columns);
            let x = net.g.rms_norm(x, gains, 1e-5);
            net.g.matmul(x, w)
        }),
    ];
    for activation in [Activation::Silu, Activation::GeluTanh] {
        let bound = Bound::of_gated_product(dtype);
        let name = format!("matmul/{dtype}/glu-{activation:?}");
        cases.push(Case::new(name, bound, batches(&TOKENS), move |net| {
            let (gate, up) = (net.input(columns), net.input(columns));
            let w = net.matrix(dtype, rows, columns);
            let x = net.g.glu(activation, gate, up);
            net.g.matmul(x, w)
        }));
    }
    cases
}

/// Scales near the ends of E8M0, with activations that bring results back to where floats are exact.
fn microscaled() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::Mxfp4, DType::Mxfp6E2M3, DType::Mxfp6E3M2] {
        // Backends multiply integers of up to 2²⁴ with this scale before that of the activations comes in, so
        // 2¹⁰³ is about as much as they take.
        let (least, largest) = (vec![0, 1, 2], vec![229, 230, 231]);
        let mut tests = vec![("least", least, 2f32.powi(60)), ("largest", largest, 2f32.powi(-60))];
        if dtype != DType::Mxfp4 {
            // Every other row has a block of NaN.
            let nan = [127, 127, 255].into_iter().chain([127; 13]).collect();
            tests.push(("nan", nan, 1.0));
        }
        for (which, exponents, scale) in tests {
            let name = format!("matmul/{dtype}/{which}-exponents");
            let bound = Bound::of_product(dtype);
            cases.push(Case::new(name, bound, batches(&TOKENS), move |net| {
                let x = net.embedding(DType::F32, 256, scale);
                let w = net.microscaled(dtype, 37, 256, &exponents);
                net.g.matmul(x, w)
            }));
        }
    }
    cases
}

/// Several products of one normalised operand, as QKV: each in its turn is the output.
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
            let bound = Bound::of_product(mix[output]);
            cases.push(Case::new(name, bound, batches(&TOKENS), move |net| {
                let (x, gains) = (net.input(256), net.gains(256));
                let x = net.g.rms_norm(x, gains, 1e-5);
                let products: Vec<_> = mix
                    .iter()
                    .zip([64, 20, 37])
                    .map(|(dtype, rows)| {
                        let (w, bias) = (net.matrix(*dtype, rows, 256), net.vector(rows));
                        net.g.linear(x, w, Some(bias))
                    })
                    .collect();
                products[output]
            }));
        }
    }
    cases
}
