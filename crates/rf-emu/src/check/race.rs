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
    /// The barriers before the workgroup: entries count them, too. All accesses of earlier
    /// workgroups are ordered before them, so that their entries need not be cleared.
    past: u32,
    /// The most barriers in an entry.
    most: u32,
}

impl LdsShadow {
    /// Prepares for another workgroup.
    pub(crate) fn reset(&mut self, size: usize) {
        let words = size.div_ceil(4);
        self.past = self.most;
        if words != self.words.len() || self.past > u32::MAX / 2 {
            self.words.clear();
            self.words.resize(words, UNTOUCHED);
            (self.past, self.most) = (0, 0);
        }
    }

    /// The accessor with the barriers of earlier workgroups.
    #[inline]
    fn after_past(&mut self, by: Accessor) -> Accessor {
        let (signals, waits) = (by.signals + self.past, by.waits + self.past);
        self.most = self.most.max(signals + 1);
        Accessor { signals, waits, ..by }
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

    /// Reads whole words. False if that is a race, or if bytes of a word were accessed apart.
    #[inline]
    pub(crate) fn read_words(&mut self, by: Accessor, first: usize, count: usize) -> bool {
        let by = self.after_past(by);
        let Some(words) = self.words.get_mut(first..first + count) else { return false };
        words.iter_mut().fold(true, |is_fine, word| {
            word.add_reader(by);
            is_fine & !(word.is_split | word.is_written_by_other(by))
        })
    }

    /// Writes whole words. False if that is a race, or if bytes of a word were accessed apart: then
    /// the words before it are written.
    #[inline]
    pub(crate) fn write_words(&mut self, by: Accessor, first: usize, count: usize) -> bool {
        let by = self.after_past(by);
        let Some(words) = self.words.get_mut(first..first + count) else { return false };
        words.iter_mut().all(|word| {
            if word.is_split | word.is_written_by_other(by) | word.is_read_by_other(by) {
                return false;
            }
            word.add_writer(by, false);
            true
        })
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
        let by = self.after_past(by);
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
        let by = self.after_past(by);
        self.each(range, |byte, address| {
            byte.check_write(by, address)?;
            byte.add_writer(by, false);
            Ok(())
        })
    }

    /// Atomic updates do not race with each other.
    pub(crate) fn update(&mut self, by: Accessor, range: Range<usize>) -> Result<(), FaultKind> {
        let (by, past) = (self.after_past(by), self.past);
        self.each(range, |byte, address| {
            let is_of_past = byte.write_until <= past;
            if is_of_past || !byte.atomic {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(wave: u8) -> Accessor {
        Accessor { wave, signals: 0, waits: 0, releases: false }
    }

    #[test]
    fn accesses_of_an_earlier_workgroup_are_no_races() {
        let mut shadow = LdsShadow::default();
        shadow.reset(16);
        shadow.update(Accessor { signals: 3, waits: 3, ..wave(0) }, 0..4).unwrap();
        assert!(shadow.write_words(wave(0), 1, 1) && shadow.read_words(wave(0), 2, 1));
        assert!(!shadow.read_words(wave(1), 1, 1), "no barrier is between");
        shadow.reset(16);
        assert!(shadow.read_words(wave(1), 1, 1) && shadow.write_words(wave(1), 2, 1));
        assert!(!shadow.read_words(wave(0), 2, 1), "no barrier is between");
        // The atomic update was one of the earlier workgroup, so it excuses nothing here.
        shadow.read(wave(0), 0..4).unwrap();
        shadow.update(wave(1), 0..4).unwrap_err();
    }
}
