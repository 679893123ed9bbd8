//! The KV cache of an engine: new sequences, pages and their statistics.

use std::sync::Arc;

use rf_kv::{CacheObserver, PageCounts, PageGroup, PagePool, PoolStats};

use super::Engine;
use super::stats::PrefixCacheStats;
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

    /// A new sequence with the longest prefix of a prompt in the prefix cache, in full pages. The
    /// last token is left out: its logits are not in the cache.
    pub(crate) fn session_with_prefix(
        &mut self,
        adapters: AdapterScales,
        prompt: &[u32],
    ) -> Session {
        if self.keeps_states {
            let mut session = self.session_with(adapters);
            self.keep_states(&mut session, prompt);
            return session;
        }
        let prefix = &prompt[..prompt.len().saturating_sub(1)];
        Session::from_prefix(Arc::clone(&self.pool), adapters, prefix)
    }

    /// Prepares the extension of a session to `prompt`, if the prefix cache keeps recurrent states:
    /// an empty session takes over the longest prefix, whose states may come from host memory.
    pub(crate) fn keep_states(&mut self, session: &mut Session, prompt: &[u32]) {
        if !self.keeps_states {
            return;
        }
        session.keep_states(prompt, self.page_tokens);
        let moved = {
            let pool = &mut lock(&self.pool);
            self.host_states.follow(pool, self.executor.as_mut())
        };
        if let Err(error) = moved {
            tracing::warn!(%error, "a prompt is computed from its start");
            lock(&self.pool).forget_checkpoint(session.prefix_of(session.tokens()));
            session.reset();
        }
    }

    /// Statistics of the prefix cache.
    pub fn prefix_cache_stats(&self) -> PrefixCacheStats {
        let tokens = self.kv_stats();
        let states = self.kv_stats_of(PageGroup::State);
        PrefixCacheStats {
            lookup_tokens: tokens.prefix_lookup_tokens,
            found_tokens: tokens.prefix_hit_tokens,
            device_states: states.cached_pages,
            host_states: states.stored,
            host_state_bytes: self.host_states.bytes(),
            host_state_loads: states.loads,
        }
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
