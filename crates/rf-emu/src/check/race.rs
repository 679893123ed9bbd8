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
const NONE: u8 = 255;

/// The last accesses of a byte.
#[derive(Clone, Copy, Debug)]
struct Byte {
    writer: u8,
    /// True if the last write was an atomic update.
    atomic: bool,
    reader: u8,
    /// The number of barriers at which the writer had arrived.
    write_signals: u32,
    read_signals: u32,
}

const UNTOUCHED: Byte =
    Byte { writer: NONE, atomic: false, reader: NONE, write_signals: 0, read_signals: 0 };

/// The last accesses of each byte of LDS.
///
/// A barrier orders an access before a later one of another wave, if that wave has passed more
/// barriers than those at which the first one had arrived.
#[derive(Debug, Default)]
pub(crate) struct LdsShadow {
    bytes: Vec<Byte>,
}

impl LdsShadow {
    pub(crate) fn reset(&mut self, size: usize) {
        self.bytes.clear();
        self.bytes.resize(size, UNTOUCHED);
    }

    pub(crate) fn read(&mut self, by: Accessor, range: Range<usize>) -> Result<(), FaultKind> {
        for address in range {
            let byte = &mut self.bytes[address];
            if conflicts(byte.writer, byte.write_signals, by) {
                return Err(race(byte.writer, "writes", address));
            }
            byte.add_reader(by);
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, by: Accessor, range: Range<usize>) -> Result<(), FaultKind> {
        for address in range {
            let byte = &mut self.bytes[address];
            byte.check_write(by, address)?;
            (byte.writer, byte.write_signals, byte.atomic) = (by.wave, by.signals, false);
        }
        Ok(())
    }

    /// Atomic updates do not race with each other.
    pub(crate) fn update(&mut self, by: Accessor, range: Range<usize>) -> Result<(), FaultKind> {
        for address in range {
            let byte = &mut self.bytes[address];
            if !byte.atomic {
                byte.check_write(by, address)?;
            }
            (byte.writer, byte.write_signals, byte.atomic) = (by.wave, by.signals, true);
        }
        Ok(())
    }
}

impl Byte {
    fn check_write(&self, by: Accessor, address: usize) -> Result<(), FaultKind> {
        if conflicts(self.writer, self.write_signals, by) {
            return Err(race(self.writer, "writes", address));
        }
        if conflicts(self.reader, self.read_signals, by) {
            return Err(race(self.reader, "reads", address));
        }
        Ok(())
    }

    fn add_reader(&mut self, by: Accessor) {
        let is_newer = self.reader == NONE || by.waits > self.read_signals;
        if is_newer || self.reader == by.wave {
            (self.reader, self.read_signals) = (by.wave, by.signals);
        } else {
            self.reader = MANY;
            self.read_signals = self.read_signals.max(by.signals);
        }
    }
}

fn conflicts(other: u8, signals: u32, by: Accessor) -> bool {
    other != NONE && other != by.wave && by.waits <= signals
}

fn race(other: u8, access: &'static str, address: usize) -> FaultKind {
    FaultKind::LdsRace { other: other.into(), access, address: address as u32 }
}
