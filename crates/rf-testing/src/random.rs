//! Random numbers of fixed seeds.

/// A linear congruential generator: bytes and floats for test data, of which only the high bits are
/// random.
#[derive(Clone, Debug)]
pub struct Lcg(u32);

impl Lcg {
    /// A generator with a seed.
    pub fn new(seed: u32) -> Self {
        Self(seed)
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 24) as u8
    }

    /// The next bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }
}

/// Sebastiano Vigna's `SplitMix64`: every bit is random.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}

/// Arbitrary tokens below 250, which every test model has.
pub fn prompt(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|i| (seed + i * i * 31 + i * 7) % 250).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_gives_the_published_numbers() {
        // The first numbers of the seed 1234567, from the reference implementation.
        let mut random = SplitMix64::new(1_234_567);
        let expected = [6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973];
        assert_eq!(expected.map(|_| random.below(usize::MAX) as u64), expected);
    }

    #[test]
    fn seeds_give_different_bytes() {
        assert_ne!(Lcg::new(1).bytes(16), Lcg::new(2).bytes(16));
    }
}
