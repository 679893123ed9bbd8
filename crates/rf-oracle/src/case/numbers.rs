//! Deterministic pseudo-random numbers.

/// Pseudo-random numbers, equal on every machine: a linear congruential generator with Knuth's
/// multiplier.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// A sequence that depends on a name (FNV-1a).
    pub fn new(name: &str) -> Self {
        let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// Mean 0, variance 1, nearly normal: the sum of four uniform numbers.
    pub fn normal(&mut self) -> f32 {
        let sum: f64 = (0..4).map(|_| f64::from(self.next()) / f64::from(u32::MAX)).sum();
        ((sum - 2.0) * 3.0_f64.sqrt()) as f32
    }
}
