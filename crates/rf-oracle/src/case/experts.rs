//! Mixture of experts.

use rf_graph::{Activation, ExpertGroups, GateFunction, OperandFormat, Router, ValueId};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::{Case, CaseShape};
use super::net::Net;
use super::schedule::Schedule;

const NUM_EXPERTS: usize = 6;
const COLUMNS: usize = 256;

pub(super) fn cases() -> Vec<Case> {
    let rows = || Schedule::batches(&[1, 5, 33]);
    let mut cases = Vec::new();
    for experts_per_token in [1, 2, 4] {
        let name = format!("route/{experts_per_token}-of-16");
        cases.push(Case::program_of(name, None, ErrorBound::Float, rows(), move |net| {
            let logits = net.input(16);
            net.g.route(logits, &Router::softmax(experts_per_token))
        }));
    }
    cases.extend(routers());
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::Q8_0] {
        cases.extend(router_matmuls(dtype));
    }
    for slots in [1, 3] {
        let name = format!("scale_experts/{slots}");
        cases.push(Case::program_of(name, None, ErrorBound::Float, rows(), move |net| {
            let (x, logits) = (net.input(slots * 37), net.input(NUM_EXPERTS));
            let route = net.g.route(logits, &Router::softmax(slots));
            net.g.scale_experts(x, route)
        }));
    }
    cases.push(Case::program_of("combine_experts", None, ErrorBound::Float, rows(), |net| {
        let (x, logits) = (net.input(3 * 40), net.input(NUM_EXPERTS));
        let route = net.g.route(logits, &Router::softmax(3));
        net.g.combine_experts(x, route)
    }));
    cases.push(Case::program_of(
        "combine_experts/residual",
        None,
        ErrorBound::Float,
        rows(),
        |net| {
            let (x, logits, residual) = (net.input(3 * 40), net.input(NUM_EXPERTS), net.input(40));
            let route = net.g.route(logits, &Router::softmax(3));
            let y = net.g.combine_experts(x, route);
            net.g.add(residual, y)
        },
    ));
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4K, DType::Q6K, DType::Mxfp4] {
        cases.extend(matmuls(dtype));
    }
    for dtype in [DType::F16, DType::Q8_0, DType::Q4K, DType::Mxfp4, DType::Iq4Xs] {
        cases.push(layer(dtype));
    }
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4K] {
        cases.extend([false, true].map(|is_gated| shared_expert(dtype, is_gated)));
    }
    for dtype in [DType::F16, DType::Bf16, DType::Q8_0, DType::Q4K, DType::Mxfp4, DType::Iq4Xs] {
        cases.push(gated_prompt(dtype));
    }
    for dtype in [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::Q4_0,
        DType::Q2K,
        DType::Q4K,
        DType::Mxfp4,
        DType::Mxfp6E3M2,
        DType::Iq2Xs,
        DType::Iq4Xs,
    ] {
        cases.extend(prompts(dtype));
    }
    cases
}

/// The selection of 8 experts by logits `[tokens, experts]`. Copies read the same logits.
pub fn route_of(experts: usize, schedule: Schedule) -> Case {
    let what = (None, CaseShape::Row { columns: experts });
    Case::new(
        format!("route/8-of-{experts}"),
        what,
        ErrorBound::Float,
        schedule,
        move |net, copies| {
            let logits = net.input(experts);
            let routes = (0..copies).map(|_| net.g.route(logits, &Router::softmax(8)));
            routes.last().unwrap_or(logits)
        },
    )
}

/// A routing: number of experts, and the router with or without its vectors.
struct Routing {
    experts: usize,
    router: Router,
    selection_bias: bool,
    expert_scale: bool,
}

fn routers() -> Vec<Case> {
    let plain =
        |experts, router| Routing { experts, router, selection_bias: false, expert_scale: false };
    let gated = |gate, router| Router { gate, ..router };
    let mut routings = vec![("512-experts".to_owned(), plain(512, Router::softmax(10)))];
    routings.push(("all-experts".to_owned(), plain(5, Router::softmax(5))));
    let shared = Router { group: 3, scale: 1.5, ..Router::softmax(4) };
    routings.push(("shared-weights".to_owned(), plain(37, shared)));
    for gate in [GateFunction::Softmax, GateFunction::Sigmoid, GateFunction::SoftmaxOfSelected] {
        let router = || gated(gate, Router::softmax(4));
        let scaled = || Router { normalize: false, scale: 2.5, ..router() };
        routings.push((format!("{gate:?}"), plain(37, router())));
        routings.push((format!("{gate:?}/scaled"), plain(37, scaled())));
        let expert_scale = Routing { expert_scale: true, ..plain(37, scaled()) };
        routings.push((format!("{gate:?}/expert-scale"), expert_scale));
        if gate == GateFunction::SoftmaxOfSelected {
            continue;
        }
        let bias = Routing { selection_bias: true, ..plain(37, router()) };
        routings.push((format!("{gate:?}/bias"), bias));
        for (count, selected) in [(8, 3), (2, 1), (32, 4)] {
            let groups = Some(ExpertGroups { count, selected });
            let router = Router { groups, ..gated(gate, Router::softmax(4)) };
            let name = format!("{gate:?}/{selected}-of-{count}-groups");
            routings.push((name.clone(), plain(64, router.clone())));
            let all = Routing { experts: 64, router, selection_bias: true, expert_scale: true };
            routings.push((format!("{name}/bias+expert-scale"), all));
        }
    }
    let case = |(name, routing): (String, Routing)| {
        let (name, schedule) = (format!("route/{name}"), Schedule::batches(&[1, 5, 33]));
        Case::program_of(name, None, ErrorBound::Float, schedule, move |net| route(net, &routing))
    };
    routings.into_iter().map(case).collect()
}

fn route(net: &mut Net, routing: &Routing) -> ValueId {
    let logits = net.input(routing.experts);
    let router = Router {
        selection_bias: routing.selection_bias.then(|| net.vector(routing.experts)),
        expert_scale: routing.expert_scale.then(|| net.norm_weight(routing.experts)),
        ..routing.router.clone()
    };
    net.g.route(logits, &router)
}

/// The logits of a router and the selection of experts by them.
fn router_matmuls(dtype: DType) -> Vec<Case> {
    let case = |(experts, columns, experts_per_token): (usize, usize, usize)| {
        let name = format!("router/{dtype}/{experts_per_token}-of-{experts}-by-{columns}");
        let schedule = Schedule::batches(&[1, 1, 5, 33]);
        let (format, bound) = (Some(OperandFormat::Weight(dtype)), ErrorBound::of_matmul(dtype));
        Case::program_of(name, format, bound, schedule, move |net| {
            let x = net.input(columns);
            let (weight, bias) = (net.matrix(dtype, experts, columns), net.vector(experts));
            let logits = net.g.linear(x, weight, Some(bias));
            net.g.route(logits, &Router::softmax(experts_per_token))
        })
    };
    if !dtype.is_float() {
        // All experts: the int8 operand may change the order of the selected experts.
        return vec![case((1, COLUMNS, 1))];
    }
    vec![case((16, COLUMNS, 2)), case((300, 2 * COLUMNS, 8)), case((5, 41, 5))]
}

/// The experts between two matmuls, with everything that a model has around them. All experts are
/// selected: the int8 operand of the first matmul may change their order.
fn layer(dtype: DType) -> Case {
    let bound = match ErrorBound::of_matmul(dtype) {
        ErrorBound::Float => ErrorBound::FloatModel,
        _ => ErrorBound::Int8Model,
    };
    let name = format!("experts/{dtype}/layer");
    let format = Some(OperandFormat::Weight(dtype));
    Case::program_of(name, format, bound, Schedule::batches(&[1, 3, 17]), move |net| {
        let (stream, x) = (net.input(COLUMNS), net.input(COLUMNS));
        let output = net.matrix(dtype, COLUMNS, COLUMNS);
        let y = net.g.matmul(x, output);
        let stream = net.g.add(stream, y);
        let gains = net.norm_weight(COLUMNS);
        let x = net.g.rms_norm(stream, gains, 1e-5);
        let (router, bias) =
            (net.matrix(DType::F32, NUM_EXPERTS, COLUMNS), net.vector(NUM_EXPERTS));
        let logits = net.g.linear(x, router, Some(bias));
        let route = net.g.route(logits, &Router::softmax(NUM_EXPERTS));
        // Blocks for a wave and a part of one.
        let inner = if dtype == DType::Q8_0 { 5 * COLUMNS } else { COLUMNS };
        let experts = |net: &mut Net, x, rows, columns| {
            let weights = (0..NUM_EXPERTS).map(|_| net.matrix(dtype, rows, columns)).collect();
            let bias = net.table(DType::F32, NUM_EXPERTS, rows);
            net.g.expert_matmul(x, route, weights, Some(bias))
        };
        let (gate, up) = (experts(net, x, inner, COLUMNS), experts(net, x, inner, COLUMNS));
        let y = net.g.glu(Activation::Silu, gate, up);
        let down = experts(net, y, COLUMNS, inner);
        let sum = net.g.combine_experts(down, route);
        let stream = net.g.add(stream, sum);
        let gains = net.norm_weight(COLUMNS);
        let x = net.g.rms_norm(stream, gains, 1e-5);
        let last = net.matrix(dtype, 64, COLUMNS);
        net.g.matmul(x, last)
    })
}

/// Experts with a shared one beside them, whose matrices are like theirs. All experts are selected:
/// the int8 operand may change their order.
fn shared_expert(dtype: DType, is_gated: bool) -> Case {
    let name = format!("experts/{dtype}/shared{}", if is_gated { "/gated" } else { "" });
    let (format, bound) = (Some(OperandFormat::Weight(dtype)), ErrorBound::of_gated_matmul(dtype));
    Case::program_of(name, format, bound, Schedule::batches(&[1, 2, 17]), move |net| {
        let x = net.input(COLUMNS);
        let router = net.matrix(DType::F32, NUM_EXPERTS, COLUMNS);
        let logits = net.g.matmul(x, router);
        let route = net.g.route(logits, &Router::softmax(NUM_EXPERTS));
        let experts = |net: &mut Net, x, rows| {
            let weights = (0..NUM_EXPERTS).map(|_| net.matrix(dtype, rows, COLUMNS)).collect();
            net.g.expert_matmul(x, route, weights, None)
        };
        let (gate, up) = (experts(net, x, COLUMNS), experts(net, x, COLUMNS));
        let y = net.g.glu(Activation::Silu, gate, up);
        let y = experts(net, y, 64);
        let sum = net.g.combine_experts(y, route);
        let shared = |net: &mut Net, x, rows| {
            let weight = net.matrix(dtype, rows, COLUMNS);
            net.g.matmul(x, weight)
        };
        let (gate, up) = (shared(net, x, COLUMNS), shared(net, x, COLUMNS));
        let y = net.g.glu(Activation::Silu, gate, up);
        let mut y = shared(net, y, 64);
        if is_gated {
            let weight = net.matrix(DType::F32, 1, COLUMNS);
            let gate = net.g.matmul(x, weight);
            y = net.g.sigmoid_gate(y, gate);
        }
        net.g.add(sum, y)
    })
}

fn matmuls(dtype: DType) -> Vec<Case> {
    let format = Some(OperandFormat::Weight(dtype));
    let schedule = || Schedule::batches(&[1, 2, 13]);
    let bound = ErrorBound::of_matmul(dtype);
    let mut cases = Vec::new();
    for experts_per_token in [1, 3] {
        // One input per token, or one per token and selected expert.
        for (input, columns) in
            [("shared-input", COLUMNS), ("input-per-slot", experts_per_token * COLUMNS)]
        {
            let name = format!("expert_matmul/{dtype}/{experts_per_token}-used/{input}");
            cases.push(Case::program_of(name, format, bound, schedule(), move |net| {
                let (x, logits) = (net.input(columns), net.input(NUM_EXPERTS));
                let route = net.g.route(logits, &Router::softmax(experts_per_token));
                let experts = (0..NUM_EXPERTS).map(|_| net.matrix(dtype, 37, COLUMNS)).collect();
                net.g.expert_matmul(x, route, experts, None)
            }));
        }
    }
    let name = format!("expert_matmul/{dtype}/bias");
    cases.push(Case::program_of(name, format, bound, schedule(), move |net| {
        let (x, logits) = (net.input(COLUMNS), net.input(NUM_EXPERTS));
        let route = net.g.route(logits, &Router::softmax(3));
        let experts = (0..NUM_EXPERTS).map(|_| net.matrix(dtype, 37, COLUMNS)).collect();
        let bias = net.table(DType::F32, NUM_EXPERTS, 37);
        net.g.expert_matmul(x, route, experts, Some(bias))
    }));
    for activation in Activation::GATED {
        let bound = ErrorBound::of_gated_matmul(dtype);
        let name = format!("experts/{dtype}/{activation:?}");
        cases.push(Case::program_of(name, format, bound, schedule(), move |net| {
            gated_experts(net, dtype, activation)
        }));
    }
    cases
}

/// Batches whose slots are grouped by expert: more than a tile of slots for an expert, a last tile
/// that is nearly empty, and experts without any.
fn prompts(dtype: DType) -> Vec<Case> {
    let case = |name: &str, tokens: &[usize], experts: usize, experts_per_token: usize| {
        let (format, bound) = (Some(OperandFormat::Weight(dtype)), ErrorBound::of_matmul(dtype));
        let name = format!("expert_matmul/{dtype}/{name}");
        Case::program_of(name, format, bound, Schedule::batches(tokens), move |net| {
            let (x, logits) = (net.input(COLUMNS), net.input(experts));
            let route = net.g.route(logits, &Router::softmax(experts_per_token));
            let [gate, up] = [0, 1].map(|_| {
                let weights = (0..experts).map(|_| net.matrix(dtype, 37, COLUMNS)).collect();
                let bias = net.table(DType::F32, experts, 37);
                net.g.expert_matmul(x, route, weights, Some(bias))
            });
            net.g.add(gate, up)
        })
    };
    vec![
        case("many-slots", &[193, 70], 3, 2),
        // Some of the 25 experts have no slot.
        case("few-slots", &[51, 60], 25, 1),
    ]
}

/// Gate, up and down of grouped slots with biases: several tiles of slots for an expert, and rows
/// of gate and up that end within a tile.
fn gated_prompt(dtype: DType) -> Case {
    const ROWS: usize = 96;
    let (format, bound) = (Some(OperandFormat::Weight(dtype)), ErrorBound::of_gated_matmul(dtype));
    let name = format!("experts/{dtype}/prompt");
    Case::program_of(name, format, bound, Schedule::batches(&[210, 70]), move |net| {
        let (x, logits) = (net.input(COLUMNS), net.input(3));
        let route = net.g.route(logits, &Router::softmax(2));
        let experts = |net: &mut Net, x, rows, columns| {
            let weights = (0..3).map(|_| net.matrix(dtype, rows, columns)).collect();
            let bias = net.table(DType::F32, 3, rows);
            net.g.expert_matmul(x, route, weights, Some(bias))
        };
        let rows = if dtype.block_elements() > ROWS { COLUMNS } else { ROWS };
        let (gate, up) = (experts(net, x, rows, COLUMNS), experts(net, x, rows, COLUMNS));
        let y = net.g.glu(Activation::ClampedSwiglu, gate, up);
        let y = experts(net, y, 37, rows);
        net.g.combine_experts(y, route)
    })
}

/// Experts with a gated unit.
fn gated_experts(net: &mut Net, dtype: DType, activation: Activation) -> ValueId {
    let (x, logits) = (net.input(COLUMNS), net.input(NUM_EXPERTS));
    let route = net.g.route(logits, &Router::softmax(2));
    let mut experts = |rows, columns| -> Vec<_> {
        (0..NUM_EXPERTS).map(|_| net.matrix(dtype, rows, columns)).collect()
    };
    let (gate, up) = (experts(COLUMNS, COLUMNS), experts(COLUMNS, COLUMNS));
    let down = experts(64, COLUMNS);
    let gate = net.g.expert_matmul(x, route, gate, None);
    let up = net.g.expert_matmul(x, route, up, None);
    let x = net.g.glu(activation, gate, up);
    let x = net.g.expert_matmul(x, route, down, None);
    net.g.combine_experts(x, route)
}
