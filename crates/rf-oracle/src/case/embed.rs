//! Rows of tables: embeddings, and inputs that come with the batch.

use rf_graph::{OperandFormat, ValueId};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::{Case, CaseShape};
use super::net::{LARGEST_EXPONENT, Net, part_of_super_block};
use super::schedule::{Schedule, VOCAB_SIZE};

/// Every row of a table `[rows, columns]` once, as f32.
pub fn embed(dtype: DType, rows: usize, columns: usize) -> Case {
    let name = format!("embed/{dtype}/{rows}x{columns}");
    let schedule = Schedule::each_row(rows);
    let what = (Some(OperandFormat::Weight(dtype)), CaseShape::Matrix { rows, columns });
    Case::new(name, what, bound(dtype), schedule, move |net, copies| {
        let table = net.table(dtype, rows, columns);
        let outs: Vec<_> = (0..copies.max(1)).map(|_| net.g.embed(table, 1.0)).collect();
        outs[outs.len() - 1]
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        let part = part_of_super_block(dtype);
        let widths = if part == 256 { [256, 768] } else { [part, 256] };
        for width in widths {
            for scale in [1.0, 16.0] {
                let name = format!("embed/{dtype}/{width}/scale-{scale}");
                cases.push(table(name, dtype, bound(dtype), width, scale));
            }
        }
    }
    for dtype in [DType::Mxfp4, DType::Mxfp6E2M3, DType::Mxfp6E3M2] {
        // The ends of the scale. 255 is a number in MXFP4 alone.
        let last = if dtype == DType::Mxfp4 { 255 } else { 253 };
        let exponents = [0, 1, 2, 3, 127, LARGEST_EXPONENT, 254, last];
        let name = format!("embed/{dtype}/exponents");
        let format = Some(OperandFormat::Weight(dtype));
        let schedule = Schedule::batches(&[1, 5, 33]);
        cases.push(Case::program_of(name, format, ErrorBound::Exact, schedule, move |net| {
            let table = net.microscaled(dtype, VOCAB_SIZE, 256, &exponents);
            net.g.embed(table, 1.0)
        }));
    }
    cases.extend(positions());
    cases.extend(inputs());
    cases.extend(media());
    cases
}

fn bound(dtype: DType) -> ErrorBound {
    if dtype == DType::F32 { ErrorBound::Exact } else { ErrorBound::Float }
}

fn table(name: String, dtype: DType, bound: ErrorBound, width: usize, scale: f32) -> Case {
    let schedule = Schedule::batches(&[1, 5, 33]);
    Case::program_of(name, Some(OperandFormat::Weight(dtype)), bound, schedule, move |net| {
        net.embedding(dtype, width, scale)
    })
}

/// Learned positions, of which some are beyond the table.
fn positions() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4K] {
        let width = if dtype.block_elements() == 1 { 100 } else { 256 };
        for positions in [300, 20, 1] {
            let schedule = Schedule::steps(
                16,
                &[&[(0, 17)], &[(0, 1)], &[(1, 25), (0, 7)], &[(0, 1), (1, 1)]],
            );
            let name = format!("embed_position/{dtype}/{positions}x{width}");
            let format = Some(OperandFormat::Weight(dtype));
            cases.push(Case::program_of(name, format, bound(dtype), schedule, move |net| {
                let table = net.table(dtype, positions, width);
                net.g.embed_position(table)
            }));
        }
    }
    cases
}

/// Rows in the place of token embeddings, and their parts that are added to later values.
fn media() -> Vec<Case> {
    let schedule = |width| {
        let steps: &[&[_]] = &[&[(0, 17)], &[(0, 1)], &[(1, 25), (0, 7)], &[(0, 1), (1, 1)]];
        Schedule::steps(16, steps).with_media(width, false)
    };
    let case = |name: &str, width, build: fn(&mut Net) -> ValueId| {
        let format = Some(OperandFormat::Weight(DType::Q8_0));
        Case::program_of(name, format, ErrorBound::Float, schedule(width), build)
    };
    vec![
        case("embed/media", 96, |net| net.media(DType::Q8_0, 96, 7.0)),
        // The rows of another table are those of the ids.
        case("embed/media/other-table", 96, |net| {
            let (x, other) = (net.media(DType::Q8_0, 96, 7.0), net.embedding(DType::Q8_0, 96, 2.0));
            net.g.add(x, other)
        }),
        case("add_media", 3 * 64, |net| {
            let x = net.media(DType::Q8_0, 64, 1.0);
            let x = net.g.scale(x, 0.5);
            let x = net.g.add_media(x, 2);
            net.g.add_media(x, 1)
        }),
    ]
}

/// Rows that come with the batch, as in the second part of a program that was split.
fn inputs() -> Vec<Case> {
    let with_input = |tokens: &[usize], width| Schedule::batches(tokens).with_input(width);
    let some_without_outputs = with_input(&[4, 1, 5, 33], 100).without_first_output();
    vec![
        Case::program_of("input", None, ErrorBound::Exact, with_input(&[1, 5, 33], 96), |net| {
            net.g.input(96)
        }),
        Case::program_of(
            "input/select_rows",
            None,
            ErrorBound::Exact,
            some_without_outputs,
            |net| {
                let x = net.g.input(100);
                net.g.select_rows(x)
            },
        ),
        Case::program_of(
            "input/then-ops",
            None,
            ErrorBound::Float,
            with_input(&[1, 5, 33], 64),
            |net| {
                let x = net.g.input(64);
                let (weight, square) = (net.norm_weight(64), net.matrix(DType::F16, 64, 64));
                let normed = net.g.rms_norm(x, weight, 1e-5);
                let y = net.g.matmul(normed, square);
                net.g.add(x, y)
            },
        ),
    ]
}
