//! FNV-1a in 128 bits: names cached files by content and notices damaged ones.
//!
//! No guard against an attacker, who could as well replace the program: a cache belongs to its user.

/// A running digest of byte strings.
#[derive(Clone)]
pub(crate) struct Digest(u128);

impl Digest {
    /// The digest of nothing.
    pub(crate) fn new() -> Self {
        // Offset basis and prime of the 128-bit FNV-1a, from the FNV authors' draft.
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Takes in one byte string. Its length goes in too, so that ("ab", "c") is not ("a", "bc").
    pub(crate) fn field(mut self, bytes: &[u8]) -> Self {
        self.bytes(&(bytes.len() as u64).to_le_bytes());
        self.bytes(bytes);
        self
    }

    pub(crate) fn finish(&self) -> u128 {
        self.0
    }

    fn bytes(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_vectors() {
        let of = |text: &str| {
            let mut digest = Digest::new();
            digest.bytes(text.as_bytes());
            digest.finish()
        };
        // From the test vectors of draft-eastlake-fnv.
        assert_eq!(of(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(of("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(of("foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn fields_do_not_run_together() {
        let of = |a: &[u8], b: &[u8]| Digest::new().field(a).field(b).finish();
        assert_ne!(of(b"ab", b"c"), of(b"a", b"bc"));
        assert_eq!(of(b"ab", b"c"), of(b"ab", b"c"));
    }
}
