//! One sequence and its part of the KV cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rf_kv::{NotCut, PageCounts, PageImport, PagePool, PageStore, PageTable, Prefix};

use crate::adapters::AdapterScales;
use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::engine::PendingImport;
use crate::media::{MixedPrompt, PromptMedia};
use crate::token_states::TokenStates;

/// A sequence: the tokens in the cache, and the pages and recurrent states that hold them. Dropping
/// it frees both.
#[derive(Debug)]
pub struct Session {
    pub(crate) pool: Arc<Mutex<PagePool>>,
    pub(crate) table: PageTable,
    pub(crate) tokens: Vec<u32>,
    /// The adapters that change the sequence.
    adapters: AdapterScales,
    /// The media among the tokens, and perhaps others after them.
    media: Arc<PromptMedia>,
    /// True if the full pages enter the prefix cache when they are computed.
    publishes: bool,
    /// Tokens that are in the prefix cache.
    published_tokens: usize,
    /// True while tokens are added that may be dropped again.
    is_tentative: bool,
    /// Positions at which recurrent states enter the prefix cache.
    checkpoints: Checkpoints,
    /// The sequence before the tokens that were added tentatively, if it has recurrent states:
    /// they cannot be cut, so the session returns to them.
    before: Option<PageTable>,
    /// The model's states of the newest tokens, if its MTP block reads them.
    pub(crate) token_states: TokenStates,
    /// Pages of the table that are not there yet.
    pub(crate) imports: Vec<PendingImport>,
}

impl Session {
    pub(crate) fn new(pool: Arc<Mutex<PagePool>>, adapters: AdapterScales) -> Self {
        Self {
            pool,
            table: PageTable::new(),
            tokens: Vec::new(),
            adapters,
            media: Arc::default(),
            publishes: false,
            published_tokens: 0,
            is_tentative: false,
            checkpoints: Checkpoints::default(),
            before: None,
            token_states: TokenStates::default(),
            imports: Vec::new(),
        }
    }

    /// Takes over the longest prefix of `tokens` that the prefix cache of the pool or the store
    /// holds, in full pages, with the same adapters. The session is empty before. Pages that are
    /// computed after it enter the cache. Returns the pages that must be copied first.
    pub(crate) fn take_prefix(
        &mut self,
        tokens: &[u32],
        store: Option<&dyn PageStore>,
    ) -> Vec<PageImport> {
        let prefix = Prefix { key: self.adapters.key(), tokens };
        let (table, imports) = lock(&self.pool).match_prefix_in(prefix, store);
        self.tokens = tokens[..table.len_tokens()].to_vec();
        self.table = table;
        self.publishes = true;
        self.published_tokens = if imports.is_empty() { self.tokens.len() } else { 0 };
        imports
    }

    /// Prepares an extension to `prompt`, of which the session has a prefix: recurrent states are
    /// kept at some of its positions. `known_tokens` were computed before, for any sequence.
    pub(crate) fn keep_states(&mut self, prompt: &[u32], page_tokens: usize, known_tokens: usize) {
        self.publishes = true;
        self.checkpoints = Checkpoints::new(page_tokens, prompt.len(), known_tokens);
    }

    /// Returns true if pages must be copied from outside of the device before a token is computed.
    pub(crate) fn is_importing(&self) -> bool {
        !self.imports.is_empty()
    }

    /// Adds the pages that were copied to the prefix cache.
    pub(crate) fn end_imports(&mut self, page_tokens: usize) {
        let pool = Arc::clone(&self.pool);
        self.publish(&mut lock(&pool), page_tokens);
    }

    /// Adds all full pages to the prefix cache, and the recurrent states if the last page is full.
    pub(crate) fn publish(&mut self, pool: &mut PagePool, page_tokens: usize) {
        self.publishes = true;
        self.settle(pool, page_tokens);
        let prefix = self.prefix_of(&self.tokens);
        if pool.checkpoint(&self.table, prefix) {
            pool.export_checkpoint(prefix);
        }
    }

    /// The adapters that change the sequence.
    pub fn adapters(&self) -> &AdapterScales {
        &self.adapters
    }

    /// Changes the adapters. With others than before, the sequence loses its tokens: they would be
    /// computed to other values.
    pub fn set_adapters(&mut self, adapters: AdapterScales) {
        if self.adapters != adapters {
            self.reset();
            self.adapters = adapters;
        }
    }

    /// Tokens as a prefix in the cache of the pool.
    pub(crate) fn prefix_of<'a>(&'a self, tokens: &'a [u32]) -> Prefix<'a> {
        Prefix { key: self.adapters.key(), tokens }
    }

    /// States the prompt that the session has or will have, whose media it needs. A new one has the
    /// tokens and rows that are in the cache already.
    pub fn set_prompt(&mut self, prompt: &MixedPrompt) {
        self.media = Arc::new(prompt.media.clone());
    }

    /// Sets the media of the prompt that the session has or will have.
    pub(crate) fn set_media(&mut self, media: &Arc<PromptMedia>) {
        self.media = Arc::clone(media);
    }

    /// The media of the prompt.
    pub(crate) fn media(&self) -> &Arc<PromptMedia> {
        &self.media
    }

    /// Tokens that a batch may compute before the next states may be kept.
    pub(crate) fn tokens_to_checkpoint(&self) -> usize {
        self.checkpoints.tokens_left(self.len())
    }

    /// A second sequence with the same tokens. They share pages until one of them writes.
    #[must_use]
    pub fn fork(&self) -> Self {
        let table = lock(&self.pool).fork(&self.table);
        let (pool, tokens) = (Arc::clone(&self.pool), self.tokens.clone());
        let (checkpoints, token_states) = (self.checkpoints.clone(), self.token_states.clone());
        let (media, adapters) = (Arc::clone(&self.media), self.adapters.clone());
        let (before, imports) = (None, Vec::new());
        debug_assert!(!self.is_importing(), "a sequence is forked after its prompt");
        Self {
            pool,
            table,
            tokens,
            adapters,
            media,
            checkpoints,
            before,
            token_states,
            imports,
            ..*self
        }
    }

    /// Calls `compute`. If `is_tentative`, the tokens that it adds may be dropped again: the pages
    /// that the sliding window passes are kept until [`confirm`](Self::confirm) or the next token.
    pub(crate) fn tentatively<R>(
        &mut self,
        is_tentative: bool,
        compute: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.set_tentative(is_tentative);
        let result = compute(self);
        self.set_tentative(false);
        result
    }

    /// Decides whether tokens are added [tentatively](Self::tentatively) from now on.
    pub(crate) fn set_tentative(&mut self, is_tentative: bool) {
        self.is_tentative = is_tentative;
        if is_tentative && self.table.state().is_some() {
            let mut pool = lock(&self.pool);
            let before = pool.fork(&self.table);
            if let Some(older) = self.before.replace(before) {
                pool.release(older);
            }
        }
    }

    /// Keeps the first `len_tokens` tokens of which the last ones were added
    /// [tentatively](Self::tentatively), and drops the others. A sequence with recurrent states
    /// that drops some returns to its tokens before the tentative ones: those that it keeps must be
    /// computed again.
    pub(crate) fn confirm(&mut self, len_tokens: usize, page_tokens: usize) {
        let pool = Arc::clone(&self.pool);
        // Also those of tokens that the session keeps and computes again.
        self.token_states.truncate(len_tokens);
        if let Some(before) = self.before.take() {
            let is_cut = len_tokens < self.tokens.len();
            let released = if is_cut { std::mem::replace(&mut self.table, before) } else { before };
            lock(&pool).release(released);
            self.tokens.truncate(self.table.len_tokens());
            if is_cut {
                return;
            }
        }
        let cut = self.truncate(len_tokens);
        debug_assert_eq!(cut, Ok(()), "the pages of the window are still there");
        self.settle(&mut lock(&pool), page_tokens);
    }

    /// Notes tokens that were computed.
    pub(crate) fn extend(&mut self, pool: &mut PagePool, tokens: &[u32], page_tokens: usize) {
        self.tokens.extend_from_slice(tokens);
        if !self.is_tentative {
            self.settle(pool, page_tokens);
        }
    }

    /// Adds full pages to the prefix cache, and returns those that the sliding window has passed.
    fn settle(&mut self, pool: &mut PagePool, page_tokens: usize) {
        let full_tokens = self.tokens.len() / page_tokens * page_tokens;
        if self.publishes && full_tokens > self.published_tokens {
            pool.publish(&self.table, self.prefix_of(&self.tokens));
            self.published_tokens = full_tokens;
        }
        if self.publishes
            && let Checkpoint::Keep { replaced } = self.checkpoints.at(self.tokens.len())
        {
            if let Some(earlier) = replaced.and_then(|len_tokens| self.tokens.get(..len_tokens)) {
                pool.forget_checkpoint(self.prefix_of(earlier));
            }
            let is_new = pool.checkpoint(&self.table, self.prefix_of(&self.tokens));
            // Those of an answer are replaced soon.
            if is_new && self.checkpoints.in_answer() != Some(self.tokens.len()) {
                pool.export_checkpoint(self.prefix_of(&self.tokens));
            }
        }
        pool.drop_front(&mut self.table);
    }

    /// Removes pages for tokens that were not computed after all. Such a step has not dropped any,
    /// but recurrent states may have changed: a sequence that has some loses all its tokens.
    pub(crate) fn roll_back(&mut self, pool: &mut PagePool) {
        if pool.truncate(&mut self.table, self.tokens.len()).is_err() {
            pool.release(std::mem::take(&mut self.table));
            pool.release(self.before.take().unwrap_or_default());
            self.cut(0);
        }
    }

    /// Pages that the cache needs for the sequence to have `len_tokens` tokens after one step.
    /// Sequences that share a page each count the copy of it.
    pub(crate) fn pages_needed(&self, len_tokens: usize) -> PageCounts {
        lock(&self.pool).pages_needed(&self.table, len_tokens)
    }

    /// As [`pages_needed`](Self::pages_needed), for tokens that are added
    /// [tentatively](Self::tentatively): with the copies of states and of the last page.
    pub(crate) fn pages_needed_tentatively(&self, len_tokens: usize) -> PageCounts {
        let mut pool = lock(&self.pool);
        if self.table.state().is_none() {
            return pool.pages_needed(&self.table, len_tokens);
        }
        let before = pool.fork(&self.table);
        let needed = pool.pages_needed(&self.table, len_tokens);
        pool.release(before);
        needed
    }

    /// As [`pages_needed`](Self::pages_needed), for steps of at most `step_tokens`.
    pub(crate) fn pages_needed_in_steps(
        &self,
        len_tokens: usize,
        step_tokens: usize,
    ) -> PageCounts {
        lock(&self.pool).pages_needed_in_steps(&self.table, len_tokens, step_tokens)
    }

    /// The tokens in the cache. Media rows have ids of their own, above those of tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens in the cache.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns true if the cache holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Drops all but the first `len_tokens` tokens.
    ///
    /// # Errors
    ///
    /// If a sliding window has passed that position, so that the cache lacks the tokens before it,
    /// or the model has recurrent states. Nothing has changed then.
    pub fn truncate(&mut self, len_tokens: usize) -> Result<(), NotCut> {
        if len_tokens < self.tokens.len() {
            lock(&self.pool).truncate(&mut self.table, len_tokens)?;
            self.cut(len_tokens);
        }
        Ok(())
    }

    /// Drops all but the first `len_tokens` tokens, or all of them if the sequence cannot be cut
    /// there. Returns the number of remaining tokens.
    pub(crate) fn truncate_or_reset(&mut self, len_tokens: usize) -> usize {
        if self.truncate(len_tokens).is_err() {
            self.reset();
        }
        self.len()
    }

    /// Drops all tokens.
    pub fn reset(&mut self) {
        self.release();
        self.cut(0);
    }

    fn release(&mut self) {
        let tables = [std::mem::take(&mut self.table), self.before.take().unwrap_or_default()];
        self.imports.clear();
        let mut pool = lock(&self.pool);
        if let Some(answer) = self.checkpoints.in_answer()
            && let Some(tokens) = self.tokens.get(..answer)
        {
            pool.export_checkpoint(self.prefix_of(tokens));
        }
        for table in tables {
            pool.release(table);
        }
    }

    fn cut(&mut self, len_tokens: usize) {
        self.tokens.truncate(len_tokens);
        self.token_states.truncate(len_tokens);
        self.published_tokens = self.published_tokens.min(len_tokens);
        self.checkpoints = Checkpoints::default();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.release();
    }
}

/// Locks a pool. A panic of a backend poisons it between two of its operations, not within one.
pub(crate) fn lock(pool: &Mutex<PagePool>) -> MutexGuard<'_, PagePool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}
