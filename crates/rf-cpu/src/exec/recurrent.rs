//! Steps that read and replace recurrent states.

use std::ops::Range;

use rf_graph::{CausalConv, DeltaDecay, DeltaNet, SelectiveScan, Span, StateSpace};
use rf_kv::PageId;

use super::Region;
use crate::simd::convolution::Convolve;
use crate::simd::recurrence::{DeltaTile, ScanTile, StateSpaceTile};
use crate::state::{StateStore, TILE, stride};
use crate::team::{DisjointSlice, PieceDivision, Share};

/// One recurrent state of all sequences during a region.
pub(super) struct SharedState<'a> {
    page_len: usize,
    data: DisjointSlice<'a, f32>,
}

impl<'a> SharedState<'a> {
    /// Shares each state of a store between the members.
    pub(super) fn all(store: &'a mut StateStore) -> Vec<Self> {
        let shared = store.states.iter_mut().map(|state| {
            let data = DisjointSlice::new(bytemuck::cast_slice_mut(&mut state.map));
            Self { page_len: state.page_len, data }
        });
        shared.collect()
    }

    /// A part of the state of a sequence, 0 before its first token.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes these elements while the result lives.
    unsafe fn part(&self, span: &Span<'_>, range: Range<usize>) -> &'a mut [f32] {
        let first = span.state.map_or(0, PageId::index) * self.page_len;
        // SAFETY: by contract.
        let part = unsafe { self.data.get_mut(first + range.start..first + range.end) };
        if span.past_tokens == 0 {
            part.fill(0.0);
        }
        part
    }
}

/// Columns of a work item of a convolution.
const CONV_COLUMNS: usize = 256;

impl Region<'_> {
    /// Deals the work of [`Self::causal_conv`]: an item is some columns of one sequence.
    pub(super) fn causal_conv_deal(&self, op: &CausalConv) -> PieceDivision {
        let (out, filter) = (self.rows(op.out), self.vector(op.filter));
        let items = self.batch.spans.len() * out.width.div_ceil(CONV_COLUMNS);
        PieceDivision::new(items, self.tokens() * filter.len() / 4 / items.max(1), self.threads)
    }

    pub(super) fn causal_conv(&self, share: &mut Share<'_>, op: &CausalConv) {
        let (x, out, state) = (self.rows(op.x), self.rows(op.out), &self.states[op.state]);
        let (filter, bias) = (self.vector(op.filter), op.bias.map(|bias| self.vector(bias)));
        let (width, taps) = (out.width, filter.len() / out.width);
        let chunks = width.div_ceil(CONV_COLUMNS);
        for range in share {
            for item in range {
                let (span, first) = (&self.batch.spans[item / chunks], item % chunks);
                let first = first * CONV_COLUMNS;
                let columns = first..width.min(first + CONV_COLUMNS);
                let row = |row: usize| {
                    let start = row * stride(width);
                    // SAFETY: each column of each sequence belongs to one item.
                    unsafe { state.part(span, start + columns.start..start + columns.end) }
                };
                let tail = (0..taps - 1).map(row).collect();
                let (tokens, silu) = (span.tokens.clone(), op.silu);
                self.isa.run(Convolve { x, out, tokens, columns, filter, bias, silu, tail });
            }
        }
    }

    pub(super) fn delta_net(&self, share: &mut Share<'_>, op: &DeltaNet) {
        match op.form {
            DeltaDecay::Head => self.delta_tiles::<false>(share, op),
            DeltaDecay::Channel | DeltaDecay::BoundedChannel { .. } => {
                self.delta_tiles::<true>(share, op);
            }
        }
    }

    fn delta_tiles<const CHANNELS: bool>(&self, share: &mut Share<'_>, op: &DeltaNet) {
        let [qkv, alpha, beta, out] = [op.qkv, op.alpha, op.beta, op.out].map(|id| self.rows(id));
        let [decay, decay_bias] = [op.decay, op.decay_bias].map(|id| self.vector(id));
        let tiles = Tiles::of_delta_net(op);
        self.for_tiles(share, op.state, tiles, |span, head, column, state| {
            self.isa.run(DeltaTile::<CHANNELS> {
                heads: op.heads,
                form: op.form,
                head,
                column,
                eps: op.eps,
                decay: decay[head],
                decay_bias,
                tokens: span.tokens.clone(),
                qkv,
                alpha,
                beta,
                out,
                state,
            });
        });
    }

    pub(super) fn state_space(&self, share: &mut Share<'_>, op: &StateSpace) {
        let [xbc, dt, out] = [op.xbc, op.dt, op.out].map(|id| self.rows(id));
        let [dt_bias, decay, skip] = [op.dt_bias, op.decay, op.skip].map(|id| self.vector(id));
        let tiles = Tiles::of_state_space(op);
        self.for_tiles(share, op.state, tiles, |span, head, column, state| {
            self.isa.run(StateSpaceTile {
                heads: op.heads,
                head,
                column,
                dt_bias: dt_bias[head],
                decay: decay[head],
                skip: skip[head],
                tokens: span.tokens.clone(),
                xbc,
                dt,
                out,
                state,
            });
        });
    }

    pub(super) fn selective_scan(&self, share: &mut Share<'_>, op: &SelectiveScan) {
        let [x, dt, b, c, out] = [op.x, op.dt, op.b, op.c, op.out].map(|id| self.rows(id));
        let [decay, skip] = [op.decay, op.skip].map(|id| self.vector(id));
        self.for_tiles(share, op.state, self.scan_tiles(op), |span, _, column, state| {
            let tokens = span.tokens.clone();
            self.isa.run(ScanTile { column, decay, skip, tokens, x, dt, b, c, out, state });
        });
    }

    /// The state of a selective scan as that of one head.
    pub(super) fn scan_tiles(&self, op: &SelectiveScan) -> Tiles {
        let [rows, columns] = [op.b, op.out].map(|id| self.rows(id).width);
        Tiles { heads: 1, rows, columns }
    }

    /// Deals the tiles of a state of all sequences.
    pub(super) fn tiles_deal(&self, tiles: Tiles) -> PieceDivision {
        let per_span = tiles.heads * tiles.per_head();
        let items = self.batch.spans.len() * per_span;
        // An element of a tile takes about a quarter of a nanosecond per token.
        let ns = self.tokens() * per_span * tiles.rows * TILE / 4;
        PieceDivision::new(items, ns / items.max(1), self.threads)
    }

    /// Calls `work` with the span, the head, the first column and the contents of each tile of each
    /// sequence's state.
    fn for_tiles(
        &self,
        share: &mut Share<'_>,
        state: usize,
        tiles: Tiles,
        work: impl Fn(&Span<'_>, usize, usize, &mut [f32]),
    ) {
        let state = &self.states[state];
        let (per_head, len) = (tiles.per_head(), tiles.rows * TILE);
        let per_span = tiles.heads * per_head;
        for range in share {
            for item in range {
                let (span, tile) = (&self.batch.spans[item / per_span], item % per_span);
                // SAFETY: each tile of each sequence belongs to one item.
                let part = unsafe { state.part(span, tile * len..(tile + 1) * len) };
                work(span, tile / per_head, tile % per_head * TILE, part);
            }
        }
    }
}

/// A state of a matrix per head, whose tiles are stored one after the other: `[heads][tiles][rows]`
/// of [`TILE`] columns.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    heads: usize,
    rows: usize,
    columns: usize,
}

impl Tiles {
    pub(super) fn of_delta_net(op: &DeltaNet) -> Self {
        let heads = op.heads;
        Self { heads: heads.num_value_heads, rows: heads.key_dim, columns: heads.value_dim }
    }

    pub(super) fn of_state_space(op: &StateSpace) -> Self {
        let heads = op.heads;
        Self { heads: heads.num_heads, rows: heads.state_dim, columns: heads.head_dim }
    }

    fn per_head(self) -> usize {
        stride(self.columns) / TILE
    }
}
