//! Room for values after the last token of a sequence.

use super::{CopyPage, OutOfPages, PagePool};
use crate::export::PageMove;
use crate::page::PageCounts;
use crate::table::PageTable;

/// A table with room for values of positions after its last token: see [`PagePool::reserve`].
/// Dropping it returns the pages of these positions.
#[derive(Debug)]
pub struct Reserved<'a> {
    pool: &'a mut PagePool,
    table: &'a mut PageTable,
    copies: Vec<CopyPage>,
}

impl Reserved<'_> {
    /// The table. It has as many tokens as before, and pages for more.
    pub fn table(&self) -> &PageTable {
        self.table
    }

    /// The copies to the store that the caller must execute first: [`PagePool::take_moves`].
    pub fn take_moves(&mut self) -> Vec<PageMove> {
        self.pool.take_moves()
    }

    /// The copies that the backend must execute before it writes.
    pub fn copies(&self) -> &[CopyPage] {
        &self.copies
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let keep = self.pool.page_size.pages_for(self.table.len_tokens);
        for &group in self.pool.token_groups() {
            self.pool.keep_pages(self.table, group, keep);
        }
    }
}

impl PagePool {
    /// Gives a table pages for positions up to `len_tokens`, for values that are written after its
    /// tokens and are not kept. The table has no more tokens than before, and its states stay as
    /// they are and may be shared.
    ///
    /// # Errors
    ///
    /// When there are not enough pages. Nothing has changed then.
    pub fn reserve<'a>(
        &'a mut self,
        table: &'a mut PageTable,
        len_tokens: usize,
    ) -> Result<Reserved<'a>, OutOfPages> {
        let needed = PageCounts { states: 0, ..self.pages_needed(table, len_tokens) };
        OutOfPages::check(needed, self.available_pages())?;
        let mut copies = Vec::new();
        if len_tokens > table.len_tokens {
            copies = self.add_pages(table, len_tokens)?;
        }
        Ok(Reserved { pool: self, table, copies })
    }
}
