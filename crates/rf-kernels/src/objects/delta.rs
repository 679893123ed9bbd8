//! Decodes differences between code objects, which `rf_kernels_build::delta` encodes.

/// The bytes that a difference from `base` stands for; `None` if it is damaged.
pub(super) fn apply(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(base.len());
    let mut rest = delta;
    while !rest.is_empty() {
        let literals = number(&mut rest)?;
        out.extend(take(&mut rest, literals)?);
        let (start, len) = (number(&mut rest)?, number(&mut rest)?);
        out.extend(base.get(start..start.checked_add(len)?)?);
    }
    Some(out)
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

    /// Bytes without repetition.
    fn noise(len: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
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
