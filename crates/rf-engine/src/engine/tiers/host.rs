//! Pages in host memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rf_kv::PageKey;

use super::file::is_state;
use crate::engine::stats::TierStats;

/// Pages within a budget. Those that were not used for longest make room.
pub(super) struct HostTier {
    budget_bytes: u64,
    pages: HashMap<PageKey, HeldPage>,
    /// The pages by the number of their last use.
    by_use: BTreeMap<u64, PageKey>,
    uses: u64,
    stats: TierStats,
}

struct HeldPage {
    bytes: Arc<[u8]>,
    last_use: u64,
}

impl HostTier {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            pages: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            stats: TierStats::default(),
        }
    }

    pub(super) const fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    pub(super) fn contains(&self, key: PageKey) -> bool {
        self.pages.contains_key(&key)
    }

    /// Returns true if a page should be inserted. One that is there already counts as used now.
    pub(super) fn lacks(&mut self, key: PageKey) -> bool {
        self.budget_bytes > 0 && self.get(key).is_none()
    }

    /// A page, which counts as used now.
    pub(super) fn get(&mut self, key: PageKey) -> Option<Arc<[u8]>> {
        let page = self.pages.get_mut(&key)?;
        self.by_use.remove(&page.last_use);
        self.uses += 1;
        page.last_use = self.uses;
        self.by_use.insert(self.uses, key);
        Some(Arc::clone(&page.bytes))
    }

    /// A page to be copied to the device.
    pub(super) fn load(&mut self, key: PageKey) -> Option<Arc<[u8]>> {
        let page = self.get(key)?;
        self.stats.loads += 1;
        Some(page)
    }

    /// Adds a page, and returns those that make room for it. A page that is larger than the budget
    /// is returned itself.
    pub(super) fn insert(&mut self, key: PageKey, bytes: Arc<[u8]>) -> Vec<(PageKey, Arc<[u8]>)> {
        let len = bytes.len() as u64;
        if len > self.budget_bytes {
            return vec![(key, bytes)];
        }
        self.remove(key);
        let mut evicted = Vec::new();
        while self.stats.bytes + len > self.budget_bytes {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            let oldest = *oldest;
            evicted.extend(self.remove(oldest).map(|bytes| (oldest, bytes)));
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.pages.insert(key, HeldPage { bytes, last_use: self.uses });
        self.stats.bytes += len;
        self.stats.pages += 1;
        self.stats.states += usize::from(is_state(key));
        evicted
    }

    pub(super) fn remove(&mut self, key: PageKey) -> Option<Arc<[u8]>> {
        let HeldPage { bytes, last_use } = self.pages.remove(&key)?;
        self.by_use.remove(&last_use);
        self.stats.bytes -= bytes.len() as u64;
        self.stats.pages -= 1;
        self.stats.states -= usize::from(is_state(key));
        Some(bytes)
    }

    pub(super) const fn stats(&self) -> TierStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use rf_kv::{ChainKey, PageGroup};

    use super::*;

    fn key(number: u32) -> PageKey {
        PageKey { group: PageGroup::Full, chain: ChainKey::ROOT.child(&[number]) }
    }

    fn page(number: u32, len: usize) -> (PageKey, Arc<[u8]>) {
        (key(number), vec![number as u8; len].into())
    }

    #[test]
    fn pages_that_were_not_used_for_longest_make_room() {
        let mut tier = HostTier::new(100);
        let insert = |tier: &mut HostTier, number, len| -> Vec<PageKey> {
            let (key, bytes) = page(number, len);
            tier.insert(key, bytes).into_iter().map(|(key, _)| key).collect()
        };
        for number in 1..=3 {
            assert_eq!(insert(&mut tier, number, 30), []);
        }
        assert!(!tier.lacks(key(1)) && tier.lacks(key(4)));
        assert_eq!(insert(&mut tier, 4, 50), [key(2), key(3)]);
        assert_eq!((tier.stats.pages, tier.stats.bytes), (2, 80));
        assert_eq!(tier.get(key(1)).as_deref(), Some(&[1_u8; 30][..]));
        assert_eq!(tier.get(key(2)), None);
        // The same page again takes no more room, and one beyond the budget none.
        assert_eq!(insert(&mut tier, 4, 50), []);
        assert_eq!(insert(&mut tier, 5, 101), [key(5)]);
        tier.remove(key(1));
        assert_eq!((tier.stats.pages, tier.stats.bytes), (1, 50));
    }
}
