//! The super-block formats: 256 values share f16 scales, and each sub-block of 16 or 32 values has
//! a small integer scale.
//!
//! | block | sub-blocks | value |
//! |---|---|---|
//! | [`BlockQ2K`] | 16 of 16 | `d s q - dmin m`, `q` 0 to 3, `s` and `m` 0 to 15 |
//! | [`BlockQ3K`] | 16 of 16 | `d s q`, `q` -4 to 3, `s` -32 to 31 |
//! | [`BlockQ4K`] | 8 of 32 | `d s q - dmin m`, `q` 0 to 15, `s` and `m` 0 to 63 |
//! | [`BlockQ5K`] | 8 of 32 | `d s q - dmin m`, `q` 0 to 31, `s` and `m` 0 to 63 |
//! | [`BlockIq4Xs`] | 8 of 32 | `d s VALUES[q]`, `s` -32 to 31 |
//! | [`BlockQ6K`] | 16 of 16 | `d s q`, `q` -32 to 31, `s` -128 to 127 |
//!
//! Each `q*_k` file holds one layout; `affine` and `symmetric` hold the two searches for scales,
//! both built on `fit`.

mod affine;
mod fit;
mod iq4_xs;
mod q2_k;
mod q3_k;
mod q4_k;
mod q5_k;
mod q6_k;
mod scales;
mod symmetric;

pub(crate) use affine::weighted_line;
pub(crate) use symmetric::weighted_scale;

pub use iq4_xs::BlockIq4Xs;
pub use q2_k::BlockQ2K;
pub use q3_k::BlockQ3K;
pub use q4_k::BlockQ4K;
pub use q5_k::BlockQ5K;
pub use q6_k::BlockQ6K;
