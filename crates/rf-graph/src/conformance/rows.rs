//! Ops that work on rows: embedding, norms, rotation, gated units, sums.

use rf_quant::DType;

use super::inputs::{LARGEST_EXPONENT, VOCAB_SIZE, batches, rope, schedule};
use super::{Bound, Case};
use crate::op::{Activation, RopeStyle};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = embeddings();
    cases.extend(handed_in());
    cases.extend(norms());
    cases.extend(rotations());
    cases.extend(element_wise());
    cases
}

fn embeddings() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        let widths: &[usize] = if dtype.block_elements() == 256 { &[256, 768] } else { &[96, 256] };
        for &width in widths {
            for scale in [1.0, 16.0] {
                let bound = if dtype == DType::F32 { Bound::Exact } else { Bound::Float };
                let name = format!("embed/{dtype}/{width}/scale-{scale}");
                cases.push(Case::new(name, bound, batches(&[1, 5, 33]), move |net| {
                    net.embedding(dtype, width, scale)
                }));
            }
        }
    }
    for dtype in [DType::Mxfp4, DType::Mxfp6E2M3, DType::Mxfp6E3M2] {
        // The ends of the scale. 255 is a number in MXFP4 alone.
        let last = if dtype == DType::Mxfp4 { 255 } else { 253 };
        let exponents = [0, 1, 2, 3, 127, LARGEST_EXPONENT, 254, last];
        let name = format!("embed/{dtype}/exponents");
        cases.push(Case::new(name, Bound::Exact, batches(&[1, 5, 33]), move |net| {
            let table = net.microscaled(dtype, VOCAB_SIZE, 256, &exponents);
            net.g.embed(table, 1.0)
        }));
    }
    cases
}

/// Rows that come with the batch, as in the second part of a program that was split.
fn handed_in() -> Vec<Case> {
    let mut some_without_outputs = batches(&[4, 1, 5, 33]).with_input(100);
    some_without_outputs.batches[0].output_rows.clear();
    vec![
        Case::new("input", Bound::Exact, batches(&[1, 5, 33]).with_input(96), |net| {
            net.g.input(96)
        }),
        Case::new("input/select_rows", Bound::Exact, some_without_outputs, |net| {
            let x = net.g.input(100);
            net.g.select_rows(x)
        }),
        Case::new("input/then-ops", Bound::Float, batches(&[1, 5, 33]).with_input(64), |net| {
            let x = net.g.input(64);
            let (gains, square) = (net.gains(64), net.matrix(DType::F16, 64, 64));
            let normed = net.g.rms_norm(x, gains, 1e-5);
            let y = net.g.matmul(normed, square);
            net.g.add(x, y)
        }),
    ]
}

fn norms() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, group) in [(32, 32), (80, 80), (300, 300), (1024, 1024), (256, 64), (240, 80)] {
        let name = format!("rms_norm/{width}/group-{group}");
        cases.push(Case::new(name, Bound::Float, batches(&[1, 5, 33]), move |net| {
            let (x, weight) = (net.input(width), net.gains(group));
            net.g.rms_norm(x, weight, 1e-5)
        }));
    }
    // Here eps is most of the denominator.
    cases.push(Case::new("rms_norm/large-eps", Bound::Float, batches(&[3]), |net| {
        let (x, weight) = (net.input(64), net.gains(64));
        let x = net.g.scale(x, 1e-3);
        net.g.rms_norm(x, weight, 1e-4)
    }));
    cases
}

fn rotations() -> Vec<Case> {
    let mut cases = Vec::new();
    for style in [RopeStyle::Normal, RopeStyle::Neox] {
        for (head_dim, dims, magnitude) in
            [(64, 64, 1.0), (80, 80, 1.0), (128, 64, 1.0), (64, 48, 1.25)]
        {
            let name = format!("rope/{style:?}/{head_dim}/{dims}-dims/magnitude-{magnitude}");
            // A prompt, its continuation, then two sequences at different positions.
            let schedule =
                schedule(16, &[&[(0, 40)], &[(0, 1)], &[(1, 3), (0, 2)], &[(0, 1), (1, 1)]]);
            cases.push(Case::new(name, Bound::Float, schedule, move |net| {
                let x = net.input(3 * head_dim);
                net.g.rope(x, &rope(style, head_dim, dims, magnitude))
            }));
        }
    }
    cases.push(Case::new("rope/300-positions", Bound::Float, batches(&[300]), |net| {
        let x = net.input(64);
        net.g.rope(x, &rope(RopeStyle::Neox, 64, 64, 1.0))
    }));
    cases
}

fn element_wise() -> Vec<Case> {
    let mut cases = Vec::new();
    for activation in [Activation::Silu, Activation::GeluTanh] {
        for width in [24, 256, 300] {
            let name = format!("glu/{activation:?}/{width}");
            cases.push(Case::new(name, Bound::Float, batches(&[1, 5, 33]), move |net| {
                let (gate, up) = (net.input(width), net.input(width));
                net.g.glu(activation, gate, up)
            }));
        }
        // Gates from −60 to 60: the far ends of exp.
        let name = format!("glu/{activation:?}/large");
        cases.push(Case::new(name, Bound::Float, batches(&[33]), move |net| {
            let (gate, up) = (net.input(64), net.input(64));
            let gate = net.g.scale(gate, 20.0);
            net.g.glu(activation, gate, up)
        }));
    }
    cases.push(Case::new("add", Bound::Exact, batches(&[1, 5, 33]), |net| {
        let (a, b) = (net.input(100), net.input(100));
        net.g.add(a, b)
    }));
    cases.push(Case::new("add/itself", Bound::Exact, batches(&[5]), |net| {
        let a = net.input(48);
        net.g.add(a, a)
    }));
    cases.push(Case::new("scale", Bound::Exact, batches(&[1, 5, 33]), |net| {
        let x = net.input(100);
        net.g.scale(x, 0.37)
    }));
    let mut some_without_outputs = batches(&[4, 1, 5, 33]);
    some_without_outputs.batches[0].output_rows.clear();
    cases.push(Case::new("select_rows", Bound::Exact, some_without_outputs.clone(), |net| {
        let x = net.input(100);
        net.g.select_rows(x)
    }));
    cases.push(Case::new("select_rows/then-ops", Bound::Float, some_without_outputs, |net| {
        let x = net.input(64);
        let x = net.g.select_rows(x);
        let (gains, head) = (net.gains(64), net.matrix(DType::F16, 50, 64));
        let x = net.g.rms_norm(x, gains, 1e-5);
        net.g.matmul(x, head)
    }));
    cases
}
