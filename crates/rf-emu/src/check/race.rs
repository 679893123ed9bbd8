//! Races in LDS: accesses of two waves that no barrier orders.

use std::ops::Range;

use crate::fault::FaultKind;

/// The wave that accesses LDS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor {
    pub(crate) wave: u8,
    /// The numbers of barriers at which the wave has arrived and which it has passed.
    pub(crate) signals: u32,
    pub(crate) waits: u32,
    /// True if the wave has completed its stores to global memory.
    pub(crate) releases: bool,
}

/// Many waves read the byte.
const MANY: u8 = 254;

/// The last accesses of a byte.
#[derive(Clone, Copy, Debug)]
struct Byte {
    writer: u8,
    /// True if the last write was an atomic update.
    atomic: bool,
    reader: u8,
    /// True if the bytes of the word have entries of their own.
    is_split: bool,
    /// The number of barriers that another wave must have passed to be ordered after the writer;
    /// zero if there is none.
    write_until: u32,
    read_until: u32,
}

const UNTOUCHED: Byte =
    Byte { writer: 0, atomic: false, reader: 0, is_split: false, write_until: 0, read_until: 0 };

/// The last accesses of each byte of LDS.
///
/// A barrier orders an access before a later one of another wave, if that wave has passed more
/// barriers than those at which the first one had arrived.
#[derive(Debug, Default)]
pub(crate) struct LdsShadow {
    /// The accesses of the words whose bytes were always accessed together.
    words: Vec<Byte>,
    /// The accesses of the bytes of the others.
    bytes: Vec<Byte>,
}

impl LdsShadow {
    pub(crate) fn reset(&mut self, size: usize) {
        let words = size.div_ceil(4);
        self.words.clear();
        self.words.resize(words, UNTOUCHED);
    }

    /// Applies a function to the entry of each word, or to those of its bytes.
    #[inline]
    fn each(
        &mut self,
        range: Range<usize>,
        function: impl Fn(&mut Byte, usize) -> Result<(), FaultKind>,
    ) -> Result<(), FaultKind> {
        let mut at = range.start;
        while at < range.end {
            let word = at / 4;
            if at.is_multiple_of(4) && range.end - at >= 4 && !self.words[word].is_split {
                function(&mut self.words[word], at)?;
                at += 4;
            } else {
                self.split(word);
                function(&mut self.bytes[at], at)?;
                at += 1;
            }
        }
        Ok(())
    }

    /// Reads a whole word. False if that is a race, or if its bytes were accessed apart.
    #[inline]
    pub(crate) fn read_word(&mut self, by: Accessor, word: usize) -> bool {
        let entry = &mut self.words[word];
        entry.add_reader(by);
        !(entry.is_split | entry.is_written_by_other(by))
    }

    /// Writes a whole word. False if that is a race, or if its bytes were accessed apart.
    #[inline]
    pub(crate) fn write_word(&mut self, by: Accessor, word: usize) -> bool {
        let entry = &mut self.words[word];
        if entry.is_split | entry.is_written_by_other(by) | entry.is_read_by_other(by) {
            return false;
        }
        entry.add_writer(by, false);
        true
    }

    #[cold]
    fn split(&mut self, word: usize) {
        if !self.words[word].is_split {
            self.bytes.resize(self.words.len() * 4, UNTOUCHED);
            self.bytes[word * 4..word * 4 + 4].fill(self.words[word]);
            self.words[word].is_split = true;
        }
    }

    #[inline]
    pub(crate) fn read(&mut self, by: Accessor, range: Range<usize>) -> Result<(), FaultKind> {
        self.each(range, |byte, address| {
            if byte.is_written_by_other(by) {
                return Err(race(byte.writer, "writes", address));
            }
            byte.add_reader(by);
            Ok(())
        })
    }

    #[inline]
    pub(crate) fn write(&mut self, by: Accessor, range: Range<usize>) -> Result<(), FaultKind> {
        self.each(range, |byte, address| {
            byte.check_write(by, address)?;
            byte.add_writer(by, false);
            Ok(())
        })
    }

    /// Atomic updates do not race with each other.
    pub(crate) fn update(&mut self, by: Accessor, range: Range<usize>) -> Result<(), FaultKind> {
        self.each(range, |byte, address| {
            if !byte.atomic {
                byte.check_write(by, address)?;
            }
            byte.add_writer(by, true);
            Ok(())
        })
    }
}

impl Byte {
    #[inline]
    fn is_written_by_other(&self, by: Accessor) -> bool {
        self.writer != by.wave && by.waits < self.write_until
    }

    #[inline]
    fn is_read_by_other(&self, by: Accessor) -> bool {
        self.reader != by.wave && by.waits < self.read_until
    }

    fn check_write(&self, by: Accessor, address: usize) -> Result<(), FaultKind> {
        if self.is_written_by_other(by) {
            return Err(race(self.writer, "writes", address));
        }
        if self.is_read_by_other(by) {
            return Err(race(self.reader, "reads", address));
        }
        Ok(())
    }

    #[inline]
    fn add_writer(&mut self, by: Accessor, atomic: bool) {
        (self.writer, self.write_until, self.atomic) = (by.wave, by.signals + 1, atomic);
    }

    #[inline]
    fn add_reader(&mut self, by: Accessor) {
        let until = by.signals + 1;
        let is_only = by.waits >= self.read_until || self.reader == by.wave;
        self.reader = if is_only { by.wave } else { MANY };
        self.read_until = if is_only { until } else { until.max(self.read_until) };
    }
}

fn race(other: u8, access: &'static str, address: usize) -> FaultKind {
    FaultKind::LdsRace { other: other.into(), access, address: address as u32 }
}
