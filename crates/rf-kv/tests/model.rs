//! Compares the pool with a naive model: random operations on sequences of known tokens, and a
//! storage that imitates a backend.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use rf_kv::{
    CutCause, Exports, NotCut, OutOfPages, PageCounts, PageGroup, PageId, PageKey, PageMove,
    PagePool, PageSize, PageStore, PageTable,
};
use rf_testing::SplitMix64;

/// Miri is slow.
const CASES: u32 = if cfg!(miri) { 2 } else { 600 };
const OPERATIONS: usize = if cfg!(miri) { 12 } else { 120 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn pool_agrees_with_the_naive_model(
        size in prop::sample::select(&PageSize::ALL[..2]),
        num_pages in num_pages(),
        exports in exports(),
        window in window(),
        operations in prop::collection::vec(operation(), 1..OPERATIONS),
    ) {
        let mut world = World::new(num_pages, exports, size, window);
        for operation in operations {
            world.apply(&operation);
            world.check();
        }
        world.finish();
    }

    #[test]
    fn the_same_operations_give_the_same_pages(
        num_pages in num_pages(),
        exports in exports(),
        window in window(),
        operations in prop::collection::vec(operation(), 1..OPERATIONS),
    ) {
        let run = || {
            let mut world = World::new(num_pages, exports, PageSize::Tokens16, window);
            let mut seen = Vec::new();
            for operation in &operations {
                world.apply(operation);
                seen.push(world.sequences.iter().map(|s| pages(&s.table)).collect::<Vec<_>>());
            }
            seen
        };
        prop_assert_eq!(run(), run());
    }
}

/// Conversations whose turns begin like earlier ones, with few pages, so that pages and checkpoints
/// go to the store and come back.
#[test]
fn turns_go_on_from_pages_that_were_stored() {
    let mut random = SplitMix64::new(1);
    let mut next = |most| random.below(most);
    let mut imports = 0;
    for case in 0..CASES {
        let window = (next(2) == 0).then_some(20);
        let num_pages = PageCounts { full: 20, window: 20, states: next(4) };
        let exports = [Exports::OnEviction, Exports::AtOnce][case as usize % 2];
        let mut world = World::new(num_pages, exports, PageSize::Tokens16, window);
        for _ in 0..OPERATIONS / 4 {
            let (text, pages) = (next(4) as u8, 1 + next(4));
            world.apply(&Operation::Start { text, len_tokens: 16 * pages });
            world.check();
            let index = world.sequences.len() - 1;
            world.checkpoint(index);
            let longer = [&world.sequences[index].tokens[..], &[9; 5]].concat();
            world.write(index, &longer);
            world.check();
            if next(4) > 0 || world.sequences.len() == num_pages.states.max(1) {
                let sequence = world.sequences.swap_remove(next(index + 1));
                world.pool.release(sequence.table);
            }
        }
        imports += world.imports;
        world.finish();
    }
    assert!(imports > CASES as usize, "{imports}");
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
    /// Writes values after the last token, which are not kept.
    Reserve {
        which: prop::sample::Index,
        by_tokens: usize,
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
    },
    /// Adds full pages to the prefix cache, and the states where they end.
    Publish {
        which: prop::sample::Index,
        checkpoints: bool,
    },
    Release {
        which: prop::sample::Index,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0..3_u8, prop_oneof![1..100_usize, Just(64)])
            .prop_map(|(text, len_tokens)| Operation::Start { text, len_tokens }),
        4 => (which(), prop_oneof![1..50_usize, Just(32)], 0..3_u32)
            .prop_map(|(which, by_tokens, token)| Operation::Grow { which, by_tokens, token }),
        2 => (which(), 0..50_usize)
            .prop_map(|(which, by_tokens)| Operation::Reserve { which, by_tokens }),
        2 => which().prop_map(|which| Operation::Fork { which }),
        2 => (which(), which()).prop_map(|(which, to)| Operation::Truncate { which, to }),
        3 => which().prop_map(|which| Operation::DropFront { which }),
        2 => (which(), any::<bool>())
            .prop_map(|(which, checkpoints)| Operation::Publish { which, checkpoints }),
        2 => which().prop_map(|which| Operation::Release { which }),
    ]
}

fn num_pages() -> impl Strategy<Value = PageCounts> {
    let states = prop_oneof![Just(0), 1..8_usize];
    (1..24_usize, 1..24_usize, states).prop_map(|(full, window, states)| PageCounts {
        full,
        window,
        states,
    })
}

fn exports() -> impl Strategy<Value = Exports> {
    prop::sample::select(&[Exports::Off, Exports::OnEviction, Exports::AtOnce][..])
}

fn window() -> impl Strategy<Value = Option<usize>> {
    prop::option::of(1..60_usize)
}

/// A sequence of the engine, and its expected contents.
struct Sequence {
    table: PageTable,
    tokens: Vec<u32>,
    /// Positions before this were dropped from the window group; always the start of a page.
    dropped_tokens: usize,
}

impl Sequence {
    fn dropped_tokens(&self, group: PageGroup) -> usize {
        if group == PageGroup::Window { self.dropped_tokens } else { 0 }
    }
}

/// The pages of all groups.
fn pages(table: &PageTable) -> [Vec<PageId>; 3] {
    PageGroup::ALL.map(|group| table.pages(group).to_vec())
}

/// The contents of a page: for each slot all tokens up to and including the token of the slot,
/// because its keys and values depend on them. A page of states uses one slot.
type Page = Vec<Option<Vec<u32>>>;

/// The pages outside of the pool.
#[derive(Default)]
struct Store(HashMap<PageKey, Page>);

impl PageStore for Store {
    fn contains(&self, key: PageKey) -> bool {
        self.0.contains_key(&key)
    }

    fn is_faster(&self, pages: usize, tokens: usize) -> bool {
        assert!(pages > 0 && tokens > 0);
        true
    }
}

impl Store {
    /// Executes the moves of a pool.
    fn follow(&mut self, moves: Vec<PageMove>, storage: &[Vec<Page>; 3]) {
        for each in moves {
            match each {
                PageMove::Export { key, from, .. } => {
                    let page = &storage[key.group.index()][from.index()];
                    self.0.insert(key, page.clone());
                }
                PageMove::Forget(key) => drop(self.0.remove(&key)),
            }
        }
    }
}

struct World {
    pool: PagePool,
    size: PageSize,
    window: Option<usize>,
    /// The groups that have pages of tokens.
    groups: &'static [PageGroup],
    /// The storage of a backend by group.
    storage: [Vec<Page>; 3],
    store: Store,
    /// Pages that came back from the store.
    imports: usize,
    sequences: Vec<Sequence>,
    peak_used_pages: [usize; 3],
}

impl World {
    fn new(num_pages: PageCounts, exports: Exports, size: PageSize, window: Option<usize>) -> Self {
        let mut pool = PagePool::with_window(num_pages, size, window);
        pool.set_exports(exports);
        Self {
            pool,
            store: Store::default(),
            imports: 0,
            size,
            window,
            groups: &PageGroup::OF_TOKENS[..if window.is_some() { 2 } else { 1 }],
            storage: PageGroup::ALL
                .map(|group| vec![vec![None; size.tokens()]; num_pages.of(group)]),
            sequences: Vec::new(),
            peak_used_pages: [0; 3],
        }
    }

    /// The first page that a token at a position sees, in tokens.
    fn first_seen(&self, position: usize) -> usize {
        let seen = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        seen / self.size.tokens() * self.size.tokens()
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Start { text, len_tokens } => {
                // Few texts, so that sequences share prefixes. The last page differs from shorter
                // texts.
                let tokens: Vec<u32> =
                    (0..*len_tokens as u32).map(|p| p / 24 * u32::from(*text)).collect();
                let prefix = &tokens[..len_tokens - 1];
                let (table, imports) = self.pool.match_prefix_in(prefix, Some(&self.store));
                let contents: Vec<Page> =
                    imports.iter().map(|import| self.store.0[&import.key].clone()).collect();
                self.move_pages();
                self.imports += imports.len();
                for (import, page) in imports.iter().zip(contents) {
                    self.storage[import.key.group.index()][import.to.index()] = page;
                }
                assert!(table.len_tokens() < tokens.len());
                let matched = tokens[..table.len_tokens()].to_vec();
                let dropped_tokens = self.first_seen(matched.len()).min(matched.len());
                self.sequences.push(Sequence { table, tokens: matched, dropped_tokens });
                self.note_peaks();
                self.check();
                self.write(self.sequences.len() - 1, &tokens);
            }
            Operation::Grow { which, by_tokens, token } => {
                let Some(index) = self.pick(*which) else { return };
                let mut tokens = self.sequences[index].tokens.clone();
                tokens.extend(std::iter::repeat_n(*token, *by_tokens));
                self.write(index, &tokens);
            }
            Operation::Reserve { which, by_tokens } => {
                let Some(index) = self.pick(*which) else { return };
                self.reserve(index, *by_tokens);
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
                let to = to.index(self.sequences[index].tokens.len() + 1);
                let first_seen = self.first_seen(to);
                let sequence = &mut self.sequences[index];
                let has_states = self.pool.num_pages().states > 0;
                let stays = to == 0 || to == sequence.tokens.len();
                let cause = match has_states {
                    _ if stays => None,
                    true => Some(CutCause::State),
                    false if first_seen < sequence.dropped_tokens => Some(CutCause::Window),
                    false => None,
                };
                let is_possible = cause.is_none();
                let expected = match cause {
                    Some(cause) => Err(NotCut { len_tokens: to, cause }),
                    None => Ok(()),
                };
                assert_eq!(self.pool.truncate(&mut sequence.table, to), expected);
                if is_possible {
                    sequence.tokens.truncate(to);
                    sequence.dropped_tokens = sequence.dropped_tokens.min(to);
                }
            }
            Operation::DropFront { which } => {
                let Some(index) = self.pick(*which) else { return };
                let len = self.sequences[index].tokens.len();
                let first_seen = self.first_seen(len);
                let sequence = &mut self.sequences[index];
                self.pool.drop_front(&mut sequence.table);
                sequence.dropped_tokens = sequence.dropped_tokens.max(first_seen);
            }
            Operation::Publish { which, checkpoints } => {
                let Some(index) = self.pick(*which) else { return };
                if *checkpoints {
                    self.checkpoint(index);
                } else {
                    let Sequence { table, tokens, .. } = &self.sequences[index];
                    self.pool.publish(table, tokens);
                }
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
        let state = |world: &PagePool, table: &PageTable| {
            (pages(table), PageGroup::ALL.map(|group| world.stats(group)))
        };
        let before = state(&self.pool, &sequence.table);
        match self.pool.grow(&mut sequence.table, tokens.len()) {
            Ok(copies) => {
                assert!(needed.fits_in(available));
                self.store.follow(self.pool.take_moves(), &self.storage);
                for copy in copies {
                    let storage = &mut self.storage[copy.group.index()];
                    let contents = storage[copy.from.index()].clone();
                    storage[copy.to.index()] = contents;
                }
                for position in sequence.tokens.len()..tokens.len() {
                    for &group in self.groups {
                        let slot = sequence.table.slot(group, position, self.size).unwrap();
                        self.storage[group.index()][slot.page.index()][slot.offset_tokens] =
                            Some(tokens[..=position].to_vec());
                    }
                }
                if let Some(state) = sequence.table.state() {
                    self.storage[PageGroup::State.index()][state.index()][0] =
                        Some(tokens.to_vec());
                }
                sequence.tokens = tokens.to_vec();
            }
            Err(error) => {
                assert_eq!(OutOfPages::check(needed, available), Err(error));
                assert_eq!(state(&self.pool, &sequence.table), before);
            }
        }
        self.note_peaks();
    }

    /// Publishes the pages of a sequence, and the states where they end.
    fn checkpoint(&mut self, index: usize) {
        let Sequence { table, tokens, .. } = &self.sequences[index];
        self.pool.publish(table, tokens);
        let is_kept = self.pool.checkpoint(table, tokens);
        self.pool.export_checkpoint(tokens);
        self.move_pages();
        let Sequence { table: _, tokens, .. } = &self.sequences[index];
        if is_kept {
            let again = self.pool.match_prefix(tokens);
            assert_eq!(self.pool.take_moves(), []);
            assert_eq!(again.len_tokens(), tokens.len());
            self.note_peaks();
            self.pool.release(again);
        }
    }

    /// Copies pages to the store.
    fn move_pages(&mut self) {
        self.store.follow(self.pool.take_moves(), &self.storage);
    }

    /// Writes values after the last token of a sequence, as a draft does.
    fn reserve(&mut self, index: usize, by_tokens: usize) {
        let sequence = &mut self.sequences[index];
        let len_tokens = sequence.tokens.len();
        let available = self.pool.available_pages();
        let needed = self.pool.pages_needed(&sequence.table, len_tokens + by_tokens);
        let needed = PageCounts { states: 0, ..needed };
        let before = pages(&sequence.table);
        let used = PageGroup::ALL.map(|group| self.pool.stats(group).used_pages);
        let refused = match self.pool.reserve(&mut sequence.table, len_tokens + by_tokens) {
            Ok(mut reserved) => {
                assert!(needed.fits_in(available));
                self.store.follow(reserved.take_moves(), &self.storage);
                for copy in reserved.copies() {
                    assert_ne!(copy.group, PageGroup::State);
                    let storage = &mut self.storage[copy.group.index()];
                    let contents = storage[copy.from.index()].clone();
                    storage[copy.to.index()] = contents;
                }
                assert_eq!(reserved.table().len_tokens(), len_tokens);
                for position in len_tokens..len_tokens + by_tokens {
                    for &group in self.groups {
                        let page = reserved.table().pages(group)[position / self.size.tokens()];
                        let slot = position % self.size.tokens();
                        self.storage[group.index()][page.index()][slot] = Some(vec![u32::MAX]);
                    }
                }
                drop(reserved);
                for group in PageGroup::ALL {
                    let peak = &mut self.peak_used_pages[group.index()];
                    *peak = (*peak).max(used[group.index()] + needed.of(group));
                }
                None
            }
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            assert_eq!(OutOfPages::check(needed, available), Err(error));
            assert_eq!(pages(&self.sequences[index].table), before);
        }
    }

    fn note_peaks(&mut self) {
        for group in PageGroup::ALL {
            let peak = &mut self.peak_used_pages[group.index()];
            *peak = (*peak).max(self.pool.stats(group).used_pages);
        }
    }

    fn pick(&self, which: prop::sample::Index) -> Option<usize> {
        (!self.sequences.is_empty()).then(|| which.index(self.sequences.len()))
    }

    fn check(&self) {
        self.groups.iter().for_each(|group| self.check_group(*group));
        self.check_states();
    }

    /// The states of each sequence are those after its last token.
    fn check_states(&self) {
        let group = PageGroup::State;
        let has_states = self.pool.num_pages().states > 0;
        let mut held = Vec::new();
        for Sequence { table, tokens, .. } in &self.sequences {
            assert_eq!(table.state().is_some(), has_states && !tokens.is_empty());
            if let Some(state) = table.state() {
                let stored = &self.storage[group.index()][state.index()][0];
                assert_eq!(stored.as_deref(), Some(&tokens[..]));
                held.push(state);
            }
        }
        held.sort_unstable();
        held.dedup();
        let stats = self.pool.stats(group);
        assert_eq!((stats.used_pages, stats.unfilled_tokens), (held.len(), 0));
        assert_eq!(stats.free_pages + stats.used_pages + stats.idle_pages, stats.total_pages);
        assert!(stats.idle_pages <= stats.cached_pages);
    }

    fn check_group(&self, group: PageGroup) {
        let num_pages = self.pool.num_pages().of(group);
        let mut holders: BTreeMap<PageId, u32> = BTreeMap::new();
        let mut unfilled_tokens = 0;
        for sequence in &self.sequences {
            let Sequence { table, tokens, .. } = sequence;
            let dropped_tokens = sequence.dropped_tokens(group);
            assert_eq!(table.len_tokens(), tokens.len());
            assert_eq!(table.pages(group).len(), self.size.pages_for(tokens.len()));
            assert_eq!(table.dropped_pages(group) * self.size.tokens(), dropped_tokens);
            unfilled_tokens += table.pages(group).len() * self.size.tokens() - tokens.len();
            for &page in table.held_pages(group) {
                *holders.entry(page).or_default() += 1;
            }
            // Placeholders are valid indices.
            assert!(table.pages(group).iter().all(|page| page.index() < num_pages));
            // Every token reads back with all tokens before it, regardless of later writes by other
            // sequences.
            for position in 0..tokens.len() {
                let slot = table.slot(group, position, self.size);
                assert_eq!(slot.is_none(), position < dropped_tokens);
                if let Some(slot) = slot {
                    let page = &self.storage[group.index()][slot.page.index()];
                    assert_eq!(page[slot.offset_tokens].as_deref(), Some(&tokens[..=position]));
                }
            }
            assert_eq!(table.slot(group, tokens.len(), self.size), None);
        }
        let stats = self.pool.stats(group);
        assert_eq!(stats.total_pages, num_pages);
        assert_eq!(stats.used_pages, holders.len());
        assert_eq!(stats.shared_pages, holders.values().filter(|&&count| count > 1).count());
        assert_eq!(stats.free_pages + stats.used_pages + stats.idle_pages, stats.total_pages);
        assert!(stats.idle_pages <= stats.cached_pages);
        assert!(stats.cached_pages <= stats.idle_pages + stats.used_pages);
        assert_eq!(stats.unfilled_tokens, unfilled_tokens);
        let peak = self.peak_used_pages[group.index()];
        assert_eq!(stats.peak_used_pages, peak.max(stats.used_pages));
        let available = self.pool.available_pages().of(group);
        assert_eq!(available, stats.free_pages + stats.idle_pages);
    }

    /// All pages are returned, and one sequence can then hold every page.
    fn finish(mut self) {
        for sequence in std::mem::take(&mut self.sequences) {
            self.pool.release(sequence.table);
        }
        self.check();
        let num_pages = self.pool.num_pages();
        assert_eq!(self.pool.available_pages(), num_pages);
        let mut all = PageTable::new();
        let most = self.groups.iter().map(|group| num_pages.of(*group)).min().unwrap();
        assert_eq!(self.pool.grow(&mut all, most * self.size.tokens()), Ok(Vec::new()));
        for &group in self.groups {
            let mut pages = all.pages(group).to_vec();
            pages.sort_unstable();
            pages.dedup();
            assert_eq!(pages.len(), most);
        }
        self.pool.release(all);
    }
}
