//! Decodes differences between code objects, which `rf_kernels_build::delta` encodes.

/// The bytes that a difference from `base` stands for; `None` if it is damaged.
pub(super) fn apply(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut records = delta;
    let num_literals = number(&mut records)?;
    let mut literals = take(&mut records, num_literals)?;
    let mut out = base.to_vec();
    while !records.is_empty() {
        let [new, distance, len] =
            [number(&mut records)?, number(&mut records)?, number(&mut records)?];
        out.extend(take(&mut literals, new)?);
        let start = out.len().checked_sub(distance)?;
        if len > distance {
            return None;
        }
        out.extend_from_within(start..start + len);
    }
    out.extend(literals);
    Some(out.split_off(base.len()))
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let bytes = take(rest, 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (bytes, others) = rest.split_at_checked(len)?;
    *rest = others;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    use rf_kernels_build::delta;
    use rf_testing::Lcg;

    /// Bytes without repetition.
    fn noise(len: usize, seed: u32) -> Vec<u8> {
        Lcg::new(seed).bytes(len)
    }

    #[test]
    fn a_difference_gives_the_object_back() {
        let base = noise(5000, 1);
        let moved = [&noise(37, 2), &base[..1999], &noise(3, 3)[..], &base[2002..]].concat();
        for bytes in [&base[..], &moved, &base[..10], &[], &noise(700, 4)] {
            assert_eq!(apply(&base, &delta(&base, bytes)).as_deref(), Some(bytes));
        }
        assert!(delta(&base, &moved).len() < 100);
        assert_eq!(apply(&[], &delta(&[], &moved)), Some(moved));
    }

    #[test]
    fn repetitions_are_copies_without_a_base_too() {
        let once = noise(40_000, 1);
        let twice = [&once, &noise(3, 2)[..], &once].concat();
        for bytes in [&twice, &vec![0; 5000], &vec![7; 43]] {
            let difference = delta(&[], bytes);
            assert!(difference.len() < once.len() + 100, "{}", difference.len());
            assert_eq!(apply(&[], &difference).as_ref(), Some(bytes));
        }
    }

    #[test]
    fn damage_is_no_panic() {
        let base = noise(300, 1);
        let bytes = [&base[40..], b"end"].concat();
        let whole = delta(&base, &bytes);
        for length in 0..whole.len() {
            assert_ne!(apply(&base, &whole[..length]).as_ref(), Some(&bytes), "{length}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x80;
            drop(apply(&base, &bytes));
        }
    }
}
