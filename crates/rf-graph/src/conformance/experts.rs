//! Mixture of experts.

use rf_quant::DType;

use super::inputs::batches;
use super::{Bound, Case};
use crate::op::Activation;

const EXPERTS: usize = 6;
const COLUMNS: usize = 256;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for used in [1, 2, 4] {
        let name = format!("route/{used}-of-16");
        cases.push(Case::new(name, Bound::Float, batches(&[1, 5, 33]), move |net| {
            let logits = net.input(16);
            net.g.route(logits, used)
        }));
    }
    cases.push(Case::new("combine_experts", Bound::Float, batches(&[1, 5, 33]), |net| {
        let (x, logits) = (net.input(3 * 40), net.input(EXPERTS));
        let route = net.g.route(logits, 3);
        net.g.combine_experts(x, route)
    }));
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4K, DType::Q6K, DType::Mxfp4] {
        let bound = Bound::of_product(dtype);
        for used in [1, 3] {
            let name = format!("expert_matmul/{dtype}/{used}-used/shared-input");
            cases.push(Case::new(name, bound, batches(&[1, 2, 13]), move |net| {
                let (x, logits) = (net.input(COLUMNS), net.input(EXPERTS));
                let route = net.g.route(logits, used);
                let experts = (0..EXPERTS).map(|_| net.matrix(dtype, 37, COLUMNS)).collect();
                net.g.expert_matmul(x, route, experts)
            }));
            let name = format!("expert_matmul/{dtype}/{used}-used/input-per-slot");
            cases.push(Case::new(name, bound, batches(&[1, 2, 13]), move |net| {
                let (x, logits) = (net.input(used * COLUMNS), net.input(EXPERTS));
                let route = net.g.route(logits, used);
                let experts = (0..EXPERTS).map(|_| net.matrix(dtype, 37, COLUMNS)).collect();
                net.g.expert_matmul(x, route, experts)
            }));
        }
        let name = format!("experts/{dtype}");
        let bound = Bound::of_gated_product(dtype);
        cases.push(Case::new(name, bound, batches(&[1, 2, 13]), move |net| {
            let (x, logits) = (net.input(COLUMNS), net.input(EXPERTS));
            let route = net.g.route(logits, 2);
            let mut experts = |rows, columns| -> Vec<_> {
                (0..EXPERTS).map(|_| net.matrix(dtype, rows, columns)).collect()
            };
            let (gate, up) = (experts(COLUMNS, COLUMNS), experts(COLUMNS, COLUMNS));
            let down = experts(64, COLUMNS);
            let gate = net.g.expert_matmul(x, route, gate);
            let up = net.g.expert_matmul(x, route, up);
            let x = net.g.glu(Activation::Silu, gate, up);
            let x = net.g.expert_matmul(x, route, down);
            net.g.combine_experts(x, route)
        }));
    }
    cases
}
