//! Latent attention, and the matmuls with a matrix per head around it.

use rf_graph::{Attention, KvLayer, KvType, OperandFormat};
use rf_quant::DType;

use super::attention::turns;
use super::bound::ErrorBound;
use super::definition::Case;
use super::schedule::Schedule;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        cases.push(head_matmul(dtype, 3, [37, 256]));
    }
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::Q8_0, DType::Q5_0] {
        cases.push(head_matmul(dtype, 5, [64, 96]));
    }
    cases.push(head_matmul(DType::F16, 1, [1, 1]));
    cases.push(head_matmul(DType::F16, 7, [17, 129]));
    for (groups, a, b) in [(1, 96, 32), (5, 48, 16), (3, 37, 1), (4, 1, 5)] {
        let name = format!("join_groups/{groups}x{a}+{b}");
        let schedule = Schedule::batches(&[1, 5, 33]);
        cases.push(Case::program_of(name, None, ErrorBound::Exact, schedule, move |net| {
            let (a, b) = (net.input(groups * a), net.input(groups * b));
            net.g.join_groups(a, b, groups)
        }));
    }
    for kv in KvType::ALL {
        // Heads and elements of keys and of values: a full vector, one less and one more.
        let shapes = [(2, 48, 32), (15, 128, 96), (16, 96, 64), (17, 64, 64), (1, 40, 37)];
        for (num_heads, head_dim, latent_dim) in shapes {
            for page_tokens in [16, 64] {
                let schedule = turns(page_tokens);
                cases.push(attention(kv, [num_heads, head_dim, latent_dim], schedule));
            }
        }
        // 300 positions: the prompt in two chunks, then tokens one by one and next to a prompt. The
        // kernels of the other types differ in how they read a row, which fewer positions show.
        let is_long = matches!(kv, KvType::F16 | KvType::Q8_0);
        let (first, second) = if is_long { (170, 128) } else { (40, 33) };
        let steps: [&[(usize, usize)]; 4] =
            [&[(0, first)], &[(0, second)], &[(0, 1)], &[(0, 1), (1, 7)]];
        cases.push(attention(kv, [20, 576, 512], Schedule::steps(32, &steps)));
    }
    cases
}

/// Heads, each with a matrix of `[rows, columns]`.
fn head_matmul(dtype: DType, heads: usize, [rows, columns]: [usize; 2]) -> Case {
    let name = format!("head_matmul/{dtype}/{heads}x{rows}x{columns}");
    let (format, bound) = (Some(OperandFormat::Weight(dtype)), ErrorBound::of_matmul(dtype));
    Case::program_of(name, format, bound, Schedule::batches(&[1, 2, 8, 13, 33]), move |net| {
        let x = net.input(heads * columns);
        let weights = (0..heads).map(|_| net.matrix(dtype, rows, columns)).collect();
        net.g.head_matmul(x, weights)
    })
}

/// Attention over latents, with a scale that makes the weights of the keys differ clearly.
fn attention(
    kv: KvType,
    [num_heads, head_dim, latent_dim]: [usize; 3],
    schedule: Schedule,
) -> Case {
    let page_tokens = schedule.kv.page_tokens;
    let name = format!("latent_attention/{num_heads}x{head_dim}:{latent_dim}/{page_tokens}/{kv}");
    let schedule = schedule.with_layers(kv, vec![KvLayer::latent(head_dim, latent_dim)]);
    let attention = Attention {
        latent_dim: Some(latent_dim),
        scale: 2.0 / (head_dim as f32).sqrt(),
        ..Attention::new(0, num_heads, 1, head_dim)
    };
    let (format, bound) = (Some(OperandFormat::Cache(kv)), ErrorBound::of_cache(kv, false));
    Case::program_of(name, format, bound, schedule, move |net| {
        let (q, k) = (net.input(num_heads * head_dim), net.input(head_dim));
        net.g.latent_attention(q, k, &attention)
    })
}
