//! Ops on rows: norms, `RoPE`, gated linear units, sums.

use rf_graph::{
    Activation, Function, Gating, PositionScale, Rope, RopeAxis, RopeStyle, ValueId, Xielu,
};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::{Case, CaseShape};
use super::net::Net;
use super::schedule::Schedule;

/// RMS norm of rows `[tokens, columns]`. Copies form a chain: each reads the result of the one
/// before.
pub fn rms_norm(columns: usize, schedule: Schedule) -> Case {
    let name = format!("rms_norm/{columns}");
    let what = (None, CaseShape::Row { columns });
    Case::new(name, what, ErrorBound::Float, schedule, move |net, copies| {
        let mut x = net.input(columns);
        for _ in 0..copies {
            let weight = net.norm_weight(columns);
            x = net.g.rms_norm(x, weight, 1e-5);
        }
        x
    })
}

/// Layer norm of rows `[tokens, columns]`. Copies form a chain.
pub fn layer_norm(columns: usize, schedule: Schedule) -> Case {
    let name = format!("layer_norm/{columns}");
    let what = (None, CaseShape::Row { columns });
    Case::new(name, what, ErrorBound::Float, schedule, move |net, copies| {
        let mut x = net.input(columns);
        for _ in 0..copies {
            let (weight, bias) = (net.norm_weight(columns), net.vector(columns));
            x = net.g.layer_norm(x, weight, Some(bias), 1e-5);
        }
        x
    })
}

/// RoPE of `num_heads` heads of 128 elements. Copies form a chain.
pub fn rope_of_heads(num_heads: usize, schedule: Schedule) -> Case {
    let columns = num_heads * 128;
    let what = (None, CaseShape::Row { columns });
    Case::new(
        format!("rope/{num_heads}x128"),
        what,
        ErrorBound::Float,
        schedule,
        move |net, copies| {
            let mut x = net.input(columns);
            for _ in 0..copies {
                x = net.g.rope(x, &rope(RopeStyle::Neox, 128, 128, 1.0));
            }
            x
        },
    )
}

/// Negation of rows `[tokens, columns]`: the op with the least work. Copies form a chain: each
/// reads the result of the one before.
pub fn scale(columns: usize, schedule: Schedule) -> Case {
    let what = (None, CaseShape::Row { columns });
    Case::new(format!("scale/{columns}"), what, ErrorBound::Exact, schedule, move |net, copies| {
        let mut x = net.input(columns);
        for _ in 0..copies {
            x = net.g.scale(x, -1.0);
        }
        x
    })
}

/// `RoPE` with base 10000.
pub(super) fn rope(style: RopeStyle, head_dim: usize, dims: usize, magnitude: f32) -> Rope {
    let inv_freq = (0..dims / 2).map(|i| 10_000_f64.powf(-2.0 * i as f64 / dims as f64)).collect();
    Rope { style, head_dim, inv_freq, magnitude, axes: None }
}

/// The axis of a pair, of so many pairs.
pub(super) type AxisRule = fn(usize, usize) -> RopeAxis;

/// Rules with their names.
const AXES: [(&str, AxisRule); 3] = [
    ("sections", |pair, pairs| match 4 * pair / pairs {
        0 => RopeAxis::Time,
        1 | 2 => RopeAxis::Row,
        _ => RopeAxis::Column,
    }),
    ("interleaved", |pair, pairs| match pair % 3 {
        _ if pair + 4 > pairs => RopeAxis::Fourth,
        0 => RopeAxis::Time,
        1 => RopeAxis::Row,
        _ => RopeAxis::Column,
    }),
    ("halves", |pair, pairs| if 2 * pair < pairs { RopeAxis::Row } else { RopeAxis::Column }),
];

/// `RoPE` whose pairs take different coordinates.
pub(super) fn rope_with_axes(
    style: RopeStyle,
    head_dim: usize,
    dims: usize,
    axis: AxisRule,
) -> Rope {
    let axes = (0..dims / 2).map(|pair| axis(pair, dims / 2)).collect();
    Rope { axes: Some(axes), ..rope(style, head_dim, dims, 1.0) }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = norms();
    cases.extend(layer_norms());
    cases.extend(ropes());
    cases.extend(gated());
    cases.extend(element_wise());
    cases.extend(sums_over_parts());
    cases.extend(maps());
    cases.extend(gates());
    cases.extend(position_scales());
    cases.extend(slices());
    cases
}

fn case(
    name: impl Into<String>,
    bound: ErrorBound,
    tokens: &[usize],
    build: impl Fn(&mut Net) -> ValueId + Send + Sync + 'static,
) -> Case {
    Case::program_of(name, None, bound, Schedule::batches(tokens), build)
}

fn norms() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, group) in [(32, 32), (80, 80), (300, 300), (1024, 1024), (256, 64), (240, 80)] {
        let name = format!("rms_norm/{width}/group-{group}");
        cases.push(case(name, ErrorBound::Float, &[1, 5, 33], move |net| {
            let (x, weight) = (net.input(width), net.norm_weight(group));
            net.g.rms_norm(x, weight, 1e-5)
        }));
    }
    // Here eps dominates the denominator.
    cases.push(case("rms_norm/large-eps", ErrorBound::Float, &[3], |net| {
        let (x, weight) = (net.input(64), net.norm_weight(64));
        let x = net.g.scale(x, 1e-3);
        net.g.rms_norm(x, weight, 1e-4)
    }));
    cases
}

fn layer_norms() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [32, 80, 300, 1024] {
        for has_bias in [false, true] {
            let name = format!("layer_norm/{width}{}", if has_bias { "/bias" } else { "" });
            cases.push(case(name, ErrorBound::Float, &[1, 5, 33], move |net| {
                let (x, weight) = (net.input(width), net.norm_weight(width));
                let bias = has_bias.then(|| net.vector(width));
                net.g.layer_norm(x, weight, bias, 1e-5)
            }));
        }
    }
    // The norm is the operand of a matmul, and eps dominates the denominator.
    cases.push(case("layer_norm/then-matmul", ErrorBound::Float, &[1, 5], |net| {
        let (x, weight, bias) = (net.input(64), net.norm_weight(64), net.vector(64));
        let x = net.g.scale(x, 1e-3);
        let x = net.g.layer_norm(x, weight, Some(bias), 1e-4);
        let w = net.matrix(DType::F32, 37, 64);
        net.g.matmul(x, w)
    }));
    cases
}

fn ropes() -> Vec<Case> {
    let mut cases = Vec::new();
    for style in [RopeStyle::Normal, RopeStyle::Neox] {
        for (head_dim, dims, magnitude) in
            [(64, 64, 1.0), (80, 80, 1.0), (128, 64, 1.0), (64, 48, 1.25)]
        {
            let name = format!("rope/{style:?}/{head_dim}/{dims}-dims/magnitude-{magnitude}");
            // A prompt, its continuation, then two sequences at different positions.
            let schedule =
                Schedule::steps(16, &[&[(0, 40)], &[(0, 1)], &[(1, 3), (0, 2)], &[(0, 1), (1, 1)]]);
            cases.push(Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
                let x = net.input(3 * head_dim);
                net.g.rope(x, &rope(style, head_dim, dims, magnitude))
            }));
        }
    }
    for style in [RopeStyle::Normal, RopeStyle::Neox] {
        for (name, axes) in AXES {
            let steps: &[&[_]] = &[&[(0, 40)], &[(0, 1)], &[(1, 3), (0, 2)], &[(0, 1), (1, 1)]];
            let text = Schedule::steps(16, steps);
            let divided = text.clone().with_positions();
            for (positions, schedule) in [("text", text), ("positions", divided)] {
                let name = format!("rope/{positions}/{style:?}/{name}");
                cases.push(Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
                    let x = net.input(3 * 80);
                    net.g.rope(x, &rope_with_axes(style, 80, 64, axes))
                }));
            }
        }
    }
    cases.push(case("rope/300-positions", ErrorBound::Float, &[300], |net| {
        let x = net.input(64);
        net.g.rope(x, &rope(RopeStyle::Neox, 64, 64, 1.0))
    }));
    cases
}

fn gated() -> Vec<Case> {
    let mut cases = Vec::new();
    for activation in Activation::GATED {
        for width in [24, 256, 300] {
            let name = format!("glu/{activation:?}/{width}");
            cases.push(case(name, ErrorBound::Float, &[1, 5, 33], move |net| {
                let (gate, up) = (net.input(width), net.input(width));
                net.g.glu(activation, gate, up)
            }));
        }
        for (width, group) in [(128, 128), (640, 128), (1024, 128), (256, 64)] {
            let name = format!("glu/{activation:?}/{width}/norm-of-{group}");
            cases.push(case(name, ErrorBound::Float, &[1, 5, 33], move |net| {
                let (gate, x) = (net.input(width), net.input(width));
                let weight = net.norm_weight(group);
                let x = net.g.rms_norm(x, weight, 1e-5);
                net.g.glu(activation, gate, x)
            }));
        }
        // Gates from −60 to 60: the far ends of exp.
        let name = format!("glu/{activation:?}/large");
        cases.push(case(name, ErrorBound::Float, &[33], move |net| {
            let (gate, up) = (net.input(64), net.input(64));
            let gate = net.g.scale(gate, 20.0);
            net.g.glu(activation, gate, up)
        }));
    }
    cases
}

fn element_wise() -> Vec<Case> {
    let some_without_outputs = || Schedule::batches(&[4, 1, 5, 33]).without_first_output();
    vec![
        case("add", ErrorBound::Exact, &[1, 5, 33], |net| {
            let (a, b) = (net.input(100), net.input(100));
            net.g.add(a, b)
        }),
        case("add/itself", ErrorBound::Exact, &[5], |net| {
            let a = net.input(48);
            net.g.add(a, a)
        }),
        case("scale", ErrorBound::Exact, &[1, 5, 33], |net| {
            let x = net.input(100);
            net.g.scale(x, 0.37)
        }),
        Case::program_of("select_rows", None, ErrorBound::Exact, some_without_outputs(), |net| {
            let x = net.input(100);
            net.g.select_rows(x)
        }),
        Case::program_of(
            "select_rows/then-ops",
            None,
            ErrorBound::Float,
            some_without_outputs(),
            |net| {
                let x = net.input(64);
                let x = net.g.select_rows(x);
                let (weight, head) = (net.norm_weight(64), net.matrix(DType::F16, 50, 64));
                let x = net.g.rms_norm(x, weight, 1e-5);
                net.g.matmul(x, head)
            },
        ),
    ]
}

/// Sums over parts, of as many elements as kernels process together and others.
fn sums_over_parts() -> Vec<Case> {
    let widths = [1, 3, 4, 37, 2050].into_iter();
    let mut cases: Vec<Case> = widths
        .map(|width| {
            case(format!("all_reduce/{width}"), ErrorBound::Float, &[1, 2, 9], move |net| {
                let (x, y) = (net.input(width), net.input(width));
                let y = net.g.all_reduce(y);
                net.g.add(x, y)
            })
        })
        .collect();
    let schedule = Schedule::batches(&[4, 1, 5]).without_first_output();
    cases.push(Case::program_of("all_reduce/rows", None, ErrorBound::Float, schedule, |net| {
        // The first sum has no row where there are no outputs, and the second has another reader.
        let x = net.input(64);
        let y = net.g.select_rows(x);
        let z = net.g.all_reduce(y);
        let y = net.g.scale(z, 0.3);
        let sum = net.g.all_reduce(y);
        let y = net.g.add(sum, y);
        net.g.mul(y, z)
    }));
    cases
}

/// Functions of single elements, also far from zero.
fn maps() -> Vec<Case> {
    let activations = Activation::GATED
        .into_iter()
        .map(|activation| (format!("activation/{activation:?}"), Function::Activation(activation)));
    let softcaps = [30.0, 0.5].map(|cap| (format!("softcap/{cap}"), Function::Softcap(cap)));
    let others = [
        ("activation/GeluErf", Function::Activation(Activation::GeluErf)),
        ("clamp", Function::Clamp { min: -0.5, max: 0.75 }),
    ];
    let others = others.map(|(name, function)| (name.to_owned(), function));
    // The bound of the exponential is that of models, and one that elements reach.
    let xielus = [-1e-6, -0.5].map(|eps| {
        let xielu = Xielu { alpha_p: 0.8, alpha_n: 1.1, beta: 0.5, eps };
        (format!("activation/Xielu/{eps}"), Function::Xielu(xielu))
    });
    let mut cases = Vec::new();
    let functions = activations.into_iter().chain(softcaps).chain(others).chain(xielus);
    for (name, function) in functions {
        for (width, factor) in [(1, 1.0), (99, 1.0), (300, 20.0)] {
            let name = format!("{name}/{width}");
            cases.push(case(name, ErrorBound::Float, &[1, 5, 33], move |net| {
                let x = net.input(width);
                let x = net.g.scale(x, factor);
                net.g.map(x, function)
            }));
        }
    }
    cases
}

fn gates() -> Vec<Case> {
    let mut cases = Vec::new();
    let shapes = [(1, 1), (31, 1), (31, 31), (300, 1), (300, 4), (300, 300), (93, 31)];
    for (name, function) in [("sigmoid", Gating::Sigmoid), ("softplus", Gating::Softplus)] {
        for (width, gates) in shapes {
            let name = format!("{name}_gate/{width}/gate-{gates}");
            cases.push(case(name, ErrorBound::Float, &[1, 5, 33], move |net| {
                let (x, gate) = (net.input(width), net.input(gates));
                let gate = net.g.scale(gate, 5.0);
                net.g.gate(function, x, gate)
            }));
        }
    }
    cases
}

fn position_scales() -> Vec<Case> {
    let scales = [
        ("llama4", PositionScale { factor: 0.1, period: 8, offset: 1 }),
        ("mistral3", PositionScale { factor: 0.3, period: 16, offset: 0 }),
        ("steep", PositionScale { factor: 5.0, period: 1, offset: 0 }),
    ];
    let case = |(name, scale)| {
        let schedule =
            Schedule::steps(16, &[&[(0, 40)], &[(0, 1)], &[(1, 3), (0, 2)], &[(0, 1), (1, 1)]]);
        let name = format!("scale_by_position/{name}");
        Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
            let x = net.input(99);
            net.g.scale_by_position(x, scale)
        })
    };
    scales.into_iter().map(case).collect()
}

fn slices() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, columns) in
        [(100, 0..100), (100, 0..1), (100, 99..100), (101, 1..100), (67, 33..50), (512, 128..384)]
    {
        let name = format!("slice/{width}/{}-{}", columns.start, columns.end);
        cases.push(case(name, ErrorBound::Exact, &[1, 5, 33], move |net| {
            let x = net.input(width);
            net.g.slice(x, columns.clone())
        }));
    }
    // Several slices of one value, which other ops read.
    cases.push(case("slice/parts", ErrorBound::Float, &[1, 5, 33], |net| {
        let x = net.input(3 * 37);
        let [a, b, c] = [0, 1, 2].map(|i| net.g.slice(x, i * 37..(i + 1) * 37));
        let y = net.g.glu(Activation::Silu, a, b);
        net.g.add(y, c)
    }));
    cases
}
