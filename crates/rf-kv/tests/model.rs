//! Compares the pool with a naive model: random operations on sequences of known tokens, and a
//! storage that imitates a backend.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rf_kv::{PageId, PagePool, PageSize, PageTable};

/// Miri is slow.
const CASES: u32 = if cfg!(miri) { 2 } else { 600 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn pool_agrees_with_the_naive_model(
        size in prop::sample::select(&PageSize::ALL[..2]),
        num_pages in 1..24_usize,
        operations in prop::collection::vec(operation(), 1..120),
    ) {
        let mut world = World::new(num_pages, size);
        for operation in operations {
            world.apply(&operation);
            world.check();
        }
        world.finish();
    }

    #[test]
    fn the_same_operations_give_the_same_pages(
        num_pages in 1..24_usize,
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        let run = || {
            let mut world = World::new(num_pages, PageSize::Tokens16);
            let mut seen = Vec::new();
            for operation in &operations {
                world.apply(operation);
                seen.push(world.sequences.iter().map(|s| s.table.pages().to_vec()).collect::<Vec<_>>());
            }
            seen
        };
        prop_assert_eq!(run(), run());
    }
}

#[derive(Clone, Debug)]
enum Operation {
    /// A new sequence, with a prefix from the cache if it has one. `text` selects the tokens.
    Start {
        text: u8,
        len_tokens: usize,
    },
    Grow {
        which: prop::sample::Index,
        by_tokens: usize,
        token: u32,
    },
    Fork {
        which: prop::sample::Index,
    },
    Truncate {
        which: prop::sample::Index,
        to: prop::sample::Index,
    },
    DropFront {
        which: prop::sample::Index,
        before: prop::sample::Index,
    },
    Publish {
        which: prop::sample::Index,
    },
    Release {
        which: prop::sample::Index,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0..3_u8, 1..100_usize)
            .prop_map(|(text, len_tokens)| Operation::Start { text, len_tokens }),
        4 => (which(), 1..50_usize, 0..3_u32)
            .prop_map(|(which, by_tokens, token)| Operation::Grow { which, by_tokens, token }),
        2 => which().prop_map(|which| Operation::Fork { which }),
        2 => (which(), which()).prop_map(|(which, to)| Operation::Truncate { which, to }),
        1 => (which(), which()).prop_map(|(which, before)| Operation::DropFront { which, before }),
        2 => which().prop_map(|which| Operation::Publish { which }),
        2 => which().prop_map(|which| Operation::Release { which }),
    ]
}

/// A sequence of the engine, and its expected contents.
struct Sequence {
    table: PageTable,
    tokens: Vec<u32>,
    /// Positions before this were dropped; always the start of a page.
    dropped_tokens: usize,
}

struct World {
    pool: PagePool,
    size: PageSize,
    /// The storage of a backend: for each slot, all tokens up to and including its own, because
    /// keys and values depend on those.
    storage: Vec<Vec<Option<Vec<u32>>>>,
    sequences: Vec<Sequence>,
    peak_used_pages: usize,
}

impl World {
    fn new(num_pages: usize, size: PageSize) -> Self {
        Self {
            pool: PagePool::new(num_pages, size),
            size,
            storage: vec![vec![None; size.tokens()]; num_pages],
            sequences: Vec::new(),
            peak_used_pages: 0,
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Start { text, len_tokens } => {
                // Few texts, so that sequences share prefixes. The last page differs from shorter
                // texts.
                let tokens: Vec<u32> =
                    (0..*len_tokens as u32).map(|p| p / 24 * u32::from(*text)).collect();
                let table = self.pool.match_prefix(&tokens[..len_tokens - 1]);
                assert!(table.len_tokens() < tokens.len());
                let matched = tokens[..table.len_tokens()].to_vec();
                self.sequences.push(Sequence { table, tokens: matched, dropped_tokens: 0 });
                self.write(self.sequences.len() - 1, &tokens);
            }
            Operation::Grow { which, by_tokens, token } => {
                let Some(index) = self.pick(*which) else { return };
                let mut tokens = self.sequences[index].tokens.clone();
                tokens.extend(std::iter::repeat_n(*token, *by_tokens));
                self.write(index, &tokens);
            }
            Operation::Fork { which } => {
                let Some(index) = self.pick(*which) else { return };
                let Sequence { table, tokens, dropped_tokens } = &self.sequences[index];
                let table = self.pool.fork(table);
                let fork =
                    Sequence { table, tokens: tokens.clone(), dropped_tokens: *dropped_tokens };
                self.sequences.push(fork);
            }
            Operation::Truncate { which, to } => {
                let Some(index) = self.pick(*which) else { return };
                let sequence = &mut self.sequences[index];
                let to = to.index(sequence.tokens.len() + 1);
                let expected = if to < sequence.dropped_tokens { 0 } else { to };
                assert_eq!(self.pool.truncate(&mut sequence.table, to), expected);
                sequence.tokens.truncate(expected);
                sequence.dropped_tokens = sequence.dropped_tokens.min(expected);
            }
            Operation::DropFront { which, before } => {
                let Some(index) = self.pick(*which) else { return };
                let sequence = &mut self.sequences[index];
                let before = before.index(sequence.tokens.len() + 1);
                self.pool.drop_front(&mut sequence.table, before);
                let whole_pages = before / self.size.tokens() * self.size.tokens();
                sequence.dropped_tokens = sequence.dropped_tokens.max(whole_pages);
            }
            Operation::Publish { which } => {
                let Some(index) = self.pick(*which) else { return };
                let Sequence { table, tokens, .. } = &self.sequences[index];
                self.pool.publish(table, tokens);
            }
            Operation::Release { which } => {
                let Some(index) = self.pick(*which) else { return };
                let sequence = self.sequences.swap_remove(index);
                self.pool.release(sequence.table);
            }
        }
    }

    /// Grows a sequence to `tokens` and writes the new tokens, as the engine and a backend do.
    fn write(&mut self, index: usize, tokens: &[u32]) {
        let available = self.pool.available_pages();
        let sequence = &mut self.sequences[index];
        let needed = self.pool.pages_needed(&sequence.table, tokens.len());
        let before = (sequence.table.pages().to_vec(), self.pool.stats());
        match self.pool.grow(&mut sequence.table, tokens.len()) {
            Ok(copies) => {
                assert!(needed <= available);
                for copy in copies {
                    let contents = self.storage[copy.from.index()].clone();
                    self.storage[copy.to.index()] = contents;
                }
                for position in sequence.tokens.len()..tokens.len() {
                    let slot = sequence.table.slot(position, self.size).unwrap();
                    self.storage[slot.page.index()][slot.offset_tokens] =
                        Some(tokens[..=position].to_vec());
                }
                sequence.tokens = tokens.to_vec();
            }
            Err(error) => {
                assert_eq!((error.needed, error.free), (needed, available));
                assert!(needed > available);
                assert_eq!((sequence.table.pages().to_vec(), self.pool.stats()), before);
            }
        }
        self.peak_used_pages = self.peak_used_pages.max(self.pool.stats().used_pages);
    }

    fn pick(&self, which: prop::sample::Index) -> Option<usize> {
        (!self.sequences.is_empty()).then(|| which.index(self.sequences.len()))
    }

    fn check(&self) {
        let mut holders: BTreeMap<PageId, u32> = BTreeMap::new();
        let mut unfilled_tokens = 0;
        for Sequence { table, tokens, dropped_tokens } in &self.sequences {
            assert_eq!(table.len_tokens(), tokens.len());
            assert_eq!(table.pages().len(), self.size.pages_for(tokens.len()));
            assert_eq!(table.dropped_pages() * self.size.tokens(), *dropped_tokens);
            unfilled_tokens += table.pages().len() * self.size.tokens() - tokens.len();
            for &page in table.held_pages() {
                *holders.entry(page).or_default() += 1;
            }
            // Placeholders are valid indices.
            assert!(table.pages().iter().all(|page| page.index() < self.pool.num_pages()));
            // Every token reads back with all tokens before it, regardless of later writes by other
            // sequences.
            for position in 0..tokens.len() {
                let slot = table.slot(position, self.size);
                assert_eq!(slot.is_none(), position < *dropped_tokens);
                if let Some(slot) = slot {
                    let stored = &self.storage[slot.page.index()][slot.offset_tokens];
                    assert_eq!(stored.as_deref(), Some(&tokens[..=position]));
                }
            }
            assert_eq!(table.slot(tokens.len(), self.size), None);
        }
        let stats = self.pool.stats();
        assert_eq!(stats.total_pages, self.pool.num_pages());
        assert_eq!(stats.used_pages, holders.len());
        assert_eq!(stats.shared_pages, holders.values().filter(|&&count| count > 1).count());
        assert_eq!(stats.free_pages + stats.used_pages + stats.idle_pages, stats.total_pages);
        assert!(stats.idle_pages <= stats.cached_pages);
        assert!(stats.cached_pages <= stats.idle_pages + stats.used_pages);
        assert_eq!(stats.unfilled_tokens, unfilled_tokens);
        assert_eq!(stats.peak_used_pages, self.peak_used_pages.max(stats.used_pages));
        assert_eq!(self.pool.available_pages(), stats.free_pages + stats.idle_pages);
    }

    /// All pages are returned, and one sequence can then hold every page.
    fn finish(mut self) {
        for sequence in std::mem::take(&mut self.sequences) {
            self.pool.release(sequence.table);
        }
        self.check();
        assert_eq!(self.pool.available_pages(), self.pool.num_pages());
        let mut all = PageTable::new();
        let len_tokens = self.pool.num_pages() * self.size.tokens();
        assert_eq!(self.pool.grow(&mut all, len_tokens), Ok(Vec::new()));
        let mut pages = all.pages().to_vec();
        pages.sort_unstable();
        assert!(pages.iter().map(|page| page.index()).eq(0..self.pool.num_pages()));
        assert_eq!(self.pool.stats().cached_pages, 0);
        self.pool.release(all);
    }
}
