//! The KV cache: page management, appending to pages and copying them.

use std::hint::black_box;
use std::time::Instant;

use rf_kv::{CopyPage, PageGroup, PageId, PagePool, PageSize, PageTable};
use rf_oracle::case::{Case, Schedule, kv_append, speed};
use rf_oracle::rf_graph::{KvLayer, KvLayout, KvType, OpCost, Output};

use crate::op_task::OpTask;
use crate::{Clock, Error, Prepared, Suite, Target, Task, Workload};

/// Tokens of the sequences.
const SEQUENCE_TOKENS: usize = 4096;

/// Memory of a pool: about what a model leaves free on a card of 24 GB.
const POOL_BYTES: usize = 8 << 30;

/// The dimensions of a model that determine the size of its cache.
#[derive(Clone, Copy, Debug)]
struct Model {
    name: &'static str,
    num_layers: usize,
    num_kv_heads: usize,
    head_dim: usize,
}

/// Llama 3.2 1B, Llama 2 7B and 13B, Llama 3 70B.
const MODELS: [Model; 4] = [
    Model { name: "1b", num_layers: 16, num_kv_heads: 8, head_dim: 64 },
    Model { name: "7b", num_layers: 32, num_kv_heads: 32, head_dim: 128 },
    Model { name: "13b", num_layers: 40, num_kv_heads: 40, head_dim: 128 },
    Model { name: "70b", num_layers: 80, num_kv_heads: 8, head_dim: 128 },
];

/// The entry of [`MODELS`] that stands for all of them where the size does not matter.
const USUAL: Model = MODELS[1];

impl Model {
    fn layout(self, page_size: PageSize, num_pages: usize) -> KvLayout {
        let layers = vec![KvLayer::new(self.num_kv_heads, self.head_dim); self.num_layers];
        KvLayout::new(layers, page_size.tokens(), num_pages, KvType::F16)
    }

    /// The number of pages of an f16 cache of [`POOL_BYTES`].
    fn pool_pages(self, page_size: PageSize) -> usize {
        POOL_BYTES / self.layout(page_size, 1).bytes()
    }
}

/// Operations on a pool of pages. The host manages the pages; they have no device memory.
#[derive(Clone, Debug)]
struct PoolTask {
    model_name: &'static str,
    pages: usize,
    page_size: PageSize,
    pattern: Pattern,
}

#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// A sequence grows to its full length by this many tokens at a time, and is released.
    Grow(usize),
    /// A second sequence shares all pages of the first, appends one token, and is released.
    Fork,
    /// A sequence with published pages is released, and the next one matches them.
    Prefix,
}

/// Copies of pages in all layers of a model, as for a fork, followed by the smallest step, which
/// waits for them.
#[derive(Clone, Debug)]
struct CopyTask {
    model: Model,
    page_size: PageSize,
    pages: usize,
}

pub(crate) fn workloads() -> Vec<Workload> {
    const GROWTH: [usize; 4] = [1, 16, 64, 256];
    let mut workloads = Vec::new();
    for model in MODELS {
        for page_size in PageSize::ALL {
            // The page size determines the work; the model only determines how many there are.
            let usual = page_size == PageSize::default();
            if usual || model.name == USUAL.name {
                let grow =
                    GROWTH.map(|step| pool_workload(model, page_size, Pattern::Grow(step), usual));
                workloads.extend(grow);
            }
        }
    }
    for pattern in [Pattern::Fork, Pattern::Prefix] {
        for page_size in PageSize::ALL {
            workloads.push(pool_workload(USUAL, page_size, pattern, false));
        }
    }
    for model in MODELS {
        let Model { name, num_layers, num_kv_heads, head_dim } = model;
        for case in speed::kv_appends([num_layers, num_kv_heads, head_dim]) {
            let tokens = case.timed_batch().tokens();
            let task = format!("memory/append/{name}/f16/tokens={tokens}");
            let task = OpTask::new(task, Suite::Memory, case);
            workloads.push(Workload::new(task, name == "1b"));
        }
    }
    for page_size in PageSize::ALL {
        let pages = 256 / page_size.tokens();
        workloads.push(Workload::new(CopyTask { model: USUAL, page_size, pages }, false));
    }
    workloads
}

fn pool_workload(model: Model, page_size: PageSize, pattern: Pattern, quick: bool) -> Workload {
    let pages = model.pool_pages(page_size);
    Workload::new(PoolTask { model_name: model.name, pages, page_size, pattern }, quick)
}

impl Task for PoolTask {
    fn name(&self) -> String {
        let Self { model_name, page_size, .. } = self;
        match self.pattern {
            Pattern::Grow(step) => format!("memory/grow/{model_name}/page={page_size}/step={step}"),
            Pattern::Fork => format!("memory/fork/{model_name}/page={page_size}"),
            Pattern::Prefix => format!("memory/prefix/{model_name}/page={page_size}"),
        }
    }

    fn suite(&self) -> Suite {
        Suite::Memory
    }

    fn cost(&self) -> OpCost {
        OpCost::default()
    }

    fn is_single_threaded(&self) -> bool {
        true
    }

    fn check(&self, target: &Target) -> Result<(), Error> {
        target.require_cpu("the host manages the pages of every device")
    }

    fn prepare(&self, _target: &Target) -> Result<Prepared, Error> {
        let mut pool = PagePool::new(self.pages, self.page_size);
        match self.pattern {
            Pattern::Grow(step) => Ok(Prepared::new(Clock::Host, move || {
                let start = Instant::now();
                let mut table = PageTable::new();
                for len_tokens in (step..=SEQUENCE_TOKENS).step_by(step) {
                    black_box(pool.grow(&mut table, len_tokens)?);
                }
                pool.release(table);
                Ok(start.elapsed())
            })),
            Pattern::Fork => {
                let mut first = PageTable::new();
                // The last page is partly filled, so the second sequence copies it.
                pool.grow(&mut first, SEQUENCE_TOKENS - 1)?;
                Ok(Prepared::new(Clock::Host, move || {
                    let start = Instant::now();
                    let mut second = pool.fork(&first);
                    black_box(pool.grow(&mut second, SEQUENCE_TOKENS)?);
                    pool.release(second);
                    Ok(start.elapsed())
                }))
            }
            Pattern::Prefix => {
                let tokens: Vec<u32> = (0..SEQUENCE_TOKENS as u32).collect();
                Ok(Prepared::new(Clock::Host, move || {
                    let start = Instant::now();
                    let mut table = pool.match_prefix(&tokens);
                    pool.grow(&mut table, tokens.len())?;
                    pool.publish(&table, &tokens);
                    pool.release(table);
                    Ok(start.elapsed())
                }))
            }
        }
    }
}

impl CopyTask {
    /// The step: one token is appended to every layer.
    fn step(&self) -> Case {
        let Model { num_layers, num_kv_heads, head_dim, .. } = self.model;
        kv_append(KvType::F16, [num_layers, num_kv_heads, head_dim], Schedule::single(1))
    }
}

impl Task for CopyTask {
    fn name(&self) -> String {
        let Self { model, page_size, pages } = self;
        format!("memory/copy/{}/f16/page={page_size}/pages={pages}", model.name)
    }

    fn suite(&self) -> Suite {
        Suite::Memory
    }

    fn cost(&self) -> OpCost {
        let page_bytes = self.model.layout(self.page_size, 1).bytes();
        OpCost { bytes: (2 * self.pages * page_bytes) as u64, ..OpCost::default() }
    }

    fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        let step = self.step();
        let mut program = step.timed_program(1);
        program.kv = self.model.layout(self.page_size, 2 * self.pages);
        let mut executor = target.backend().compile(program, &mut |_| ())?;
        let page = |i: usize| PageId::new(i as u32);
        let copy = |i| CopyPage { group: PageGroup::Full, from: page(i), to: page(self.pages + i) };
        let copies: Vec<_> = (0..self.pages).map(copy).collect();
        Ok(Prepared::new(Clock::Host, move || {
            step.timed_batch().with_output_rows(&[], |batch| {
                let start = Instant::now();
                executor.copy_pages(&copies)?;
                executor.forward(batch, Output::rows(&mut []))?;
                executor.wait()?;
                Ok(start.elapsed())
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_their_known_cache_sizes() {
        // Keys and values in f16: 2 · 2 · layers · heads · dimension.
        let bytes = MODELS.map(|model| model.layout(PageSize::default(), 1));
        let bytes = bytes.map(|layout| layout.bytes_per_token(PageGroup::Full));
        assert_eq!(bytes, [32_768, 524_288, 819_200, 327_680]);
        // 8 GiB in pages of 32 tokens of half a MiB.
        assert_eq!(USUAL.pool_pages(PageSize::Tokens32), 512);
    }

    #[test]
    fn each_run_returns_all_pages_to_the_pool() {
        let target = Target::cpu(Some(1), None).unwrap();
        for pattern in [Pattern::Grow(64), Pattern::Fork, Pattern::Prefix] {
            // Exactly the pages of the pattern: a leaked page would fail the next run.
            let page_size = PageSize::Tokens32;
            let pages = page_size.pages_for(SEQUENCE_TOKENS)
                + usize::from(matches!(pattern, Pattern::Fork));
            let task = PoolTask { model_name: "small", pages, page_size, pattern };
            let mut prepared = task.prepare(&target).unwrap();
            for _ in 0..3 {
                prepared.run().unwrap();
            }
        }
    }
}
