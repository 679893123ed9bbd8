//! The memory that a program needs on the CPU.

use rf_graph::{BackendError, MemoryNeed, MemoryUse, Op, Plan, Program, Reduction};

use super::matmul::OperandSizes;
use super::steps::Step;
use super::storage::StoragePlan;
use crate::kv::KvStore;
use crate::simd::Isa;
use crate::simd::attention::MAX_ROWS;
use crate::simd::latent::LatentScratch;
use crate::state::StateStore;

/// Computes the memory of an executor without building one. `held` equals
/// [`Executor::memory`](rf_graph::Executor::memory); the reserve covers `RoPE` tables and attention
/// scores, which grow with the positions in use.
pub(crate) fn memory_need(
    isa: Isa,
    threads: usize,
    program: &Program,
) -> Result<MemoryNeed, BackendError> {
    let Program { graph, weights, kv, max_batch_tokens, .. } = program;
    let storage = StoragePlan::new(graph, weights);
    let mut ropes = Vec::new();
    let steps = graph.ops().iter().map(|op| Step::new(op, &storage, isa, &mut ropes));
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    let operands = OperandSizes::new(&steps, graph, *max_batch_tokens);
    let arena_bytes = arena_bytes(&Plan::new(graph), *max_batch_tokens);
    let held = MemoryUse {
        weights_bytes: storage.bytes() as u64,
        kv_bytes: KvStore::page_bytes_of(kv) as u64,
        states_bytes: StateStore::bytes_of(kv),
        buffers_bytes: (arena_bytes + operands.bytes() + threads * operands.scratch_bytes()) as u64
            + Reduction::bytes_for(program),
    };
    let positions = kv.num_pages.full.saturating_mul(kv.page_tokens);
    let attentions = graph.ops().iter().filter_map(|op| match op {
        Op::Attention { attention, .. } => Some(attention),
        _ => None,
    });
    let (mut scores, mut latent_bytes) = (0, 0);
    for attention in attentions {
        match attention.latent_dim {
            Some(latent_dim) => {
                let bytes = threads * LatentScratch::bytes_for(attention.head_dim, latent_dim);
                latent_bytes = bytes.max(latent_bytes);
            }
            None => scores = threads * MAX_ROWS,
        }
    }
    let dims: usize = ropes.iter().map(|table| table.rope.dims()).sum();
    let floats = positions.saturating_mul(dims + scores);
    let reserve_bytes = floats.saturating_mul(size_of::<f32>()).saturating_add(latent_bytes);
    Ok(MemoryNeed { held, reserve_bytes: reserve_bytes as u64 })
}

/// Size of the arena that holds all values of a batch of `tokens`.
pub(super) fn arena_bytes(plan: &Plan, tokens: usize) -> usize {
    (plan.floats_per_row() * tokens * size_of::<f32>()).max(1)
}
