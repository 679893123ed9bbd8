//! The KV cache: bookkeeping of its pages, and writing and copying them.

use std::hint::black_box;
use std::time::Instant;

use rf_graph::{Attention, KvLayout, KvType, OpCost};
use rf_kv::{PageId, PagePool, PageSize, PageTable};

use crate::program::{Net, OpProgram, OwnedBatch, Timed};
use crate::{Clock, Error, Prepared, Suite, Target, Task, Workload};

/// Tokens of the sequences that are kept track of.
const SEQUENCE_TOKENS: usize = 4096;

/// Memory that a pool stands for: a model of any size leaves about so much on a card of 24 GB, or makes do with it.
const POOL_BYTES: usize = 8 << 30;

/// What of a model decides how large its cache is.
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

/// Which of them stands for all where the size does not matter.
const USUAL: Model = MODELS[1];

impl Model {
    fn layout(self, page_size: PageSize, num_pages: usize) -> KvLayout {
        KvLayout {
            layers: vec![(self.num_kv_heads, self.head_dim); self.num_layers],
            page_tokens: page_size.tokens(),
            num_pages,
            dtype: KvType::F16,
        }
    }

    /// Pages of an f16 cache of [`POOL_BYTES`].
    fn pool_pages(self, page_size: PageSize) -> usize {
        POOL_BYTES / self.layout(page_size, 1).bytes()
    }
}

/// What is done with a pool of pages, on the host, without any memory behind it.
#[derive(Clone, Debug)]
pub(crate) struct PoolTask {
    model_name: &'static str,
    pages: usize,
    page_size: PageSize,
    pattern: Pattern,
}

#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// A sequence grows to its whole length by so many tokens at a time, and goes.
    Grow(usize),
    /// A second sequence shares all pages of the first, writes one token, and goes.
    Fork,
    /// A sequence whose pages were published goes, and another finds them again.
    Prefix,
}

/// What is done with the memory of a cache, in all layers of a model.
#[derive(Clone, Debug)]
pub(crate) struct CacheTask {
    model: Model,
    page_size: PageSize,
    pattern: CachePattern,
}

#[derive(Clone, Copy, Debug)]
enum CachePattern {
    /// Keys and values of so many tokens are written.
    Append(usize),
    /// So many pages are copied, as for a fork; then comes the smallest step, which waits for them.
    Copy(usize),
}

pub(crate) fn workloads() -> Vec<Workload> {
    const GROWTH: [usize; 4] = [1, 16, 64, 256];
    let mut workloads = Vec::new();
    for model in MODELS {
        for page_size in PageSize::ALL {
            // How pages are counted depends on their size; the model only says how many there are.
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
        for tokens in GROWTH {
            let pattern = CachePattern::Append(tokens);
            let task = CacheTask { model, page_size: PageSize::default(), pattern };
            workloads.push(Workload::new(task, model.name == "1b"));
        }
    }
    for page_size in PageSize::ALL {
        let pattern = CachePattern::Copy(256 / page_size.tokens());
        workloads.push(Workload::new(CacheTask { model: USUAL, page_size, pattern }, false));
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
                // The last page is partly filled, so that the second sequence has it copied.
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

impl CacheTask {
    /// A step that writes to every layer. The graph couples that with attention, of which a window of one token
    /// leaves next to nothing; only the writing is timed.
    fn append(&self, tokens: usize) -> OpProgram {
        let Model { num_layers, num_kv_heads, head_dim, .. } = self.model;
        let mut net = Net::new();
        let [q, k, v] = [(); 3].map(|()| net.rows_of_table(tokens, num_kv_heads * head_dim));
        let mut out = q;
        for layer in 0..num_layers {
            let attention = Attention {
                window: Some(1),
                ..Attention::new(layer, num_kv_heads, num_kv_heads, head_dim)
            };
            out = net.g.attention(q, k, v, &attention);
        }
        let kv = self.model.layout(self.page_size, self.page_size.pages_for(tokens));
        OpProgram {
            program: net.finish(out, kv, tokens),
            batch: OwnedBatch::of_sequence(tokens, 0, tokens, self.page_size.tokens()),
            fill: Vec::new(),
            timed: Timed::Op("kv_append", 1),
        }
    }

    fn copy(&self, pages: usize, target: &Target) -> Result<Prepared, Error> {
        let program = self.append(1);
        let kv = self.model.layout(self.page_size, 2 * pages);
        let OpProgram { mut program, batch, .. } = program;
        program.kv = kv;
        let mut executor = target.backend().compile(program, &mut |_| ())?;
        let page = |i: usize| PageId::new(i as u32);
        let copies: Vec<_> = (0..pages).map(|i| (page(i), page(pages + i))).collect();
        Ok(Prepared::new(Clock::Host, move || {
            batch.with(&[], |batch| {
                let start = Instant::now();
                executor.copy_pages(&copies)?;
                executor.forward(batch, &mut [])?;
                Ok(start.elapsed())
            })
        }))
    }
}

impl Task for CacheTask {
    fn name(&self) -> String {
        let Self { model, page_size, .. } = self;
        match self.pattern {
            CachePattern::Append(tokens) => {
                format!("memory/append/{}/f16/tokens={tokens}", model.name)
            }
            CachePattern::Copy(pages) => {
                format!("memory/copy/{}/f16/page={page_size}/pages={pages}", model.name)
            }
        }
    }

    fn suite(&self) -> Suite {
        Suite::Memory
    }

    fn cost(&self) -> OpCost {
        let Self { model, page_size, pattern } = *self;
        let token_bytes = model.layout(page_size, 1).bytes_per_token();
        let bytes = match pattern {
            CachePattern::Append(tokens) => {
                let rows = model.num_layers * 2 * model.num_kv_heads * model.head_dim;
                tokens * (token_bytes + size_of::<f32>() * rows)
            }
            CachePattern::Copy(pages) => 2 * pages * page_size.tokens() * token_bytes,
        };
        OpCost { bytes: bytes as u64, ..OpCost::default() }
    }

    fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        match self.pattern {
            CachePattern::Append(tokens) => self.append(tokens).prepare(target),
            CachePattern::Copy(pages) => self.copy(pages, target),
        }
    }
}

#[cfg(test)]
mod tests {
    use rf_graph::conformance::Bound;

    use super::*;
    use crate::program::agreement;

    const SMALL: Model = Model { name: "small", num_layers: 3, num_kv_heads: 2, head_dim: 32 };

    #[test]
    fn models_have_the_caches_that_are_known_of_them() {
        // Keys and values in f16: 2 · 2 · layers · heads · dimension.
        let bytes = MODELS.map(|model| model.layout(PageSize::default(), 1).bytes_per_token());
        assert_eq!(bytes, [32_768, 524_288, 819_200, 327_680]);
        // 8 GiB in pages of 32 tokens of half a MiB.
        assert_eq!(USUAL.pool_pages(PageSize::Tokens32), 512);
    }

    #[test]
    fn appending_writes_what_attention_then_reads() {
        let page_size = PageSize::Tokens16;
        for tokens in [1, 40] {
            let pattern = CachePattern::Append(tokens);
            let task = CacheTask { model: SMALL, page_size, pattern };
            let cost = agreement(task.append(tokens), Bound::of_cache(KvType::F16, false));
            // One layer of three.
            assert_eq!(task.cost().bytes, 3 * cost.bytes);
        }
    }

    #[test]
    fn pools_are_as_before_after_each_run() {
        let target = Target::cpu(Some(1), None).unwrap();
        for pattern in [Pattern::Grow(64), Pattern::Fork, Pattern::Prefix] {
            // As many pages as the pattern takes: a run that kept one would leave too few for the next.
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
