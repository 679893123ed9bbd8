//! Comparisons and tests of classes.

use std::cmp::Ordering;

use super::{LANES, Vector, f, float};
use crate::isa::{
    instruction::register,
    op::{Compare, CompareType},
};

/// The bit of a condition that an order of two operands satisfies.
fn bit(order: Option<Ordering>) -> u8 {
    match order {
        Some(Ordering::Less) => 1,
        Some(Ordering::Equal) => 2,
        Some(Ordering::Greater) => 4,
        None => 8,
    }
}

impl Vector<'_> {
    pub(super) fn compare(&mut self, compare: Compare) {
        let bits = match compare.condition {
            Some(condition) => self.condition(compare.operands, condition),
            None => self.class(compare.operands),
        };
        let dst = self.instruction.dst;
        self.put_mask(dst, bits);
        if compare.to_exec {
            self.wave.sgpr[usize::from(register::EXEC)] = bits & self.mask;
        }
    }

    fn condition(&self, operands: CompareType, condition: u8) -> u32 {
        let narrow = |order: &dyn Fn(u32, u32) -> Option<Ordering>| {
            let mut buffers = [[0; LANES]; 2];
            let [first, second] = &mut buffers;
            let (a, b) = (self.source(0, first), self.source(1, second));
            (0..LANES).fold(0, |bits, lane| {
                bits | u32::from(condition & bit(order(a[lane], b[lane])) != 0) << lane
            })
        };
        let wide = |order: &dyn Fn(u64, u64) -> Option<Ordering>| {
            let (a, b) = (self.wide(0), self.wide(1));
            (0..LANES).fold(0, |bits, lane| {
                bits | u32::from(condition & bit(order(a[lane], b[lane])) != 0) << lane
            })
        };
        match operands {
            CompareType::F32 => narrow(&|a, b| f(a).partial_cmp(&f(b))),
            CompareType::F16 => {
                narrow(&|a, b| float::f16_value(a).partial_cmp(&float::f16_value(b)))
            }
            CompareType::I32 => narrow(&|a, b| Some((a as i32).cmp(&(b as i32)))),
            CompareType::U32 => narrow(&|a, b| Some(a.cmp(&b))),
            CompareType::I16 => narrow(&|a, b| Some((a as i16).cmp(&(b as i16)))),
            CompareType::U16 => narrow(&|a, b| Some((a as u16).cmp(&(b as u16)))),
            CompareType::F64 => wide(&|a, b| f64::from_bits(a).partial_cmp(&f64::from_bits(b))),
            CompareType::I64 => wide(&|a, b| Some((a as i64).cmp(&(b as i64)))),
            CompareType::U64 => wide(&|a, b| Some(a.cmp(&b))),
        }
    }

    fn class(&self, operands: CompareType) -> u32 {
        let mut buffers = [[0; LANES]; 2];
        let [first, second] = &mut buffers;
        let classes: [u32; LANES] = match operands {
            CompareType::F64 => self.wide(0).map(|bits| class(bits, 52, 11)),
            CompareType::F16 => self.source(0, first).map(|bits| class(bits.into(), 10, 5)),
            _ => self.source(0, first).map(|bits| class(bits.into(), 23, 8)),
        };
        let wanted = self.source(1, second);
        (0..LANES).fold(0, |bits, lane| bits | u32::from(wanted[lane] & classes[lane] != 0) << lane)
    }
}

/// The class of a float as a bit, in the order of `v_cmp_class`.
fn class(bits: u64, mantissa_bits: u32, exponent_bits: u32) -> u32 {
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let most = (1 << exponent_bits) - 1;
    let exponent = bits >> mantissa_bits & most;
    let negative = bits >> (mantissa_bits + exponent_bits) & 1 != 0;
    let quiet = mantissa >> (mantissa_bits - 1) != 0;
    let signed = |negative_bit: u32, positive_bit: u32| {
        1 << if negative { negative_bit } else { positive_bit }
    };
    match (exponent, mantissa) {
        (exponent, 0) if exponent == most => signed(2, 9),
        (exponent, _) if exponent == most => 1 << u32::from(quiet),
        (0, 0) => signed(5, 6),
        (0, _) => signed(4, 7),
        _ => signed(3, 8),
    }
}
