//! Ops with a recurrent state.

use rf_graph::{DeltaDecay, DeltaHeads, StateShape, StateSpaceHeads};
use rf_quant::DType;

use super::bound::ErrorBound;
use super::definition::Case;
use super::schedule::Schedule;

pub(super) fn cases() -> Vec<Case> {
    let delta_rules = [delta_rules(), channel_delta_rules()].concat();
    [convolutions(), delta_rules, state_spaces(), selective_scans(), groups()].concat()
}

/// Prompts, their continuations in batches of several sequences, and a sequence that takes over the
/// state of another one.
fn schedule(states: Vec<StateShape>) -> Schedule {
    let steps: [&[(usize, usize)]; 6] = [
        &[(0, 1)],
        &[(0, 1), (1, 2)],
        &[(1, 1), (0, 9)],
        &[(0, 1)],
        &[(2, 21), (0, 1)],
        &[(2, 1), (0, 2)],
    ];
    Schedule::steps(16, &steps).with_states(states)
}

/// Convolutions of one tap to four, and of columns that are not whole vectors.
fn convolutions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, taps) in [(1, 4), (15, 3), (16, 4), (17, 2), (64, 1), (300, 3), (1030, 4)] {
        for is_whole in [false, true] {
            let what = if is_whole { "/bias-silu" } else { "" };
            let name = format!("causal_conv/{width}/{taps}-taps{what}");
            let schedule = schedule(vec![StateShape { rows: taps - 1, columns: width }]);
            cases.push(Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
                let (x, filter) = (net.input(width), net.table(DType::F32, taps, width));
                let bias = is_whole.then(|| net.vector(width));
                net.g.causal_conv(x, filter, bias, is_whole, 0)
            }));
        }
    }
    // Two convolutions, each with its own state, between products.
    let shape = StateShape { rows: 2, columns: 40 };
    let gated = schedule(vec![shape, shape]);
    cases.push(Case::program_of("causal_conv/gated", None, ErrorBound::Float, gated, |net| {
        let [mut x, gate] = [net.input(40), net.input(40)];
        for state in 0..2 {
            x = net.g.mul(x, gate);
            let filter = net.table(DType::F32, 3, 40);
            x = net.g.causal_conv(x, filter, None, false, state);
        }
        net.g.mul(gate, x)
    }));
    cases
}

/// Gated delta rules, also of heads that are not whole tiles of a kernel.
fn delta_rules() -> Vec<Case> {
    let mut cases = Vec::new();
    for ([num_key_heads, num_value_heads, key_dim, value_dim], interleaved) in [
        ([1, 1, 1, 1], false),
        ([1, 2, 7, 5], false),
        ([2, 4, 16, 16], true),
        ([2, 6, 48, 33], false),
        ([1, 3, 33, 48], true),
        ([2, 2, 128, 128], true),
        ([1, 1, 256, 64], false),
    ] {
        let heads = DeltaHeads { num_key_heads, num_value_heads, key_dim, value_dim, interleaved };
        let order = if interleaved { "/interleaved" } else { "" };
        let name =
            format!("delta_net/{num_key_heads}x{key_dim}/{num_value_heads}x{value_dim}{order}");
        let schedule = schedule(vec![heads.state()]);
        cases.push(Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
            let inputs = [heads.qkv_width(), num_value_heads, num_value_heads];
            let inputs = inputs.map(|width| net.input(width));
            let decays = [net.decays(num_value_heads), net.vector(num_value_heads)];
            net.g.delta_net(inputs, decays, (heads, DeltaDecay::Head), 1e-6, 0)
        }));
    }
    cases
}

/// Delta rules with a decay per channel, of both forms, also of heads that are not whole tiles of a
/// kernel.
fn channel_delta_rules() -> Vec<Case> {
    let mut cases = Vec::new();
    for ([num_key_heads, num_value_heads, key_dim, value_dim], bound) in [
        ([1, 1, 1, 1], None),
        ([1, 2, 7, 5], Some(-5.0)),
        ([2, 2, 16, 16], None),
        ([3, 3, 17, 33], Some(-0.3)),
        ([2, 6, 48, 33], None),
        ([2, 2, 128, 128], Some(-5.0)),
    ] {
        let heads =
            DeltaHeads { num_key_heads, num_value_heads, key_dim, value_dim, interleaved: false };
        let form = bound.map_or(DeltaDecay::Channel, |bound| DeltaDecay::BoundedChannel { bound });
        let what = if bound.is_some() { "bounded" } else { "channel" };
        let name =
            format!("delta_net/{num_key_heads}x{key_dim}/{num_value_heads}x{value_dim}/{what}");
        let schedule = schedule(vec![heads.state()]);
        cases.push(Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
            let inputs = [heads.qkv_width(), form.width(heads), num_value_heads];
            let inputs = inputs.map(|width| net.input(width));
            // The sign of the factor does not matter to the bounded form.
            let decays = [net.decays(num_value_heads), net.vector(form.width(heads))];
            net.g.delta_net(inputs, decays, (heads, form), 1e-6, 0)
        }));
    }
    cases
}

/// Selective state spaces, also of heads that are not whole tiles of a kernel.
fn state_spaces() -> Vec<Case> {
    let mut cases = Vec::new();
    for [num_heads, head_dim, num_groups, state_dim] in [
        [1, 1, 1, 1],
        [2, 5, 1, 7],
        [4, 16, 2, 16],
        [6, 33, 3, 24],
        [2, 64, 1, 128],
        [1, 16, 1, 256],
    ] {
        let heads = StateSpaceHeads { num_heads, head_dim, num_groups, state_dim };
        let name = format!("state_space/{num_heads}x{head_dim}/{num_groups}x{state_dim}");
        let schedule = schedule(vec![heads.state()]);
        cases.push(Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
            let inputs = [heads.xbc_width(), num_heads].map(|width| net.input(width));
            let vectors = [net.vector(num_heads), net.decays(num_heads), net.vector(num_heads)];
            net.g.state_space(inputs, vectors, heads, 0)
        }));
    }
    cases
}

/// Selective scans, also of channels that are not whole tiles of a kernel.
fn selective_scans() -> Vec<Case> {
    let mut cases = Vec::new();
    for [channels, state_dim] in [[1, 1], [7, 3], [64, 8], [130, 16], [300, 13], [1030, 16]] {
        let name = format!("selective_scan/{channels}x{state_dim}");
        let schedule = schedule(vec![StateShape { rows: state_dim, columns: channels }]);
        cases.push(Case::program_of(name, None, ErrorBound::Float, schedule, move |net| {
            let inputs = [channels, channels, state_dim, state_dim].map(|width| net.input(width));
            let vectors = [net.decay_rates(state_dim, channels), net.vector(channels)];
            net.g.selective_scan(inputs, vectors, 0)
        }));
    }
    // Time steps so large that a state is forgotten, and so small that it stays.
    let shape = StateShape { rows: 16, columns: 40 };
    let steep = schedule(vec![shape]);
    cases.push(Case::program_of("selective_scan/steep", None, ErrorBound::Float, steep, |net| {
        let inputs = [40, 40, 16, 16].map(|width| net.input(width));
        let [x, dt, b, c] = inputs;
        let dt = net.g.scale(dt, 10.0);
        let vectors = [net.decay_rates(16, 40), net.vector(40)];
        net.g.selective_scan([x, dt, b, c], vectors, 0)
    }));
    cases
}

/// Parts of groups of columns, and norms with a weight per group, as recurrences have them.
fn groups() -> Vec<Case> {
    let state = || schedule(vec![StateShape { rows: 1, columns: 30 }]);
    let sliced = Case::program_of("slice_groups", None, ErrorBound::Float, state(), |net| {
        let (x, filter) = (net.input(50), net.table(DType::F32, 2, 30));
        let x = net.g.slice_groups(x, 5, 1..4);
        net.g.causal_conv(x, filter, None, false, 0)
    });
    let normed =
        Case::program_of("rms_norm/weight-per-group", None, ErrorBound::Float, state(), |net| {
            let (x, filter) = (net.input(30), net.table(DType::F32, 2, 30));
            let x = net.g.causal_conv(x, filter, None, false, 0);
            let weight = net.table(DType::F32, 3, 10);
            net.g.rms_norm(x, weight, 1e-5)
        });
    vec![sliced, normed]
}
