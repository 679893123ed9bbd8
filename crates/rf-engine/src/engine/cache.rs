//! The KV cache of an engine: new sequences, pages and their statistics.

use std::sync::Arc;
use std::time::Instant;

use rf_kv::{CacheObserver, PageCounts, PageGroup, PagePool, PoolStats};

use super::Engine;
use super::stats::{PrefixCacheStats, TierStats};
use super::tiers::DiskCacheOptions;
use crate::adapters::AdapterScales;
use crate::error::Error;
use crate::session::{Session, lock};

impl Engine {
    /// Tokens of the KV cache, which all sequences share. Layers with a sliding window hold fewer.
    pub fn kv_tokens(&self) -> usize {
        self.kv.num_pages.full * self.page_tokens
    }

    /// Statistics of the KV cache: pages held, free and allocated so far.
    pub fn kv_stats(&self) -> PoolStats {
        self.kv_stats_of(PageGroup::Full)
    }

    /// Statistics of the layers of a group.
    pub fn kv_stats_of(&self, group: PageGroup) -> PoolStats {
        lock(&self.pool).stats(group)
    }

    /// A new, empty sequence, with the [scales](crate::Model::adapter_scales) of the model's
    /// adapters. [`Session::set_adapters`] changes them.
    pub fn session(&self) -> Session {
        self.session_with(self.model.adapter_scales().clone())
    }

    /// A new, empty sequence with these scales of adapters.
    pub(crate) fn session_with(&self, adapters: AdapterScales) -> Session {
        Session::new(Arc::clone(&self.pool), adapters)
    }

    /// Keeps pages of the prefix cache in a folder, in which a later engine of the same model and
    /// settings finds them.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or read, or the thread that writes cannot be started.
    pub fn set_disk_cache(&mut self, options: &DiskCacheOptions) -> Result<(), Error> {
        self.tiers.open_disk(options, self.identity)?;
        lock(&self.pool).set_exports(self.tiers.exports());
        Ok(())
    }

    /// A new sequence with the longest prefix of a prompt in the prefix cache, in full pages. The
    /// last token is left out: its logits are not in the cache. Pages that are not on the device
    /// must be [read back](Self::read_back) first.
    pub(crate) fn session_with_prefix(
        &mut self,
        adapters: AdapterScales,
        prompt: &[u32],
    ) -> Session {
        let mut session = self.session_with(adapters);
        if self.keeps_states() {
            self.keep_states(&mut session, prompt);
        } else {
            self.take_prefix(&mut session, prompt);
        }
        session
    }

    /// Prepares the extension of a session to `prompt`, if the prefix cache keeps recurrent states:
    /// an empty session takes over the longest prefix, as
    /// [`session_with_prefix`](Self::session_with_prefix) does.
    pub(crate) fn keep_states(&mut self, session: &mut Session, prompt: &[u32]) {
        if !self.keeps_states() {
            return;
        }
        let known_tokens = lock(&self.pool).cached_tokens(session.prefix_of(prompt));
        if session.is_empty() {
            self.take_prefix(session, prompt);
        }
        session.keep_states(prompt, self.page_tokens, known_tokens.max(session.len()));
    }

    fn take_prefix(&mut self, session: &mut Session, prompt: &[u32]) {
        let prefix = &prompt[..prompt.len().saturating_sub(1)];
        let imports = session.take_prefix(prefix, self.tiers.store());
        session.imports = self.tiers.pending(imports);
        self.export_pages();
    }

    /// Copies at most `most` of the pages that a session waits for to the device, and returns the
    /// number of copied pages. A session that lacks one loses all its tokens.
    pub(crate) fn read_back(&mut self, session: &mut Session, most: usize) -> usize {
        let start = Instant::now();
        let mut pages = 0;
        while pages < most
            && let Some(pending) = session.imports.last()
        {
            if self.tiers.load(pending, self.executor.as_mut()).is_err() {
                session.reset();
                break;
            }
            session.imports.pop();
            pages += 1;
            if session.imports.is_empty() {
                session.end_imports(self.page_tokens);
            }
        }
        self.tiers.note_imports(pages, start.elapsed());
        pages
    }

    /// Copies pages that leave the prefix cache to the tiers outside of the device.
    pub(crate) fn export_pages(&mut self) {
        self.tiers.follow(&mut lock(&self.pool), self.executor.as_ref());
    }

    /// Returns true if the prefix cache keeps recurrent states.
    fn keeps_states(&self) -> bool {
        let fits_in_tiers =
            self.tiers.has_disk() || self.tiers.host_budget_bytes() >= self.state_bytes;
        self.state_bytes > 0 && (self.checkpoints > 0 || fits_in_tiers)
    }

    /// Statistics of the prefix cache.
    pub fn prefix_cache_stats(&self) -> PrefixCacheStats {
        let tokens = self.kv_stats();
        PrefixCacheStats {
            lookup_tokens: tokens.prefix_lookup_tokens,
            found_tokens: tokens.prefix_hit_tokens,
            device_states: self.kv_stats_of(PageGroup::State).cached_pages,
            host: self.tiers.host_stats(),
            disk: self.tiers.disk_stats(),
        }
    }

    /// The pages in host memory and in the folder.
    pub(crate) fn tier_stats(&self) -> (TierStats, TierStats) {
        (self.tiers.host_stats(), self.tiers.disk_stats())
    }

    /// Checks that the newest tokens of a sequence can be dropped, as drafts need.
    ///
    /// # Errors
    ///
    /// [`Error::CannotDropTokens`] for models without causal attention and engines that embed, and
    /// [`Error::NoDraftStates`] without room for the recurrent states before a draft.
    pub(crate) fn check_drops_tokens(&self) -> Result<(), Error> {
        if self.pooling.is_some() || !self.model.config().is_causal() {
            return Err(Error::CannotDropTokens);
        }
        if self.is_recurrent() && self.kv.num_pages.states < 2 {
            return Err(Error::NoDraftStates);
        }
        Ok(())
    }

    /// Pages of the KV cache that no sequence holds.
    pub(crate) fn available_pages(&self) -> PageCounts {
        lock(&self.pool).available_pages()
    }

    /// Passes the changes of the prefix cache to an observer, instead of an earlier one.
    pub fn observe_prefix_cache(&mut self, observer: Option<CacheObserver>) {
        lock(&self.pool).observe(observer);
    }

    /// Returns true if layers with a sliding window have their own pages.
    pub(crate) fn has_window_pages(&self) -> bool {
        self.kv.window.is_some()
    }

    /// Returns true if sequences have recurrent states.
    pub(crate) fn is_recurrent(&self) -> bool {
        !self.kv.states.is_empty()
    }

    /// Bytes of the pages that sequences hold, as a share of the memory of the cache.
    pub(super) fn kv_bytes_used(&self, pool: &PagePool) -> u64 {
        let used = PageGroup::OF_TOKENS.map(|group| {
            pool.stats(group).used_pages * self.page_tokens * self.kv.bytes_per_token(group)
        });
        let share = used.iter().sum::<usize>() as f64 / self.kv.bytes().max(1) as f64;
        (self.memory_need.held.kv_bytes as f64 * share).round() as u64
    }
}
