//! RoPE of one head.

use super::{Kernel, Simd};
use rf_graph::RopeStyle;

/// Applies RoPE to the pairs of a head; see `rf_oracle::reference::rope`. It is compiled for each
/// ISA, so that a multiply-add is one instruction.
pub(crate) struct Rotate<'a> {
    pub(crate) style: RopeStyle,
    /// cos and sin of each pair.
    pub(crate) cos_sin: &'a [(f32, f32)],
    pub(crate) head: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        if self.style == RopeStyle::Normal {
            let pairs = self.head.as_chunks_mut::<2>().0;
            for (pair, cos_sin) in pairs.iter_mut().zip(self.cos_sin) {
                *pair = rotate(*pair, *cos_sin);
            }
            return;
        }
        let (first, second) = self.head.split_at_mut(self.cos_sin.len());
        for ((x, y), cos_sin) in first.iter_mut().zip(second).zip(self.cos_sin) {
            [*x, *y] = rotate([*x, *y], *cos_sin);
        }
    }
}

#[inline(always)]
fn rotate([x, y]: [f32; 2], (cos, sin): (f32, f32)) -> [f32; 2] {
    [x.mul_add(cos, -(y * sin)), x.mul_add(sin, y * cos)]
}
