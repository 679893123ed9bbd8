//! DPP and SDWA: sources from other lanes, and parts of registers.

use super::{Exchange, LANES, Lanes, Operand, Vector, is_set, per_lane};
use crate::isa::instruction::Select;

/// A lane that has no source.
pub(super) const NO_SOURCE: u8 = LANES as u8;

/// The source lane of each lane, by control of DPP in rows of 16 lanes.
pub(super) static DPP16_SOURCES: [[u8; LANES]; 0x170] = {
    let mut sources = [[NO_SOURCE; LANES]; 0x170];
    let mut control = 0;
    while control < sources.len() {
        let mut lane = 0;
        while lane < LANES {
            sources[control][lane] = dpp16_source(control, lane) as u8;
            lane += 1;
        }
        control += 1;
    }
    sources
};

/// The source lane of DPP in rows of 16 lanes; [`NO_SOURCE`] if the pattern reaches beyond the row.
const fn dpp16_source(control: usize, lane: usize) -> usize {
    let (row, at) = (lane & !15, lane & 15);
    let amount = control & 15;
    let source = match control {
        0..=0xff => return lane & !3 | control >> (lane % 4 * 2) & 3,
        0x101..=0x10f => at + amount,
        // Beyond the row if it would be negative.
        0x111..=0x11f => at.wrapping_sub(amount),
        0x121..=0x12f => (at + 16 - amount) % 16,
        0x140 => 15 - at,
        0x141 => at ^ 7,
        0x150..=0x15f => amount,
        0x160..=0x16f => at ^ amount,
        _ => 16,
    };
    if source < 16 { row | source } else { NO_SOURCE as usize }
}

impl Vector<'_> {
    /// Computes the exchanged sources and the lanes that are written.
    pub(super) fn exchange(&mut self) {
        let mut sources = [[0; LANES]; 2];
        for (at, lanes) in sources.iter_mut().enumerate() {
            let operand = self.instruction.src[at].operand;
            if operand != Operand::None {
                let mut buffer = None;
                *lanes = *self.wave.lanes(operand, &mut buffer);
            }
        }
        let exec = self.wave.exec();
        match self.instruction.exchange {
            Exchange::None => {}
            Exchange::Dpp16 { control, row_mask, bank_mask, zero, fetch_inactive } => {
                let readable = if fetch_inactive { u32::MAX } else { exec };
                let none = [NO_SOURCE; LANES];
                let places = DPP16_SOURCES.get(usize::from(control)).unwrap_or(&none);
                // The last one is that of lanes without a source.
                let mut from = [0; LANES + 1];
                for (lane, from) in from.iter_mut().take(LANES).enumerate() {
                    *from = if is_set(readable, lane) { sources[0][lane] } else { 0 };
                }
                let mut found = 0;
                for (lane, value) in sources[0].iter_mut().enumerate() {
                    let source = usize::from(places[lane].min(NO_SOURCE));
                    *value = from[source];
                    found |= ((u64::from(readable) >> source) as u32 & 1) << lane;
                }
                let rows = spread(row_mask & 3, 16);
                let banks = spread(bank_mask, 4);
                self.mask &= rows & (banks | banks << 16) & if zero { u32::MAX } else { found };
            }
            Exchange::Dpp8 { lanes, fetch_inactive } => {
                let from = sources[0];
                for (lane, value) in sources[0].iter_mut().enumerate() {
                    let source = lane & !7 | (lanes >> (lane % 8 * 3) & 7) as usize;
                    let is_read = fetch_inactive || is_set(exec, source);
                    *value = if is_read { from[source] } else { 0 };
                }
            }
            Exchange::Sdwa { src, signed, .. } => {
                for (at, lanes) in sources.iter_mut().enumerate() {
                    for value in lanes {
                        *value = part(*value, src[at], signed[at]);
                    }
                }
            }
        }
        self.exchanged = Some(sources);
    }

    /// Writes the selected part of the destination.
    pub(super) fn put_part(&mut self, lanes: &Lanes) {
        let Exchange::Sdwa { dst, unused, .. } = self.instruction.exchange else { return };
        let (shift, bits) = match dst {
            Select::Byte(at) => (u32::from(at) * 8, 8),
            Select::Word(at) => (u32::from(at) * 16, 16),
            Select::Dword => (0, 32),
        };
        let mask = (u64::from(u32::MAX) >> (32 - bits)) as u32;
        let old = self.accumulator();
        let merged = per_lane(|lane| {
            let value = lanes[lane] & mask;
            match unused {
                // The sign fills the bits above, zeros those below.
                1 => (((value << (32 - bits)) as i32 >> (32 - bits)) as u32) << shift,
                2 => old[lane] & !(mask << shift) | value << shift,
                _ => value << shift,
            }
        });
        self.wave.write(self.instruction.dst, self.mask, &merged);
    }
}

fn part(value: u32, select: Select, signed: bool) -> u32 {
    match (select, signed) {
        (Select::Byte(at), false) => value >> (at * 8) & 0xff,
        (Select::Byte(at), true) => (value >> (at * 8)) as i8 as u32,
        (Select::Word(at), false) => value >> (at * 16) & 0xffff,
        (Select::Word(at), true) => (value >> (at * 16)) as i16 as u32,
        (Select::Dword, _) => value,
    }
}

/// Each bit of a mask repeated `count` times.
fn spread(mask: u8, count: usize) -> u32 {
    let ones = (1 << count) - 1;
    (0..32 / count)
        .fold(0, |bits, at| bits | if is_set(mask.into(), at) { ones << (at * count) } else { 0 })
}
