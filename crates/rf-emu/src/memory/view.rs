//! Checked bytes of an allocation, accessed atomically.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use super::Allocation;

/// Bytes of one allocation whose bounds were checked.
///
/// Offsets are relative to the address that was resolved. An offset outside the view but within the
/// allocation is not noticed; one outside the allocation panics. All accesses are relaxed; an
/// access that is not aligned to its size, or that is larger than 4 bytes, is not atomic as a
/// whole.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    allocation: &'a Allocation,
    /// The words of the allocation, at hand for the accesses.
    words: &'a [AtomicU32],
    /// The first byte in the allocation.
    start: usize,
    bytes: usize,
}

/// Orders the updates of 64 bits, which are two words.
static WIDE_UPDATES: Mutex<()> = Mutex::new(());

impl<'a> View<'a> {
    /// The view of `bytes` from `address` on, if they are within the allocation.
    #[inline]
    pub(super) fn within(allocation: &'a Allocation, address: u64, bytes: u64) -> Option<Self> {
        let start = address.checked_sub(allocation.base())?;
        let end = start.checked_add(bytes)?;
        (end <= allocation.bytes()).then(|| Self {
            allocation,
            words: allocation.words(),
            start: start as usize,
            bytes: bytes as usize,
        })
    }

    pub(super) fn whole(allocation: &'a Allocation) -> Self {
        let (words, bytes) = (allocation.words(), allocation.bytes() as usize);
        Self { allocation, words, start: 0, bytes }
    }

    /// The allocation.
    pub fn allocation(&self) -> &'a Allocation {
        self.allocation
    }

    /// The distance of the view from the start of the allocation in bytes.
    pub fn offset(&self) -> usize {
        self.start
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns true if the view has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The byte at `at`.
    #[inline]
    pub fn load_u8(&self, at: usize) -> u8 {
        let byte = self.start + at;
        (self.word(byte / 4).load(Relaxed) >> (byte % 4 * 8)) as u8
    }

    /// The 16 bits at `at`.
    #[inline]
    pub fn load_u16(&self, at: usize) -> u16 {
        let byte = self.start + at;
        if byte % 4 == 3 {
            return u16::from_le_bytes([self.load_u8(at), self.load_u8(at + 1)]);
        }
        (self.word(byte / 4).load(Relaxed) >> (byte % 4 * 8)) as u16
    }

    /// The 32 bits at `at`.
    #[inline]
    pub fn load_u32(&self, at: usize) -> u32 {
        let byte = self.start + at;
        let low = self.word(byte / 4).load(Relaxed);
        match byte % 4 * 8 {
            0 => low,
            shift => low >> shift | self.word(byte / 4 + 1).load(Relaxed) << (32 - shift),
        }
    }

    /// Fills `out` with the words from `at` on.
    #[inline]
    pub fn load_words(&self, at: usize, out: &mut [u32]) {
        for (position, word) in out.iter_mut().enumerate() {
            *word = self.load_u32(at + position * 4);
        }
    }

    /// Stores the byte at `at`.
    #[inline]
    pub fn store_u8(&self, at: usize, value: u8) {
        self.put_u8(at, value);
        self.mark(self.start + at, 1);
    }

    fn put_u8(&self, at: usize, value: u8) {
        let byte = self.start + at;
        self.replace(byte / 4, 0xff << (byte % 4 * 8), u32::from(value) << (byte % 4 * 8));
    }

    /// Stores the 16 bits at `at`.
    #[inline]
    pub fn store_u16(&self, at: usize, value: u16) {
        let byte = self.start + at;
        if byte % 4 == 3 {
            let [low, high] = value.to_le_bytes();
            self.store_u8(at, low);
            self.store_u8(at + 1, high);
            return;
        }
        self.replace(byte / 4, 0xffff << (byte % 4 * 8), u32::from(value) << (byte % 4 * 8));
        self.mark(byte, 2);
    }

    /// Stores the 32 bits at `at`.
    #[inline]
    pub fn store_u32(&self, at: usize, value: u32) {
        self.put_u32(at, value);
        self.mark(self.start + at, 4);
    }

    #[inline]
    fn put_u32(&self, at: usize, value: u32) {
        let byte = self.start + at;
        match byte % 4 * 8 {
            0 => self.word(byte / 4).store(value, Relaxed),
            shift => {
                self.replace(byte / 4, u32::MAX << shift, value << shift);
                self.replace(byte / 4 + 1, u32::MAX >> (32 - shift), value >> (32 - shift));
            }
        }
    }

    /// Stores words from `at` on.
    #[inline]
    pub fn store_words(&self, at: usize, words: &[u32]) {
        for (position, &word) in words.iter().enumerate() {
            self.put_u32(at + position * 4, word);
        }
        self.mark(self.start + at, words.len() * 4);
    }

    /// Replaces the 32 bits at `at` by `update` of them, atomically, and returns the old bits. The
    /// address is a multiple of 4.
    pub fn update_u32(&self, at: usize, mut update: impl FnMut(u32) -> u32) -> u32 {
        let byte = self.start + at;
        debug_assert!(byte.is_multiple_of(4), "an atomic update at offset {byte}");
        let word = self.word(byte / 4);
        let mut old = word.load(Relaxed);
        while let Err(now) = word.compare_exchange_weak(old, update(old), Relaxed, Relaxed) {
            old = now;
        }
        self.mark(byte, 4);
        old
    }

    /// Replaces the 64 bits at `at` by `update` of them and returns the old bits. Updates of 64
    /// bits are atomic with respect to each other. The address is a multiple of 4.
    pub fn update_u64(&self, at: usize, update: impl FnOnce(u64) -> u64) -> u64 {
        let _turn = WIDE_UPDATES.lock().unwrap_or_else(PoisonError::into_inner);
        let old = u64::from(self.load_u32(at)) | u64::from(self.load_u32(at + 4)) << 32;
        let new = update(old);
        self.store_u32(at, new as u32);
        self.store_u32(at + 4, (new >> 32) as u32);
        old
    }

    /// Copies the bytes from `at` on to `out`.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        let (head, rest) = out.split_at_mut(self.bytes_to_word(at).min(out.len()));
        for (index, byte) in head.iter_mut().enumerate() {
            *byte = self.load_u8(at + index);
        }
        let at = at + head.len();
        let (words, tail) = rest.as_chunks_mut::<4>();
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.load_u32(at + 4 * index).to_le_bytes();
        }
        let at = at + 4 * words.len();
        for (index, byte) in tail.iter_mut().enumerate() {
            *byte = self.load_u8(at + index);
        }
    }

    /// Stores `bytes` from `at` on.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.mark(self.start + at, bytes.len());
        let (head, rest) = bytes.split_at(self.bytes_to_word(at).min(bytes.len()));
        for (index, &byte) in head.iter().enumerate() {
            self.put_u8(at + index, byte);
        }
        let at = at + head.len();
        let (words, tail) = rest.as_chunks::<4>();
        for (index, &word) in words.iter().enumerate() {
            self.put_u32(at + 4 * index, u32::from_le_bytes(word));
        }
        let at = at + 4 * words.len();
        for (index, &byte) in tail.iter().enumerate() {
            self.put_u8(at + index, byte);
        }
    }

    /// The number of bytes from `at` on before the next aligned word.
    fn bytes_to_word(&self, at: usize) -> usize {
        (self.start + at).wrapping_neg() % 4
    }

    /// Copies all bytes of `from`, which has the same length, with their shadow: bytes that were
    /// never written stay not initialised.
    pub fn copy_from(&self, from: &View<'_>) {
        debug_assert_eq!(self.bytes, from.bytes, "a copy between views of different lengths");
        let mut buffer = vec![0; self.bytes];
        from.read(0, &mut buffer);
        self.write(0, &buffer);
        if from.is_initialised(0, from.bytes) {
            return;
        }
        for at in (0..self.bytes).filter(|&at| !from.is_initialised(at, 1)) {
            self.unmark(at);
        }
    }

    /// Returns true if all of these bytes were written. Without a shadow all bytes count as
    /// written.
    #[inline]
    pub fn is_initialised(&self, at: usize, bytes: usize) -> bool {
        self.first_uninitialised(at, bytes).is_none()
    }

    /// The offset of the first of these bytes that was never written.
    #[inline]
    pub fn first_uninitialised(&self, at: usize, bytes: usize) -> Option<usize> {
        let shadow = self.allocation.shadow()?;
        elements(self.start + at, bytes).find_map(|(element, mask)| {
            let missing = mask & !shadow[element].load(Relaxed);
            let byte = element * 64 + missing.trailing_zeros() as usize;
            (missing != 0).then(|| byte - self.start)
        })
    }

    #[inline]
    fn word(&self, word: usize) -> &'a AtomicU32 {
        &self.words[word]
    }

    /// Replaces the bits of `mask`; other threads may write the others.
    fn replace(&self, word: usize, mask: u32, bits: u32) {
        let word = self.word(word);
        let mut old = word.load(Relaxed);
        while let Err(now) = word.compare_exchange_weak(old, old & !mask | bits, Relaxed, Relaxed) {
            old = now;
        }
    }

    /// Records that `bytes` from byte `start` of the allocation on are written.
    #[inline]
    fn mark(&self, start: usize, bytes: usize) {
        let Some(shadow) = self.allocation.shadow() else { return };
        for (element, mask) in elements(start, bytes) {
            let element = &shadow[element];
            // Most bytes are written again and again, and an atomic update is slow.
            if element.load(Relaxed) & mask != mask {
                element.fetch_or(mask, Relaxed);
            }
        }
    }

    /// Records that all bytes of the allocation are written.
    pub(super) fn mark_all(&self) {
        if let Some(shadow) = self.allocation.shadow() {
            for element in shadow {
                element.store(u64::MAX, Relaxed);
            }
        }
    }

    /// Records that the byte at `at` is not written.
    pub(crate) fn unmark(&self, at: usize) {
        let byte = self.start + at;
        if let Some(shadow) = self.allocation.shadow() {
            shadow[byte / 64].fetch_and(!(1 << (byte % 64)), Relaxed);
        }
    }
}

/// The elements of the shadow for a range of bytes, each with the bits of those bytes.
#[inline]
fn elements(start: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = start + bytes;
    (start / 64..end.div_ceil(64)).map(move |element| {
        let first = start.saturating_sub(element * 64);
        let after = (end - element * 64).min(64);
        (element, u64::MAX << first & u64::MAX >> (64 - after))
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use crate::memory::{Hint, Memory, MemoryOptions};

    fn memory() -> Memory {
        Memory::new(MemoryOptions { track_initialised: true, ..MemoryOptions::default() })
    }

    /// One access of a view.
    #[derive(Debug, Clone)]
    enum Access {
        U8(u8),
        U16(u16),
        U32(u32),
        Bytes(Vec<u8>),
    }

    fn access() -> impl Strategy<Value = (usize, Access)> {
        let access = prop_oneof![
            any::<u8>().prop_map(Access::U8),
            any::<u16>().prop_map(Access::U16),
            any::<u32>().prop_map(Access::U32),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Access::Bytes),
        ];
        (0usize..40, access)
    }

    proptest! {
        #[test]
        fn accesses_agree_with_an_array_of_bytes(
            start in 0usize..8,
            accesses in prop::collection::vec(access(), 1..20),
        ) {
            let memory = memory();
            let address = memory.allocate(80).unwrap();
            let ranges = memory.ranges();
            let view = ranges.resolve(address + start as u64, 64, &mut Hint::default()).unwrap();
            let mut model: [Option<u8>; 64] = [None; 64];
            for (at, access) in accesses {
                let bytes = match access {
                    Access::U8(value) => { view.store_u8(at, value); vec![value] }
                    Access::U16(value) => { view.store_u16(at, value); value.to_le_bytes().into() }
                    Access::U32(value) => { view.store_u32(at, value); value.to_le_bytes().into() }
                    Access::Bytes(bytes) => { view.write(at, &bytes); bytes }
                };
                for (place, byte) in model[at..].iter_mut().zip(bytes) {
                    *place = Some(byte);
                }
            }
            let expected = model.map(Option::unwrap_or_default);
            let mut read = [0; 64];
            view.read(0, &mut read);
            prop_assert_eq!(read, expected);
            for at in 0..60 {
                prop_assert_eq!(view.load_u8(at), expected[at]);
                let half: [u8; 2] = expected[at..at + 2].try_into().unwrap();
                prop_assert_eq!(view.load_u16(at), u16::from_le_bytes(half));
                let word: [u8; 4] = expected[at..at + 4].try_into().unwrap();
                prop_assert_eq!(view.load_u32(at), u32::from_le_bytes(word));
                let first = (at..at + 4).find(|&at| model[at].is_none());
                prop_assert_eq!(view.first_uninitialised(at, 4), first);
            }
        }
    }

    #[test]
    fn a_copy_keeps_which_bytes_are_initialised() {
        let memory = memory();
        let (from, to) = (memory.allocate(16).unwrap(), memory.allocate(16).unwrap());
        let ranges = memory.ranges();
        let from = ranges.resolve(from, 16, &mut Hint::default()).unwrap();
        let to = ranges.resolve(to, 16, &mut Hint::default()).unwrap();
        from.write(0, &[7; 5]);
        from.write(6, &[8; 10]);
        to.write(0, &[1; 16]);
        to.copy_from(&from);
        assert_eq!(to.first_uninitialised(0, 16), Some(5));
        assert_eq!(to.first_uninitialised(6, 10), None);
        assert_eq!((to.load_u8(4), to.load_u8(15)), (7, 8));
    }

    #[test]
    fn stores_of_neighbouring_bytes_by_threads_are_not_lost() {
        let memory = memory();
        let address = memory.allocate(8).unwrap();
        let ranges = memory.ranges();
        thread::scope(|scope| {
            for lane in 0..8u8 {
                let ranges = &ranges;
                scope.spawn(move || {
                    let view = ranges.resolve(address, 8, &mut Hint::default()).unwrap();
                    for _ in 0..1000 {
                        view.store_u8(usize::from(lane), lane + 1);
                        view.update_u32(4, |old| old & 0xffff_00ff | u32::from(lane) << 8);
                    }
                });
            }
        });
        let view = ranges.resolve(address, 8, &mut Hint::default()).unwrap();
        assert_eq!(view.load_u32(0), 0x0403_0201);
        assert_eq!((view.load_u8(4), view.load_u16(6)), (5, 0x0807));
    }

    #[test]
    fn updates_return_the_old_value() {
        let memory = memory();
        let address = memory.allocate(16).unwrap();
        let ranges = memory.ranges();
        let view = ranges.resolve(address, 16, &mut Hint::default()).unwrap();
        assert_eq!(view.update_u32(0, |old| old + 5), 0);
        assert_eq!(view.update_u32(0, |old| old * 2), 5);
        assert_eq!(view.update_u64(8, |_| u64::MAX - 1), 0);
        assert_eq!(view.update_u64(8, |old| old.wrapping_add(3)), u64::MAX - 1);
        assert_eq!((view.load_u32(0), view.load_u32(8), view.load_u32(12)), (10, 1, 0));
    }
}
