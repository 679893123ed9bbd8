//! The pages of the prefix cache outside of the device: in host memory, and in a folder.
//!
//! Pages that the prefix cache evicts go to host memory, and from there to the folder. If there is
//! a folder, pages are written there as soon as they are computed, so that a process that is
//! killed loses the last ones only. A prompt finds its prefix in all three ([`PageStore`]). The
//! pages that the device lacks are read back, a bounded number per step.
//!
//! | file | content |
//! |---|---|
//! | `tiers.rs` | what moves where |
//! | `tiers/host.rs` | pages in host memory, within a budget |
//! | `tiers/disk.rs` | pages in files: the index, the thread that writes, the limit |
//! | `tiers/file.rs` | the bytes of a file, and their check |
//! | `tiers/cost.rs` | the time of reading back and of computing |

mod cost;
mod disk;
mod file;
mod host;

use std::sync::Arc;
use std::time::Duration;

use rf_graph::Executor;
use rf_kv::{Exports, PageImport, PageKey, PageMove, PagePool, PageStore};

use super::stats::TierStats;
use crate::error::Error;
use cost::ImportCost;
pub use disk::DiskCacheOptions;
use disk::DiskTier;
use host::HostTier;

/// A page that a session waits for.
#[derive(Debug)]
pub(crate) struct PendingImport {
    import: PageImport,
    /// The contents, if they are in host memory. The reference keeps them when other pages evict
    /// the entry.
    bytes: Option<Arc<[u8]>>,
}

/// A page is not in the tiers any more, or its file is damaged.
#[derive(Debug)]
pub(crate) struct LostPage;

/// The pages in host memory and in the folder.
pub(super) struct Tiers {
    host: HostTier,
    disk: Option<DiskTier>,
    cost: ImportCost,
}

impl Tiers {
    /// Host memory of a number of bytes, without a folder. `measures` is false for pages that are
    /// read back even if computing them is faster.
    pub(super) fn new(host_bytes: u64, measures: bool) -> Self {
        Self { host: HostTier::new(host_bytes), disk: None, cost: ImportCost::new(measures) }
    }

    /// Adds a folder for the pages of a computation.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or read, or the thread cannot be started.
    pub(super) fn open_disk(
        &mut self,
        options: &DiskCacheOptions,
        identity: u128,
    ) -> Result<(), Error> {
        self.disk = Some(DiskTier::open(options, identity)?);
        Ok(())
    }

    /// Returns the events at which the pool copies pages to the tiers.
    pub(super) fn exports(&self) -> Exports {
        match &self.disk {
            Some(_) => Exports::AtOnce,
            None if self.host.budget_bytes() > 0 => Exports::OnEviction,
            None => Exports::Off,
        }
    }

    /// The tiers as a store for a search, if there are any.
    pub(super) fn store(&self) -> Option<&dyn PageStore> {
        (self.exports() != Exports::Off).then_some(self)
    }

    /// Copies pages to the tiers, as the pool says. Pages that the backend does not read are lost.
    pub(super) fn follow(&mut self, pool: &mut PagePool, executor: &dyn Executor) {
        self.execute(pool.take_moves(), executor);
    }

    /// Executes moves of a pool.
    pub(super) fn execute(&mut self, moves: Vec<PageMove>, executor: &dyn Executor) {
        for each in moves {
            match each {
                PageMove::Export { key, from, is_evicted } => {
                    let to_host = is_evicted && self.host.lacks(key);
                    let to_disk = self.disk.as_ref().is_some_and(|disk| !disk.contains(key));
                    if !to_host && !to_disk {
                        continue;
                    }
                    let mut bytes = Vec::new();
                    if let Err(error) = executor.read_page(key.group, from, &mut bytes) {
                        tracing::debug!(%error, "a page of the prefix cache is lost");
                        continue;
                    }
                    let bytes: Arc<[u8]> = bytes.into();
                    if to_disk && let Some(disk) = &self.disk {
                        disk.write(key, Arc::clone(&bytes));
                    }
                    if to_host {
                        self.keep(key, bytes);
                    }
                }
                PageMove::Forget(key) => self.forget(key),
            }
        }
    }

    /// Puts a page into host memory. Those that make room go to the folder, if they are not there.
    fn keep(&mut self, key: PageKey, bytes: Arc<[u8]>) {
        for (key, bytes) in self.host.insert(key, bytes) {
            if let Some(disk) = &self.disk
                && !disk.contains(key)
            {
                disk.write(key, bytes);
            }
        }
    }

    fn forget(&mut self, key: PageKey) {
        self.host.remove(key);
        if let Some(disk) = &self.disk {
            disk.remove(key);
        }
    }

    /// The imports of a sequence, which [`load`](Self::load) takes from the end. The contents in
    /// host memory stay there until then.
    pub(super) fn pending(&mut self, imports: Vec<PageImport>) -> Vec<PendingImport> {
        let pending = |import: PageImport| {
            let queued = || self.disk.as_ref().and_then(|disk| disk.queued(import.key));
            PendingImport { import, bytes: self.host.load(import.key).or_else(queued) }
        };
        imports.into_iter().rev().map(pending).collect()
    }

    /// Copies a page to the device.
    ///
    /// # Errors
    ///
    /// If the page was removed, is damaged or does not fit. It is then in no tier.
    pub(super) fn load(
        &mut self,
        pending: &PendingImport,
        executor: &mut dyn Executor,
    ) -> Result<(), LostPage> {
        let PageImport { key, to } = pending.import;
        let from_disk;
        let bytes = match (&pending.bytes, &self.disk) {
            (Some(bytes), _) => &bytes[..],
            (None, Some(disk)) => {
                from_disk = disk.read(key).ok_or(LostPage)?;
                file::page(&from_disk)
            }
            (None, None) => return Err(LostPage),
        };
        executor.write_page(key.group, to, bytes).map_err(|error| {
            tracing::warn!(%error, "a page of the prefix cache is computed again");
            self.forget(key);
            LostPage
        })
    }

    /// Notes the time of pages that were read back.
    pub(super) fn note_imports(&mut self, pages: usize, time: Duration) {
        self.cost.note_imports(pages, time);
    }

    /// Notes the time of computed tokens.
    pub(super) fn note_computed(&mut self, tokens: usize, time: Duration) {
        self.cost.note_computed(tokens, time);
    }

    /// The pages in host memory.
    pub(super) fn host_stats(&self) -> TierStats {
        self.host.stats()
    }

    /// The pages in the folder.
    pub(super) fn disk_stats(&self) -> TierStats {
        self.disk.as_ref().map_or_else(TierStats::default, DiskTier::stats)
    }

    /// Bytes of host memory that may hold pages.
    pub(super) fn host_budget_bytes(&self) -> u64 {
        self.host.budget_bytes()
    }

    /// Returns true if there is a folder.
    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }
}

impl PageStore for Tiers {
    fn contains(&self, key: PageKey) -> bool {
        self.host.contains(key) || self.disk.as_ref().is_some_and(|disk| disk.contains(key))
    }

    fn is_faster(&self, pages: usize, tokens: usize) -> bool {
        self.cost.is_faster(pages, tokens)
    }
}
