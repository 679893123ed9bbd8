//! The shared expert as one more of the experts.

use super::uses::Uses;
use crate::graph::Graph;
use crate::op::{Activation, Epilogue, ExpertMatMul, Gating, MatMul, Op, Prologue};
use crate::value::{ValueId, WeightId};

/// The steps of a mixture of experts and of the shared expert beside it.
struct Mixture {
    route: usize,
    /// Gate, up and down of the experts.
    experts: [usize; 3],
    glu: usize,
    combine: usize,
    /// Gate, up and down of the shared expert, with their weights.
    shared: [(usize, WeightId); 3],
    shared_glu: usize,
    /// The matmul of the shared expert's gate value, and the op that multiplies by it.
    shared_gate: Option<[usize; 2]>,
    /// `Σ p·y + shared`.
    add: usize,
}

/// `Σ p·expert(x) + σ(x·g)·shared(x)` → the sum over one expert more, whose weight is the gate.
/// Condition: the matrices of the shared expert have the shape and the format of the others.
pub(super) fn shared_expert(graph: &mut Graph, most_slots: usize) {
    let uses = Uses::of(graph);
    let steps = 0..graph.ops.len();
    let mixtures: Vec<Mixture> = steps.filter_map(|step| mixture(graph, &uses, step)).collect();
    // The steps to leave out, and those to repeat before another.
    let (mut removed, mut moved) = (Vec::new(), Vec::new());
    for mixture in mixtures {
        let Mixture { route, experts, glu, combine, shared, shared_glu, shared_gate, add } =
            mixture;
        let Op::Route { router, out: route_out, .. } = &graph.ops[route] else { continue };
        let (slots, route_out) = (router.slots() + 1, *route_out);
        if slots > most_slots {
            continue;
        }
        let widen = |graph: &mut Graph, id: ValueId| {
            let width = &mut graph.values[id.index()].width;
            *width = *width / (slots - 1) * slots;
        };
        widen(graph, route_out);
        let gate = shared_gate.and_then(|[matmul, _]| output_of(&graph.ops[matmul]));
        if let Op::Route { shared_gate, router, .. } = &mut graph.ops[route] {
            *shared_gate = gate;
            router.shared_expert = true;
        }
        for (step, (_, weight)) in experts.into_iter().zip(shared) {
            if let Op::ExpertMatMul(m) = &mut graph.ops[step] {
                m.projections[0].weights.push(weight);
                let out = m.projections[0].out;
                widen(graph, out);
            }
        }
        if let Op::Glu { out, .. } = graph.ops[glu] {
            widen(graph, out);
        }
        if let (Op::Add { out: sum, .. }, Op::CombineExperts { out, .. }) =
            pair(graph, add, combine)
        {
            *out = *sum;
        }
        removed.extend([add, shared_glu]);
        removed.extend(shared.map(|(step, _)| step));
        removed.extend(shared_gate.into_iter().flatten());
        moved.extend(shared_gate.map(|[matmul, _]| (route, matmul)));
    }
    let mut ops = Vec::with_capacity(graph.ops.len());
    for (step, op) in graph.ops.iter().enumerate() {
        let before = moved.iter().filter(|(place, _)| *place == step);
        ops.extend(before.map(|(_, from)| graph.ops[*from].clone()));
        if !removed.contains(&step) {
            ops.push(op.clone());
        }
    }
    graph.ops = ops;
}

/// Two ops of a graph, `first` after `second`; the second one to be changed.
fn pair(graph: &mut Graph, first: usize, second: usize) -> (&Op, &mut Op) {
    let (before, after) = graph.ops.split_at_mut(first);
    (&after[0], &mut before[second])
}

/// The mixture whose sum with the shared expert is the op at `add`.
fn mixture(graph: &Graph, uses: &Uses, add: usize) -> Option<Mixture> {
    let Op::Add { a, b, .. } = graph.ops[add] else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(sum, shared)| {
        let combine = uses.writer_of_only_read(sum)?;
        let Op::CombineExperts { x: y, route: selected, residual: None, .. } = graph.ops[combine]
        else {
            return None;
        };
        let (down, h, down_weight) = expert_projection(graph, uses, y, selected)?;
        let (glu, activation, [gate, up]) = gated_unit(graph, uses, h)?;
        let (gate, x, gate_weight) = expert_projection(graph, uses, gate, selected)?;
        let (up, up_x, up_weight) = expert_projection(graph, uses, up, selected)?;
        let route = *uses.writer.get(&selected)?;
        let Op::Route { router, .. } = &graph.ops[route] else { return None };
        let is_read_here_only = uses.num_readers(selected) == 4;
        let is_plain = !router.shared_expert && x == up_x && selected != graph.output();
        // The input of the experts must be there when the gate is multiplied, before the route.
        let is_ready = uses.writer.get(&x).is_some_and(|writer| *writer < route);
        if !(is_read_here_only && is_plain && is_ready) {
            return None;
        }

        let (shared_gate, shared) = match shared_gate(graph, uses, shared, x) {
            Some((steps, shared)) => (Some(steps), shared),
            None => (None, shared),
        };
        let (shared_down, h) = projection(graph, uses, shared)?;
        let (shared_glu, shared_activation, [g, u]) = gated_unit(graph, uses, h)?;
        let (shared_gate_proj, gate_x) = projection(graph, uses, g)?;
        let (shared_up, up_x) = projection(graph, uses, u)?;
        let shared = [shared_gate_proj, shared_up, shared_down];
        let likes = [gate_weight, up_weight, down_weight];
        let is_alike =
            |((_, a), b): (&(usize, WeightId), WeightId)| graph.weight(*a) == graph.weight(b);
        let is_same = shared.iter().zip(likes).all(is_alike)
            && shared_activation == activation
            && (gate_x, up_x) == (x, x);
        is_same.then_some(Mixture {
            route,
            experts: [gate, up, down],
            glu,
            combine,
            shared,
            shared_glu,
            shared_gate,
            add,
        })
    })
}

/// The op that writes a value as the only projection of the experts, its input, and a weight of it.
fn expert_projection(
    graph: &Graph,
    uses: &Uses,
    id: ValueId,
    selected: ValueId,
) -> Option<(usize, ValueId, WeightId)> {
    let step = uses.writer_of_only_read(id)?;
    let Op::ExpertMatMul(ExpertMatMul { x, route, projections, glu: None, combine: None }) =
        &graph.ops[step]
    else {
        return None;
    };
    let [projection] = projections.as_slice() else { return None };
    let is_plain = projection.bias.is_none() && *route == selected;
    is_plain.then_some((step, *x, projection.weights[0]))
}

/// The matmul that writes a value as its only projection with its weight, and the input.
fn projection(graph: &Graph, uses: &Uses, id: ValueId) -> Option<((usize, WeightId), ValueId)> {
    let step = uses.writer_of_only_read(id)?;
    let Op::MatMul(MatMul {
        prologue: Prologue::Plain(x),
        projections,
        residual: None,
        epilogue: Epilogue::None,
    }) = &graph.ops[step]
    else {
        return None;
    };
    let [projection] = projections.as_slice() else { return None };
    projection.bias.is_none().then_some(((step, projection.weight), *x))
}

/// The gated unit that writes a value.
fn gated_unit(
    graph: &Graph,
    uses: &Uses,
    id: ValueId,
) -> Option<(usize, Activation, [ValueId; 2])> {
    let step = uses.writer_of_only_read(id)?;
    let Op::Glu { activation, gate, up, .. } = graph.ops[step] else { return None };
    Some((step, activation, [gate, up]))
}

/// The steps of a gate on a value with one column that is computed from `x`, and the value.
fn shared_gate(
    graph: &Graph,
    uses: &Uses,
    id: ValueId,
    x: ValueId,
) -> Option<([usize; 2], ValueId)> {
    let step = uses.writer_of_only_read(id)?;
    let Op::Gate { function: Gating::Sigmoid, x: shared, gate, .. } = graph.ops[step] else {
        return None;
    };
    let ((matmul, _), input) = projection(graph, uses, gate)?;
    (graph.value(gate).width == 1 && input == x).then_some(([matmul, step], shared))
}

fn output_of(op: &Op) -> Option<ValueId> {
    op.outputs().first().copied()
}
