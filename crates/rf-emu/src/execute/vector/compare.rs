//! Comparisons and tests of classes.

use super::{LANES, Vector, f, float, lanes_with};
use crate::isa::instruction::register;
use crate::isa::op::{Compare, CompareType};

/// The lanes whose pair of values satisfies a condition: bit 0 stands for less, bit 1 for equal,
/// bit 2 for greater, bit 3 for unordered.
#[inline]
fn lanes_in_order<T: PartialOrd>(condition: u8, pair: impl Fn(usize) -> (T, T)) -> u32 {
    // One comparison decides every condition or its opposite.
    let (condition, opposite) =
        if condition & 8 == 0 { (condition, 0) } else { (!condition & 7, u32::MAX) };
    let lanes = match condition {
        0b000 => 0,
        0b001 => lanes_with(|lane| pair(lane).0 < pair(lane).1),
        0b010 => lanes_with(|lane| pair(lane).0 == pair(lane).1),
        0b011 => lanes_with(|lane| pair(lane).0 <= pair(lane).1),
        0b100 => lanes_with(|lane| pair(lane).0 > pair(lane).1),
        0b101 => lanes_with(|lane| (pair(lane).0 < pair(lane).1) | (pair(lane).0 > pair(lane).1)),
        0b110 => lanes_with(|lane| pair(lane).0 >= pair(lane).1),
        _ => lanes_with(|lane| (pair(lane).0 <= pair(lane).1) | (pair(lane).0 > pair(lane).1)),
    };
    lanes ^ opposite
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
        match operands {
            CompareType::F32 => self.order(condition, f),
            CompareType::F16 => self.order(condition, float::f16_value),
            CompareType::I32 => self.order(condition, |a| a as i32),
            CompareType::U32 => self.order(condition, |a| a),
            CompareType::I16 => self.order(condition, |a| a as i16),
            CompareType::U16 => self.order(condition, |a| a as u16),
            CompareType::F64 => self.order_wide(condition, f64::from_bits),
            CompareType::I64 => self.order_wide(condition, |a| a as i64),
            CompareType::U64 => self.order_wide(condition, |a| a),
        }
    }

    #[inline]
    fn order<T: PartialOrd>(&self, condition: u8, value: impl Fn(u32) -> T) -> u32 {
        let (mut first, mut second) = (None, None);
        let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
        lanes_in_order(condition, |lane| (value(a[lane]), value(b[lane])))
    }

    fn order_wide<T: PartialOrd>(&self, condition: u8, value: impl Fn(u64) -> T) -> u32 {
        let (a, b) = (self.wide(0), self.wide(1));
        lanes_in_order(condition, |lane| (value(a[lane]), value(b[lane])))
    }

    fn class(&self, operands: CompareType) -> u32 {
        let (mut first, mut second) = (None, None);
        let classes: [u32; LANES] = match operands {
            CompareType::F64 => self.wide(0).map(|bits| class(bits, 52, 11)),
            CompareType::F16 => self.source(0, &mut first).map(|bits| class(bits.into(), 10, 5)),
            _ => self.source(0, &mut first).map(|bits| class(bits.into(), 23, 8)),
        };
        let wanted = self.source(1, &mut second);
        lanes_with(|lane| wanted[lane] & classes[lane] != 0)
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
