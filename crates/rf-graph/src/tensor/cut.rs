//! Cuts of columns, heads and blocks.

use std::ops::Range;

/// Columns that a part should begin at a multiple of, where there are enough of them: GPU kernels
/// compute so many together.
const ALIGNMENT: usize = 128;

/// The least units per part where units are joined to reach the alignment.
const UNITS_PER_PART: usize = 8;

/// The division of some indivisible units over parts. Ranges of different parts may overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Number of units.
    pub(super) units: usize,
    /// The units of each part.
    pub(super) ranges: Vec<Range<usize>>,
}

impl Cut {
    /// Deals units of some columns by shares. `None` if a part would be without any.
    pub(super) fn new(units: usize, columns: usize, shares: &[f32]) -> Option<Self> {
        let mut joined = 1;
        while 2 * joined * columns <= ALIGNMENT
            && units.is_multiple_of(2 * joined)
            && units / (2 * joined) >= UNITS_PER_PART * shares.len()
        {
            joined *= 2;
        }
        let units = units / joined;
        Some(Self { units, ranges: deal(units, shares)? })
    }

    /// Cuts query heads so that each part has queries of one KV head, which several parts have:
    /// the cuts of the units of queries, and of the KV heads. `None` if the numbers do not fit.
    pub(super) fn of_shared_heads(
        units: usize,
        num_kv_heads: usize,
        shares: &[f32],
    ) -> Option<[Self; 2]> {
        if num_kv_heads == 0
            || !shares.len().is_multiple_of(num_kv_heads)
            || !units.is_multiple_of(num_kv_heads)
        {
            return None;
        }
        let per_head = units / num_kv_heads;
        let parts_per_head = shares.len() / num_kv_heads;
        let (mut queries, mut heads) = (Vec::new(), Vec::new());
        for (head, shares) in shares.chunks(parts_per_head).enumerate() {
            let first = head * per_head;
            let ranges = deal(per_head, shares)?.into_iter();
            queries.extend(ranges.map(|range| first + range.start..first + range.end));
            heads.extend((0..parts_per_head).map(|_| head..head + 1));
        }
        Some([Self { units, ranges: queries }, Self { units: num_kv_heads, ranges: heads }])
    }

    /// The columns of each part, of `width` columns; a multiple of the units.
    pub(super) fn columns(&self, width: usize) -> impl Iterator<Item = Range<usize>> {
        let per_unit = width / self.units;
        self.ranges.iter().map(move |range| range.start * per_unit..range.end * per_unit)
    }
}

/// Deals units by shares, at least one each. `None` for fewer units than shares.
fn deal(units: usize, shares: &[f32]) -> Option<Vec<Range<usize>>> {
    let parts = shares.len();
    if units < parts {
        return None;
    }
    let all: f32 = shares.iter().sum();
    let (mut start, mut before) = (0, 0.0);
    let ranges = shares.iter().enumerate().map(|(part, share)| {
        before += share;
        let end = (units as f32 * before / all).round() as usize;
        let first = start;
        start = end.clamp(first + 1, units + part + 1 - parts);
        first..start
    });
    Some(ranges.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_dealt_by_shares_and_each_part_has_one() {
        assert_eq!(deal(8, &[1.0, 1.0]), Some(vec![0..4, 4..8]));
        assert_eq!(deal(8, &[3.0, 1.0]), Some(vec![0..6, 6..8]));
        assert_eq!(deal(3, &[1.0, 1.0]), Some(vec![0..2, 2..3]));
        assert_eq!(deal(3, &[100.0, 1.0, 1.0]), Some(vec![0..1, 1..2, 2..3]));
        assert_eq!(deal(4, &[1.0, 1.0, 100.0]), Some(vec![0..1, 1..2, 2..4]));
        assert_eq!(deal(1, &[1.0, 1.0]), None);
    }

    #[test]
    fn small_units_are_joined_where_there_are_many() {
        let units = |units, columns| Cut::new(units, columns, &[1.0, 1.0]).unwrap().units;
        assert_eq!(units(11_008, 1), 86);
        assert_eq!(units(43, 256), 43);
        assert_eq!(units(32, 1), 16);
        assert_eq!(units(2, 32), 2);
    }

    #[test]
    fn parts_share_a_kv_head() {
        let [queries, heads] = Cut::of_shared_heads(6, 2, &[1.0; 4]).unwrap();
        assert_eq!(queries.ranges, [0..2, 2..3, 3..5, 5..6]);
        assert_eq!(heads.ranges, [0..1, 0..1, 1..2, 1..2]);
        assert_eq!(queries.columns(24).collect::<Vec<_>>()[2], 12..20);
        assert_eq!(Cut::of_shared_heads(6, 3, &[1.0; 4]), None);
        assert_eq!(Cut::of_shared_heads(2, 2, &[1.0; 4]), None);
    }
}
