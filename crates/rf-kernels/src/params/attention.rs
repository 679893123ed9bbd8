//! Parameters and launches. `kernels/include/rf/params/attention.h` is generated from the table.

use rf_graph::{KvType, OperandFormat};

use super::table::params;
use super::{Batch, CACHE_KERNELS, KvCache, Launch, MatmulDevice, MatrixUnit, NewHeads, Operand};
use crate::tuning::Knob;

/// Threads of a decode workgroup: four waves.
const DECODE_THREADS: u32 = 128;

/// Smallest number of keys for a decode workgroup.
pub(crate) const MIN_SPLIT_KEYS: usize = 64;

/// Largest number of splits that the kernel combines.
const MAX_SPLITS: usize = 128;

params! {
    /// `softmax(scale · q·kᵀ) · v` over the cache of a layer: `rf_oracle::reference::attention`.
    ///
    /// Two kernels share a batch: `attention_decode_*` computes spans of at most `short_span`
    /// tokens, `attention_prefill_*` all others. Neither writes rows of the other.
    struct AttentionParams {
        /// Positions, spans and pages.
        batch: Batch,
        /// The cache of the layer.
        cache: KvCache,
        /// For [`Self::decode_launch`] of spans of one token: if `k` is not null, `q` is before
        /// norm and RoPE, and the launch appends the keys and values of its tokens.
        heads: NewHeads,
        /// `[tokens, num_heads · head_dim]`, rotated.
        q: *const f32,
        /// Attention sinks, `[num_heads]` or null.
        sinks: *const f32,
        /// `[tokens, num_heads · head_dim]`; as int8 where the head size is a multiple of 32.
        out: Operand,
        /// `[tokens, num_heads, splits, head_dim]`; this and the next two for decode with several
        /// splits.
        partials: *mut f32,
        /// `[tokens, num_heads, splits, 2]`.
        statistics: *mut f32,
        /// `[tokens, num_heads]`, zero before the first and after every launch.
        arrivals: *mut u32,
        /// Factor on the scores.
        scale: f32,
        /// Softcap on the scores; 0 for none.
        softcap: f32,
        /// A key is visible if query position − key position < window; 0: all keys up to the query
        /// are. With the bit [`BOTH_WAYS`](Self::BOTH_WAYS) so are all later keys of its span.
        window: u32,
        /// The bits of a position that select its chunk: a key is visible if it is in the query's
        /// chunk; 0 without chunks.
        chunk_mask: u32,
        /// Query heads, a multiple of `cache.num_kv_heads`.
        num_heads: u32,
        /// Decode workgroups over which the keys of a sequence are divided, 1 to 128.
        splits: u32,
        /// Largest number of tokens of a span for the decode kernel; longer spans use the prefill
        /// kernel.
        short_span: u32,
        /// Query heads of a decode workgroup: those that share a key and value head; on NVIDIA also
        /// a divisor of them, or those of two or four key and value heads.
        heads_together: u32,
    }
}

impl AttentionParams {
    /// The bit of a window whose queries see the keys after them in their span.
    pub(crate) const BOTH_WAYS: u32 = 1 << 31;

    /// Sets the query heads of a workgroup, and the number of splits that fills the device once,
    /// for at most `context` visible keys and at most `max_splits` partial results.
    #[must_use]
    pub(crate) fn with_splits(
        self,
        context: usize,
        device: MatmulDevice,
        max_splits: usize,
    ) -> Self {
        // Workgroups that registers allow at once. More would be a second round that is nearly
        // empty.
        let at_once = match device.matrix_unit {
            MatrixUnit::Nvidia if self.heads_per_kv() >= 4 || self.cache.head_dim > 256 => 3,
            _ => 4,
        };
        let tuned = |knob, default| {
            let kv = KvType::ALL.get(self.cache.kv_type as usize);
            let value = kv.and_then(|kv| device.tuning.get(knob, OperandFormat::Cache(*kv)));
            value.map_or(default, |value| value as usize)
        };
        let places = tuned(Knob::DecodeGroups, at_once) * device.compute_units;
        let keys = tuned(Knob::DecodeKeys, MIN_SPLIT_KEYS);
        let most = context.div_ceil(keys).min(max_splits).clamp(1, MAX_SPLITS);
        let heads_together = self.heads_together(most, places, device);
        let groups = self.batch.num_tokens * self.num_heads / heads_together;
        let splits = (places / groups.max(1) as usize).min(most);
        Self { splits: splits.max(1) as u32, heads_together, ..self }
    }

    /// The query heads of a workgroup: those of a key and value head. On NVIDIA the fewest with
    /// which `splits` workgroups per token and group have a compute unit each, or those of the most
    /// key and value heads with which the workgroups still take three quarters of the places of the
    /// device.
    fn heads_together(&self, splits: usize, places: usize, device: MatmulDevice) -> u32 {
        let (tokens, kv_heads) = (self.batch.num_tokens as usize, self.cache.num_kv_heads.max(1));
        let heads_per_kv = self.heads_per_kv();
        if device.matrix_unit != MatrixUnit::Nvidia {
            return heads_per_kv;
        }
        let is_alone = |heads: &u32| {
            let groups = tokens * (self.num_heads / heads) as usize;
            heads_per_kv.is_multiple_of(*heads) && groups * splits <= device.compute_units
        };
        if let Some(heads) = (1..heads_per_kv).find(is_alone) {
            return heads;
        }
        let fits = |together: &u32| {
            let groups = tokens * (kv_heads / together) as usize;
            kv_heads.is_multiple_of(*together) && groups >= places * 3 / 4
        };
        // A wave has query heads of one key and value head.
        let is_whole = heads_per_kv == kernel_heads(self.cache.head_dim, heads_per_kv);
        let together = [4, 2].into_iter().find(fits).filter(|_| is_whole);
        heads_per_kv * together.unwrap_or(1)
    }

    /// Query heads that share a key and value head.
    fn heads_per_kv(&self) -> u32 {
        (self.num_heads / self.cache.num_kv_heads.max(1)).max(1)
    }

    /// Returns true if a prefill kernel has heads of this size. Otherwise spans of any length use
    /// the decode kernel.
    pub(crate) fn has_prefill(head_dim: usize) -> bool {
        PREFILL.iter().all(|sizes| sizes.iter().any(|size| head_dim <= size.head_dim as usize))
    }

    /// The launch for spans of few tokens.
    pub(crate) fn decode_launch(&self) -> Launch {
        let heads = self.heads_together.clamp(1, self.heads_per_kv());
        let size = match self.cache.head_dim {
            0..=64 => 0,
            65..=128 => 1,
            129..=256 => 2,
            _ => 3,
        };
        let kernel = DECODE[self.cache.kernel_type()][size][log_heads_per_wave(heads)];
        let groups = self.num_heads / self.heads_together.max(1);
        let grid = [self.splits, groups, self.batch.num_tokens];
        Launch { kernel, grid, block: [DECODE_THREADS, 1, 1], lds_bytes: 0 }
    }

    /// The launch for longer spans. The number of workgroups suffices for any lengths of spans with
    /// this total number of tokens. Workgroups beyond the last tile return at once. On NVIDIA wide
    /// kernels compute long spans where they have a workgroup for three quarters of the compute
    /// units.
    pub(crate) fn prefill_launch(&self, device: MatmulDevice) -> Launch {
        let kv_type = self.cache.kernel_type();
        let sizes = &PREFILL[kv_type];
        let size = sizes.iter().find(|size| self.cache.head_dim <= size.head_dim);
        let size = size.unwrap_or(&sizes[sizes.len() - 1]);
        // A wave of 32 lanes processes 16 queries, or 32 of every other tile of keys.
        let (kernel, queries, threads, lds_bytes) = match WIDE[kv_type] {
            Some(wide) if self.is_wide(size, device) => {
                (wide, 2 * size.queries, 4 * size.queries, WIDE_LDS_BYTES)
            }
            _ => (size.kernel, size.queries, 2 * size.queries, 0),
        };
        let tiles = (self.batch.num_tokens + self.batch.num_spans * (queries - 1)) / queries;
        Launch { kernel, grid: [self.num_heads, tiles, 1], block: [threads, 1, 1], lds_bytes }
    }

    /// Returns true if workgroups with twice the tokens are faster than those of a size.
    fn is_wide(&self, size: &Prefill, device: MatmulDevice) -> bool {
        let is_long = self.batch.num_tokens > size.queries * self.batch.num_spans;
        let groups = self.num_heads * self.batch.num_tokens.div_ceil(2 * size.queries);
        let is_full = 4 * groups as usize >= 3 * device.compute_units;
        device.matrix_unit == MatrixUnit::Nvidia
            && device.has_lds(WIDE_LDS_BYTES)
            && size.head_dim == WIDE_HEAD_DIM
            && is_long
            && is_full
    }
}

/// The logarithm of the query heads of a wave of the decode kernel, for workgroups with `heads`
/// query heads of a key and value head.
fn log_heads_per_wave(heads: u32) -> usize {
    match heads {
        0 | 1 => 0,
        2 | 3 => 1,
        _ => 2,
    }
}

/// Query heads of a wave of that kernel.
fn kernel_heads(head_dim: u32, heads: u32) -> u32 {
    if head_dim > 256 { 2 } else { 1 << log_heads_per_wave(heads) }
}

/// A prefill kernel.
struct Prefill {
    kernel: &'static str,
    /// Largest head size.
    head_dim: u32,
    /// Tokens per workgroup.
    queries: u32,
}

macro_rules! prefill_kernels {
    ($($kv:literal: $($head_dim:literal x $queries:literal),*;)*) => {
        [$(&[$(Prefill {
            kernel: concat!("attention_prefill_", $kv, "_d", $head_dim),
            head_dim: $head_dim,
            queries: $queries,
        }),*]),*]
    };
}

/// Prefill kernels by cache type, in the order of head sizes.
const PREFILL: [&[Prefill]; CACHE_KERNELS] = prefill_kernels! {
    "f32": 64 x 32, 128 x 64, 256 x 16;
    "f16": 64 x 64, 96 x 48, 128 x 64, 256 x 32;
    "q8_0": 64 x 64, 96 x 48, 128 x 64, 256 x 32;
    "fp8": 64 x 64, 96 x 48, 128 x 64, 256 x 32;
    "packed": 64 x 64, 128 x 64, 256 x 32;
};

/// The kernels with twice the tokens per workgroup, by cache type (NVIDIA). They replace those for
/// heads of [`WIDE_HEAD_DIM`].
const WIDE: [Option<&str>; CACHE_KERNELS] = [
    None,
    Some("attention_prefill_f16_d128_wide"),
    Some("attention_prefill_q8_0_d128_wide"),
    Some("attention_prefill_fp8_d128_wide"),
    None,
];

const WIDE_HEAD_DIM: u32 = 128;

/// LDS that the launch of a wide kernel adds, at most: 128 queries of 136 f16, their factors and
/// positions, and for each of two teams of waves two buffers of 32 keys and values of 136 f16.
const WIDE_LDS_BYTES: u32 = 128 * (272 + 8) + 2 * 2 * (2 * 32 * 272 + 32);

macro_rules! decode_kernels {
    ($($kv:literal),*) => {
        [$([
            [
                concat!("attention_decode_", $kv, "_d64_g1"),
                concat!("attention_decode_", $kv, "_d64_g2"),
                concat!("attention_decode_", $kv, "_d64_g4"),
            ],
            [
                concat!("attention_decode_", $kv, "_d128_g1"),
                concat!("attention_decode_", $kv, "_d128_g2"),
                concat!("attention_decode_", $kv, "_d128_g4"),
            ],
            [
                concat!("attention_decode_", $kv, "_d256_g1"),
                concat!("attention_decode_", $kv, "_d256_g2"),
                concat!("attention_decode_", $kv, "_d256_g4"),
            ],
            // Registers hold two query heads of this size; for one, half of them are unused.
            [concat!("attention_decode_", $kv, "_d512_g2"); 3],
        ]),*]
    };
}

/// Decode kernels by cache type, head size and query heads per wave.
const DECODE: [[[&str; 3]; 4]; CACHE_KERNELS] =
    decode_kernels!("f32", "f16", "q8_0", "fp8", "packed");

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> MatmulDevice {
        MatmulDevice::new(132, "sm_90")
    }

    fn params(kv_type: u32, head_dim: u32, tokens: u32, spans: u32) -> AttentionParams {
        let cache = KvCache { kv_type, head_dim, num_kv_heads: 8, ..KvCache::default() };
        let batch = Batch { num_tokens: tokens, num_spans: spans, ..Batch::default() };
        let (num_heads, heads_together) = (32, 4);
        AttentionParams {
            batch,
            cache,
            num_heads,
            heads_together,
            splits: 5,
            ..AttentionParams::default()
        }
    }

    #[test]
    fn prefill_takes_the_smallest_kernel_that_holds_a_head() {
        for (kv_type, head_dim, kernel, threads) in [
            (0, 96, "attention_prefill_f32_d128", 128),
            (0, 256, "attention_prefill_f32_d256", 32),
            (1, 8, "attention_prefill_f16_d64", 128),
            (1, 65, "attention_prefill_f16_d96", 96),
            (2, 128, "attention_prefill_q8_0_d128", 128),
            (3, 129, "attention_prefill_fp8_d256", 64),
            (4, 96, "attention_prefill_packed_d128", 128),
            (5, 256, "attention_prefill_packed_d256", 64),
        ] {
            let launch = params(kv_type, head_dim, 1, 1).prefill_launch(h200());
            assert_eq!((launch.kernel, launch.block[0]), (kernel, threads));
        }
    }

    #[test]
    fn tiles_suffice_for_any_lengths_of_spans() {
        for lengths in [&[512][..], &[1, 1, 1], &[65, 63, 64], &[33, 479]] {
            let (tokens, spans) = (lengths.iter().sum(), lengths.len() as u32);
            let needed: u32 = lengths.iter().map(|n: &u32| n.div_ceil(64)).sum();
            let amd = MatmulDevice::new(96, "gfx1100");
            let [heads, tiles, _] = params(1, 128, tokens, spans).prefill_launch(amd).grid;
            assert_eq!(heads, 32);
            assert!((needed..=needed + spans).contains(&tiles), "{lengths:?}: {tiles}");
        }
    }

    #[test]
    fn long_spans_have_wide_tiles_on_nvidia() {
        let launch = |tokens, spans| params(2, 128, tokens, spans).prefill_launch(h200());
        let long = launch(512, 1);
        assert_eq!((long.kernel, long.grid), ("attention_prefill_q8_0_d128_wide", [32, 4, 1]));
        assert_eq!((long.block, long.lds_bytes), ([256, 1, 1], 105_600));
        assert_eq!(launch(512, 8).kernel, "attention_prefill_q8_0_d128");
        assert_eq!(launch(256, 1).kernel, "attention_prefill_q8_0_d128");
    }

    #[test]
    fn decode_has_a_workgroup_per_split_head_and_token() {
        let launch = params(2, 96, 3, 3).decode_launch();
        assert_eq!(launch.kernel, "attention_decode_q8_0_d128_g4");
        assert_eq!((launch.grid, launch.block), ([5, 8, 3], [DECODE_THREADS, 1, 1]));
        let launch = AttentionParams { heads_together: 16, ..params(1, 96, 3, 3) }.decode_launch();
        assert_eq!(launch.grid, [5, 2, 3]);
        let launch = params(1, 512, 3, 3).decode_launch();
        assert_eq!(launch.kernel, "attention_decode_f16_d512_g2");
        assert!(AttentionParams::has_prefill(256) && !AttentionParams::has_prefill(512));
    }

    #[test]
    fn splits_fill_the_device_within_their_limits() {
        let splits =
            |tokens, context| params(1, 128, tokens, 1).with_splits(context, h200(), 1024).splits;
        assert_eq!(splits(1, 64), 1);
        assert_eq!(splits(1, 1024), 16);
        // Three workgroups with four heads per wave, for each of 132 processors.
        assert_eq!(splits(1, 1 << 20), 3 * 132 / 8);
        assert_eq!(splits(8, 1 << 20), 6);
        let together = |head_dim, kv_heads, tokens| {
            let mut params = params(1, head_dim, tokens, tokens);
            (params.cache.num_kv_heads, params.num_heads) = (kv_heads, 32);
            params.with_splits(256, h200(), 1024).heads_together
        };
        // 2,048 heads and tokens on 528 places, then half and a quarter of them.
        assert_eq!([64, 32, 16].map(|tokens| together(128, 32, tokens)), [4, 2, 1]);
        // A wave has four of eight query heads, and the kernel for large heads has two of one.
        assert_eq!((together(128, 4, 1024), together(512, 32, 64)), (8, 1));
        // Four splits of 256 keys: 128 workgroups of one head, or of two for two tokens.
        assert_eq!([1, 2, 4, 8].map(|tokens| together(128, 8, tokens)), [1, 2, 4, 4]);
        let large = MatmulDevice::new(10_000, "gfx1100");
        assert_eq!(params(1, 128, 1, 1).with_splits(1 << 20, large, 1024).splits, 128);
    }
}
