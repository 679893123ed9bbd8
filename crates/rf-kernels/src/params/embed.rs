//! Parameters and launches. `kernels/include/rf/params/embed.h` is generated from the table.

use rf_quant::DType;

use super::table::params;
use super::{Launch, Operand, Weight};

/// Threads of a workgroup, which embeds one row.
const EMBED_THREADS: u32 = 128;

params! {
    /// Embedding from a table of any format, with an optional norm: the kernels `embed_*` and
    /// `embed_rms_norm_*`.
    struct EmbedParams {
        /// `[vocab_size, columns]`.
        table: Weight,
        /// `[rows]`.
        ids: *const u32,
        /// `[rows, columns]`: `table[ids[t]] · scale`.
        x: *mut f32,
        /// Norm weight, `[columns]`; with a norm.
        norm: *const f32,
        /// `[rows, columns]`: `x / √(mean(x²) + eps) · norm`; with a norm.
        out: Operand,
        /// Factor on every element.
        scale: f32,
        /// Constant that is added to the mean square.
        eps: f32,
        /// Width; with a norm a multiple of 4.
        columns: u32,
        /// Number of rows.
        rows: u32,
        /// Threads of a workgroup, from [`embed_rms_norm_threads`]: a multiple of 32, at most 1024;
        /// with a norm.
        threads: u32,
        /// Larger ids read this row.
        last_id: u32,
    }
}

impl EmbedParams {
    /// The launch without a norm.
    pub(crate) fn embed(&self, table: DType) -> Launch {
        Launch::linear(kernel_name!(table, "embed_", "_f32"), self.rows as usize, EMBED_THREADS)
    }

    /// The launch with the norm.
    pub(crate) fn embed_rms_norm(&self, table: DType) -> Launch {
        Launch::linear(
            kernel_name!(table, "embed_rms_norm_", "_f32_q8"),
            self.rows as usize,
            self.threads,
        )
    }
}

/// Threads of a workgroup that embeds and normalises a row: two vectors of four columns each.
pub(crate) fn embed_rms_norm_threads(columns: u32) -> u32 {
    columns.div_ceil(8).next_multiple_of(32).clamp(32, 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_after_their_formats() {
        for dtype in DType::ALL {
            let params = EmbedParams { rows: 3, ..EmbedParams::default() };
            for launch in [params.embed(dtype), params.embed_rms_norm(dtype)] {
                let name = format!("_{}_f32", dtype.name().to_lowercase());
                assert!(launch.kernel.contains(&name), "{dtype}: {launch:?}");
            }
        }
    }
}
