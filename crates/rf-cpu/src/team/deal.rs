//! Divides the items of a phase into pieces.

use std::ops::Range;

/// The least time that a piece should take: several times as long as the handing over of a cache
/// line between cores.
const MIN_PIECE_NS: usize = 1_000;

/// The time of a piece in a phase of several pieces per thread.
const PIECE_NS: usize = 3_000;

/// The most pieces per thread. Small pieces balance the end of a phase, but taking one costs too.
const PIECES_PER_THREAD: usize = 4;

/// A phase of this length is worth waking threads for.
const LONG_NS: usize = 50_000;

/// `items` divided into pieces of `piece_items`; the last one may be smaller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceDivision {
    items: usize,
    piece_items: usize,
    /// The estimated time of all items on one thread.
    work_ns: usize,
}

impl PieceDivision {
    /// A phase without items, which is passed over.
    pub(crate) const NOTHING: Self = Self { items: 0, piece_items: 1, work_ns: 0 };

    /// Divides items that take about `item_ns` each.
    pub(crate) fn new(items: usize, item_ns: usize, threads: usize) -> Self {
        Self::in_multiples(items, item_ns, threads, 1, usize::MAX)
    }

    /// Like [`Self::new`], in pieces of a multiple of `multiple` items, and of at most `most`.
    pub(crate) fn in_multiples(
        items: usize,
        item_ns: usize,
        threads: usize,
        multiple: usize,
        most: usize,
    ) -> Self {
        let thread_ns = items.div_ceil(threads).saturating_mul(item_ns);
        let pieces = threads * (thread_ns / PIECE_NS).clamp(1, PIECES_PER_THREAD);
        let least = MIN_PIECE_NS.div_ceil(item_ns.max(1));
        let piece_items = items.div_ceil(pieces).max(least).min(items);
        let piece_items = piece_items.next_multiple_of(multiple).clamp(multiple, most);
        Self { items, piece_items, work_ns: items.saturating_mul(item_ns) }
    }

    /// The number of pieces.
    pub(crate) fn pieces(self) -> usize {
        self.items.div_ceil(self.piece_items)
    }

    /// The items of a piece.
    pub(crate) fn range(self, piece: usize) -> Range<usize> {
        let first = piece * self.piece_items;
        first..self.items.min(first + self.piece_items)
    }

    /// The estimated time of all items on one thread, in nanoseconds.
    pub(crate) fn work_ns(self) -> usize {
        self.work_ns
    }

    /// Returns true if waking a thread costs less than it saves.
    pub(crate) fn is_long(self) -> bool {
        self.work_ns >= LONG_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_items_and_are_neither_too_small_nor_too_many() {
        for (items, item_ns, pieces) in [
            (0, 100, 0),
            (1, 1, 1),
            (100, 1, 1),
            (4_000, 1, 4),
            (64, 100_000, 16),
            (64_000, 1_000, 16),
            (64, 100, 4),
            (5, 0, 1),
        ] {
            let deal = PieceDivision::new(items, item_ns, 4);
            let all: Vec<usize> = (0..deal.pieces()).flat_map(|piece| deal.range(piece)).collect();
            assert_eq!(all, (0..items).collect::<Vec<_>>());
            assert!(deal.pieces().abs_diff(pieces) <= 1, "{items} × {item_ns} ns: {deal:?}");
        }
        let deal = PieceDivision::in_multiples(102, 300, 4, 4, 64);
        assert_eq!((deal.pieces(), deal.range(0), deal.range(6)), (7, 0..16, 96..102));
        assert!(
            PieceDivision::new(100, 1_000, 4).is_long()
                && !PieceDivision::new(100, 100, 4).is_long()
        );
    }
}
