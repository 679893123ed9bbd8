//! Mixture of experts.

use rf_quant::DType;

use super::bound::Bound;
use super::definition::{Case, Format};
use super::schedule::Schedule;
use crate::op::Activation;

const NUM_EXPERTS: usize = 6;
const COLUMNS: usize = 256;

pub(super) fn cases() -> Vec<Case> {
    let rows = || Schedule::batches(&[1, 5, 33]);
    let mut cases = Vec::new();
    for experts_per_token in [1, 2, 4] {
        let name = format!("route/{experts_per_token}-of-16");
        cases.push(Case::program_of(name, None, Bound::Float, rows(), move |net| {
            let logits = net.input(16);
            net.g.route(logits, experts_per_token)
        }));
    }
    cases.push(Case::program_of("combine_experts", None, Bound::Float, rows(), |net| {
        let (x, logits) = (net.input(3 * 40), net.input(NUM_EXPERTS));
        let route = net.g.route(logits, 3);
        net.g.combine_experts(x, route)
    }));
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4K, DType::Q6K, DType::Mxfp4] {
        cases.extend(matmuls(dtype));
    }
    cases
}

fn matmuls(dtype: DType) -> Vec<Case> {
    let format = Some(Format::Weight(dtype));
    let schedule = || Schedule::batches(&[1, 2, 13]);
    let bound = Bound::of_matmul(dtype);
    let mut cases = Vec::new();
    for experts_per_token in [1, 3] {
        // One input per token, or one per token and selected expert.
        for (input, columns) in
            [("shared-input", COLUMNS), ("input-per-slot", experts_per_token * COLUMNS)]
        {
            let name = format!("expert_matmul/{dtype}/{experts_per_token}-used/{input}");
            cases.push(Case::program_of(name, format, bound, schedule(), move |net| {
                let (x, logits) = (net.input(columns), net.input(NUM_EXPERTS));
                let route = net.g.route(logits, experts_per_token);
                let experts = (0..NUM_EXPERTS).map(|_| net.matrix(dtype, 37, COLUMNS)).collect();
                net.g.expert_matmul(x, route, experts)
            }));
        }
    }
    let (name, bound) = (format!("experts/{dtype}"), Bound::of_gated_matmul(dtype));
    cases.push(Case::program_of(name, format, bound, schedule(), move |net| {
        let (x, logits) = (net.input(COLUMNS), net.input(NUM_EXPERTS));
        let route = net.g.route(logits, 2);
        let mut experts = |rows, columns| -> Vec<_> {
            (0..NUM_EXPERTS).map(|_| net.matrix(dtype, rows, columns)).collect()
        };
        let (gate, up) = (experts(COLUMNS, COLUMNS), experts(COLUMNS, COLUMNS));
        let down = experts(64, COLUMNS);
        let gate = net.g.expert_matmul(x, route, gate);
        let up = net.g.expert_matmul(x, route, up);
        let x = net.g.glu(Activation::Silu, gate, up);
        let x = net.g.expert_matmul(x, route, down);
        net.g.combine_experts(x, route)
    }));
    cases
}
