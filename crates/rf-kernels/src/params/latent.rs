//! Parameters and launches. `kernels/include/rf/params/latent.h` is generated from the table.

use super::table::params;
use super::{Batch, CACHE_KERNELS, KvCache, Launch};

/// Largest size of a key of latent attention.
pub(crate) const MAX_LATENT_HEAD_DIM: usize = 576;

/// Threads of a workgroup: eight waves.
const THREADS: u32 = 256;

/// Rows of a tile, which a workgroup computes.
const TILE: usize = 16;

/// Smallest number of keys for a workgroup.
const MIN_SPLIT_KEYS: usize = 64;

/// Largest number of splits that the kernel combines.
const MAX_SPLITS: usize = 128;

/// Largest number of workgroups with partial results, which bounds their memory.
const MAX_PARTIAL_GROUPS: usize = 512;

/// Waves of a workgroup that appends keys; each stores 32 elements.
const APPEND_WAVES: u32 = 4;

params! {
    /// Attention of all heads over one key per position, whose first elements are the value;
    /// causal.
    ///
    /// The rows of a span are the heads of its first token, those of its second token, and so on. A
    /// tile is 16 consecutive ones. A launch computes the spans of `min_span` to `max_span` tokens.
    struct LatentParams {
        /// Positions, spans and pages.
        batch: Batch,
        /// The cache of the layer: one head and no values.
        cache: KvCache,
        /// `[tokens, num_heads · head_dim]`.
        q: *const f32,
        /// `[tokens, num_heads · latent_dim]`.
        out: *mut f32,
        /// `[tiles · 16, splits, ⌈latent_dim / 4⌉ · 4]`; this and the next two with several splits.
        partials: *mut f32,
        /// `[tiles · 16, splits, 2]`.
        statistics: *mut f32,
        /// `[tiles]`, zero before the first and after every launch.
        arrivals: *mut u32,
        /// Factor on the scores.
        scale: f32,
        /// Query heads.
        num_heads: u32,
        /// Elements of the value, at most `cache.head_dim`.
        latent_dim: u32,
        /// Workgroups over which the keys of a tile are divided, 1 to 128.
        splits: u32,
        /// Tokens of the shortest span that the launch computes.
        min_span: u32,
        /// Tokens of the longest span that the launch computes.
        max_span: u32,
    }

    /// Stores the keys of latent attention in the cache of a layer.
    struct LatentAppendParams {
        /// Positions and pages.
        batch: Batch,
        /// The layer: one head and no values.
        cache: KvCache,
        /// `[tokens, head_dim]`.
        k: *const f32,
    }
}

impl LatentParams {
    /// Floats of the partial results of any launch: sums.
    pub(crate) const fn partial_floats(latent_dim: usize) -> usize {
        MAX_PARTIAL_GROUPS * TILE * latent_dim.next_multiple_of(4)
    }

    /// Floats of the partial results of any launch: statistics.
    pub(crate) const STATISTIC_FLOATS: usize = MAX_PARTIAL_GROUPS * TILE * 2;

    /// Counters of any launch: tiles with several splits.
    pub(crate) const MAX_ARRIVALS: usize = MAX_PARTIAL_GROUPS / 2;

    /// Sets the number of splits that gives every compute unit two workgroups, for `tokens` tokens
    /// of at most `context` keys.
    #[must_use]
    pub(crate) fn with_splits(self, tokens: usize, context: usize, compute_units: usize) -> Self {
        let tiles = self.tiles(tokens).max(1);
        let wanted = (2 * compute_units).div_ceil(tiles).min(context.div_ceil(MIN_SPLIT_KEYS));
        let splits = wanted.min(MAX_SPLITS).min(MAX_PARTIAL_GROUPS / tiles);
        Self { splits: splits.max(1) as u32, ..self }
    }

    /// The launch for `tokens` tokens. The number of workgroups suffices for any lengths of spans
    /// with this total number of tokens. Workgroups beyond the last tile return at once.
    pub(crate) fn launch(&self, tokens: usize) -> Launch {
        let size = usize::from(self.cache.head_dim > 128);
        let kernel = KERNELS[self.cache.kernel_type()][size];
        let grid = [self.splits, self.tiles(tokens) as u32, 1];
        Launch { kernel, grid, block: [THREADS, 1, 1], lds_bytes: 0 }
    }

    fn tiles(&self, tokens: usize) -> usize {
        let spans = tokens.min(self.batch.num_spans as usize);
        (tokens * self.num_heads as usize + spans * (TILE - 1)) / TILE
    }
}

macro_rules! latent_kernels {
    ($($kv:literal),*) => {
        [$([
            concat!("attention_latent_", $kv, "_d128"),
            concat!("attention_latent_", $kv, "_d576"),
        ]),*]
    };
}

/// Kernels by cache type and head size.
const KERNELS: [[&str; 2]; CACHE_KERNELS] = latent_kernels!("f32", "f16", "q8_0", "fp8", "packed");

impl LatentAppendParams {
    /// The launch: a wave per 32 elements; tokens in y.
    pub(crate) fn launch(&self) -> Launch {
        let groups = self.cache.head_dim.div_ceil(32).div_ceil(APPEND_WAVES);
        let block = [APPEND_WAVES * 32, 1, 1];
        let grid = [groups, self.batch.num_tokens, 1];
        Launch { kernel: "latent_append_f32", grid, block, lds_bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(num_heads: u32, num_spans: u32) -> LatentParams {
        let cache = KvCache { kv_type: 2, head_dim: 576, ..KvCache::default() };
        let batch = Batch { num_spans, ..Batch::default() };
        LatentParams { batch, cache, num_heads, latent_dim: 512, ..LatentParams::default() }
    }

    #[test]
    fn tiles_suffice_for_any_lengths_of_spans() {
        for lengths in [&[512_usize][..], &[1, 1, 1], &[5, 1, 7], &[33, 479]] {
            let (tokens, spans) = (lengths.iter().sum(), lengths.len() as u32);
            for heads in [1, 16, 20, 128] {
                let needed: usize =
                    lengths.iter().map(|n| (n * heads as usize).div_ceil(TILE)).sum();
                let launch = params(heads, spans).launch(tokens);
                assert_eq!(launch.kernel, "attention_latent_q8_0_d576");
                let tiles = launch.grid[1] as usize;
                assert!((needed..=needed + lengths.len()).contains(&tiles), "{lengths:?}: {tiles}");
            }
        }
    }

    #[test]
    fn splits_fill_the_device_within_their_limits() {
        let splits = |heads, tokens, context| {
            let params = params(heads, 1).with_splits(tokens, context, 96);
            let tiles = params.tiles(tokens);
            let splits = params.splits as usize;
            assert!(splits == 1 || splits * tiles <= MAX_PARTIAL_GROUPS);
            assert!(splits == 1 || tiles <= LatentParams::MAX_ARRIVALS);
            splits
        };
        assert_eq!(splits(20, 1, 64), 1);
        assert_eq!(splits(20, 1, 1024), 16);
        assert_eq!(splits(20, 1, 1 << 20), 96);
        assert_eq!(splits(16, 1, 1 << 20), 128);
        assert_eq!(splits(20, 8, 1 << 20), 20);
        assert_eq!(splits(128, 8, 1 << 20), 3);
        assert_eq!(splits(20, 512, 1 << 20), 1);
    }
}
