//! Padding of decode batches: few batch sizes, so that few graphs serve a server whose number of
//! sequences changes with every request.
//!
//! A batch of a model without experts and recurrent states is filled up to the next of [`SIZES`]
//! with dummy sequences of one token. All of them are the same token at the same position of one
//! page that no sequence owns. So all write the same key, and attention, which reads it while
//! others write it, has the same result in each step. A cache of fewer than [`MIN_PAGES`] pages has
//! no such page, and its batches are not padded.

use rf_graph::{Batch, BatchLimits, Graph, KvLayout, Op, Span};
use rf_kv::{PageGroup, PageId};

use super::kv::KvPlan;
use crate::error::Error;

/// Sizes of padded batches.
pub(super) const SIZES: [usize; 10] = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64];

/// The token of dummy sequences, which every vocabulary has.
const DUMMY_ID: u32 = 0;

/// Smallest cache that has a page for dummy sequences: there it takes little of the memory.
const MIN_PAGES: usize = 64;

/// The padding of a program's batches.
#[derive(Clone, Debug, Default)]
pub(super) struct Padding {
    /// The pages of dummy sequences by group; `None` for programs whose batches are not padded.
    pages: Option<[PageId; 2]>,
    max_tokens: usize,
    max_output_rows: usize,
}

/// A batch with dummy sequences after its own.
pub(super) struct PaddedBatch<'a> {
    ids: Vec<u32>,
    spans: Vec<Span<'a>>,
    output_rows: Vec<usize>,
}

impl Padding {
    /// The layout of a program's cache, with the pages of dummy sequences.
    pub(super) fn kv_plan(graph: &Graph, kv: &KvLayout) -> Result<KvPlan, Error> {
        Ok(KvPlan::new(kv)?.with_spare_pages(|group| Self::spare_pages(graph, kv, group)))
    }

    /// Pages of a group after those of the layout, for dummy sequences: 0 or 1.
    ///
    /// A mixture of experts is not padded, because dummies would have their own experts to read.
    /// Neither are programs with recurrent states, of which every dummy would need its own, nor
    /// parts of divided programs, whose rows come from elsewhere.
    fn spare_pages(graph: &Graph, kv: &KvLayout, group: PageGroup) -> usize {
        let is_padded = |op: &Op| {
            !matches!(
                op,
                Op::ExpertMatMul(_) | Op::HeadMatMul { .. } | Op::Input { .. } | Op::Output { .. }
            )
        };
        let is_padded = kv.states.is_empty()
            && !kv.layers.is_empty()
            && kv.num_pages.full >= MIN_PAGES
            && graph.ops().iter().all(is_padded);
        let has_pages = group != PageGroup::State && kv.num_pages.of(group) > 0;
        usize::from(is_padded && has_pages)
    }

    pub(super) fn new(graph: &Graph, kv: &KvLayout, limits: &BatchLimits) -> Self {
        let spare = |group| Self::spare_pages(graph, kv, group) > 0;
        // The page after the last one of the layout.
        let page = |group| PageId::new(kv.num_pages.of(group) as u32);
        let pages = spare(PageGroup::Full).then(|| PageGroup::OF_TOKENS.map(page));
        Self { pages, max_tokens: limits.max_batch_tokens, max_output_rows: limits.max_output_rows }
    }

    /// The batch with dummy sequences, if it is one of decode (a token of each sequence, and the
    /// outputs of all or none) that has another size than the padded ones.
    pub(super) fn pad<'a>(&'a self, batch: &Batch<'a>) -> Option<PaddedBatch<'a>> {
        let pages = self.pages.as_ref()?;
        let (tokens, outputs) = (batch.ids.len(), batch.output_rows.len());
        let is_decode = batch.spans.len() == tokens && (outputs == 0 || outputs == tokens);
        let size = SIZES.into_iter().find(|size| *size >= tokens)?;
        let has_room = size <= self.max_tokens && (outputs == 0 || size <= self.max_output_rows);
        if !is_decode || !has_room || size == tokens {
            return None;
        }
        let mut ids = batch.ids.to_vec();
        ids.resize(size, DUMMY_ID);
        let mut spans = batch.spans.to_vec();
        spans.extend((tokens..size).map(|token| Span {
            tokens: token..token + 1,
            pages: &pages[..1],
            window_pages: &pages[1..],
            ..Span::default()
        }));
        let output_rows = (0..if outputs == 0 { 0 } else { size }).collect();
        Some(PaddedBatch { ids, spans, output_rows })
    }
}

impl PaddedBatch<'_> {
    pub(super) fn batch(&self) -> Batch<'_> {
        let Self { ids, spans, output_rows } = self;
        Batch { ids, spans, output_rows, input: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padding() -> Padding {
        Padding {
            pages: Some([PageId::new(64), PageId::new(16)]),
            max_tokens: 40,
            max_output_rows: 40,
        }
    }

    /// The size of a batch of sequences with these numbers of tokens, padded.
    fn padded(lengths: &[usize], outputs: usize) -> Option<usize> {
        let mut next = 0;
        let spans: Vec<Span<'_>> = lengths
            .iter()
            .map(|length| {
                let tokens = next..next + length;
                next = tokens.end;
                Span { tokens, past_tokens: 9, pages: &[], ..Span::default() }
            })
            .collect();
        let (ids, rows) = (vec![7; next], (0..outputs).collect::<Vec<_>>());
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &rows, input: None };
        let padding = padding();
        let padded = padding.pad(&batch)?;
        let all = padded.batch();
        assert_eq!(all.ids.len(), all.spans.len());
        assert_eq!(all.ids[..next], ids);
        assert_eq!(all.output_rows.len(), if outputs == 0 { 0 } else { all.ids.len() });
        // All dummies are the same token at the same place.
        assert!(all.ids[next..].iter().all(|id| *id == DUMMY_ID));
        let mut dummies = all.spans[lengths.len()..].iter();
        assert!(dummies.all(|span| span.pages == [PageId::new(64)] && span.past_tokens == 0));
        Some(all.ids.len())
    }

    #[test]
    fn decode_batches_have_few_sizes() {
        assert_eq!(padded(&[1; 3], 3), Some(4));
        assert_eq!(padded(&[1; 9], 9), Some(12));
        assert_eq!(padded(&[1; 25], 0), Some(32));
        assert_eq!(padded(&[1; 16], 16), None);
        // 48 tokens are more than the program allows.
        assert_eq!(padded(&[1; 33], 33), None);
        // Prompts, and batches of which some sequences have no output.
        assert_eq!(padded(&[3], 1), None);
        assert_eq!(padded(&[1, 2], 2), None);
        assert_eq!(padded(&[1; 3], 1), None);
    }
}
