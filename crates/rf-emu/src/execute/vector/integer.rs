//! Integer operations.

use super::{Instruction, LANE_BITS, ValuOp, Vector, WideLanes, per_lane};

fn i24(bits: u32) -> i32 {
    (bits << 8) as i32 >> 8
}

fn u24(bits: u32) -> u32 {
    bits & 0xff_ffff
}

/// `count` bits of `value` from bit `first` on.
fn field(value: u32, first: u32, count: u32) -> u32 {
    value >> (first & 31) & ((1 << (count & 31)) - 1)
}

/// A field of an integer with copies of the sign above the value and above the field.
fn signed_field(value: u32, first: u32, count: u32) -> u32 {
    match count & 31 {
        0 => 0,
        count => ((value as i32 >> (first & 31)) << (32 - count) >> (32 - count)) as u32,
    }
}

/// Bytes of `high:low` by selector.
fn permute(high: u32, low: u32, selector: u32) -> u32 {
    let value = u64::from(high) << 32 | u64::from(low);
    (0..4).fold(0, |result, at| {
        let byte = match selector >> (at * 8) & 0xff {
            which @ 0..=7 => (value >> (which * 8)) as u32 & 0xff,
            which @ 8..=11 => {
                // The sign of the odd bytes.
                if value >> ((which - 8) * 16 + 15) & 1 != 0 { 0xff } else { 0 }
            }
            12 => 0,
            _ => 0xff,
        };
        result | byte << (at * 8)
    })
}

fn leading_sign_bits(value: u32) -> u32 {
    let folded = value ^ ((value as i32 >> 31) as u32);
    if folded == 0 { u32::MAX } else { folded.leading_zeros() }
}

fn saturated(value: i64) -> i32 {
    value.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

fn median<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.min(b).max(a.max(b).min(c))
}

impl Vector<'_> {
    pub(super) fn b1(&mut self, operation: impl Fn(u32) -> u32) {
        let lanes = self.map1(operation);
        self.put(&lanes);
    }

    pub(super) fn b2(&mut self, operation: impl Fn(u32, u32) -> u32) {
        let lanes = self.map2(operation);
        self.put(&lanes);
    }

    fn b3(&mut self, operation: impl Fn(u32, u32, u32) -> u32) {
        let lanes = self.map3(operation);
        self.put(&lanes);
    }

    /// Two sources, of which the first is an amount. It is mostly the same in all lanes: only then
    /// does every processor shift several lanes at once.
    fn shift(&mut self, operation: impl Fn(u32, u32) -> u32) {
        let Some(amount) = self.uniform(0) else { return self.b2(operation) };
        let mut buffer = None;
        let values = self.source(1, &mut buffer);
        let lanes = per_lane(|lane| operation(amount, values[lane]));
        self.put(&lanes);
    }

    /// Three sources, of which the second is an amount; see [`shift`](Self::shift).
    fn shift_second(&mut self, operation: impl Fn(u32, u32, u32) -> u32) {
        let Some(amount) = self.uniform(1) else { return self.b3(operation) };
        let (mut first, mut third) = (None, None);
        let (a, c) = (self.source(0, &mut first), self.source(2, &mut third));
        let lanes = per_lane(|lane| operation(a[lane], amount, c[lane]));
        self.put(&lanes);
    }

    /// Three sources, of which the third is an amount; see [`shift`](Self::shift).
    fn shift_third(&mut self, operation: impl Fn(u32, u32, u32) -> u32) {
        let Some(amount) = self.uniform(2) else { return self.b3(operation) };
        let (mut first, mut second) = (None, None);
        let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
        let lanes = per_lane(|lane| operation(a[lane], b[lane], amount));
        self.put(&lanes);
    }

    fn i2(&mut self, operation: impl Fn(i32, i32) -> i32) {
        self.b2(|a, b| operation(a as i32, b as i32) as u32);
    }

    fn i3(&mut self, operation: impl Fn(i32, i32, i32) -> i32) {
        self.b3(|a, b, c| operation(a as i32, b as i32, c as i32) as u32);
    }

    fn w2(&mut self, operation: impl Fn(u16, u16) -> u16) {
        let lanes = self.map2(|a, b| operation(a as u16, b as u16).into());
        self.put_half(&lanes);
    }

    fn w3(&mut self, operation: impl Fn(u16, u16, u16) -> u16) {
        let lanes = self.map3(|a, b, c| operation(a as u16, b as u16, c as u16).into());
        self.put_half(&lanes);
    }

    fn s2(&mut self, operation: impl Fn(i16, i16) -> i16) {
        self.w2(|a, b| operation(a as i16, b as i16) as u16);
    }

    fn s3(&mut self, operation: impl Fn(i16, i16, i16) -> i16) {
        self.w3(|a, b, c| operation(a as i16, b as i16, c as i16) as u16);
    }

    /// Returns true if the operation was one of integers.
    pub(super) fn integer(&mut self, op: ValuOp) -> bool {
        self.integer32(op) || self.integer16(op) || self.carry(op) || self.integer64(op)
    }

    fn integer32(&mut self, op: ValuOp) -> bool {
        self.one_or_two32(op) || self.three32(op)
    }

    pub(super) fn one_or_two32(&mut self, op: ValuOp) -> bool {
        let Instruction { clamp, .. } = *self.instruction;
        match op {
            ValuOp::MovB32 => self.b1(|a| a),
            ValuOp::NotB32 => self.b1(|a| !a),
            ValuOp::BfrevB32 => self.b1(u32::reverse_bits),
            ValuOp::ClzI32U32 => self.b1(|a| if a == 0 { u32::MAX } else { a.leading_zeros() }),
            ValuOp::CtzI32B32 => self.b1(|a| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
            ValuOp::ClsI32 => self.b1(leading_sign_bits),
            ValuOp::CvtI32I16 => self.b1(|a| a as i16 as u32),
            ValuOp::CvtU32U16 => self.b1(|a| a & 0xffff),
            ValuOp::CndmaskB32 => {
                let lanes = self.select();
                self.put(&lanes);
            }
            ValuOp::AndB32 => self.b2(|a, b| a & b),
            ValuOp::OrB32 => self.b2(|a, b| a | b),
            ValuOp::XorB32 => self.b2(|a, b| a ^ b),
            ValuOp::XnorB32 => self.b2(|a, b| !(a ^ b)),
            ValuOp::LshlrevB32 => self.shift(|a, b| b << (a & 31)),
            ValuOp::LshrrevB32 => self.shift(|a, b| b >> (a & 31)),
            ValuOp::AshrrevI32 => self.shift(|a, b| (b as i32 >> (a & 31)) as u32),
            ValuOp::AddNcU32 if clamp => self.b2(u32::saturating_add),
            ValuOp::SubNcU32 if clamp => self.b2(u32::saturating_sub),
            ValuOp::AddNcI32 if clamp => self.i2(i32::saturating_add),
            ValuOp::SubNcI32 if clamp => self.i2(i32::saturating_sub),
            ValuOp::AddNcU32 | ValuOp::AddNcI32 => self.b2(u32::wrapping_add),
            ValuOp::SubNcU32 | ValuOp::SubNcI32 => self.b2(u32::wrapping_sub),
            ValuOp::SubrevNcU32 if clamp => self.b2(|a, b| b.saturating_sub(a)),
            ValuOp::SubrevNcU32 => self.b2(|a, b| b.wrapping_sub(a)),
            ValuOp::MulI32I24 => self.b2(|a, b| i24(a).wrapping_mul(i24(b)) as u32),
            ValuOp::MulU32U24 => self.b2(|a, b| u24(a).wrapping_mul(u24(b))),
            ValuOp::MulHiI32I24 => {
                self.b2(|a, b| ((i64::from(i24(a)) * i64::from(i24(b))) >> 32) as u32);
            }
            ValuOp::MulHiU32U24 => {
                self.b2(|a, b| ((u64::from(u24(a)) * u64::from(u24(b))) >> 32) as u32);
            }
            ValuOp::MulLoU32 => self.b2(u32::wrapping_mul),
            ValuOp::MulHiU32 => self.b2(|a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            ValuOp::MulHiI32 => {
                self.i2(|a, b| ((i64::from(a) * i64::from(b)) >> 32) as i32);
            }
            ValuOp::MinI32 => self.i2(i32::min),
            ValuOp::MaxI32 => self.i2(i32::max),
            ValuOp::MinU32 => self.b2(u32::min),
            ValuOp::MaxU32 => self.b2(u32::max),
            ValuOp::BfmB32 => self.b2(|a, b| ((1 << (a & 31)) - 1) << (b & 31)),
            ValuOp::BcntU32B32 => self.b2(|a, b| a.count_ones().wrapping_add(b)),
            ValuOp::CvtPkU16U32 => self.b2(|a, b| a.min(0xffff) | b.min(0xffff) << 16),
            ValuOp::CvtPkI16I32 => self.b2(|a, b| {
                let half = |a: u32| (a as i32).clamp(-0x8000, 0x7fff) as u32 & 0xffff;
                half(a) | half(b) << 16
            }),
            ValuOp::PackB32F16 => self.b2(|a, b| a & 0xffff | b << 16),
            _ => return false,
        }
        true
    }

    pub(super) fn three32(&mut self, op: ValuOp) -> bool {
        let Instruction { clamp, .. } = *self.instruction;
        match op {
            ValuOp::MadI32I24 if clamp => self.i3(|a, b, c| {
                saturated(i64::from(i24(a as u32)) * i64::from(i24(b as u32)) + i64::from(c))
            }),
            ValuOp::MadU32U24 if clamp => self.b3(|a, b, c| {
                let sum = u64::from(u24(a)) * u64::from(u24(b)) + u64::from(c);
                sum.min(u32::MAX.into()) as u32
            }),
            ValuOp::MadI32I24 => {
                self.b3(|a, b, c| (i24(a).wrapping_mul(i24(b)) as u32).wrapping_add(c));
            }
            ValuOp::MadU32U24 => self.b3(|a, b, c| u24(a).wrapping_mul(u24(b)).wrapping_add(c)),
            ValuOp::BfeU32 => self.shift_second(field),
            ValuOp::BfeI32 => self.shift_second(signed_field),
            ValuOp::BfiB32 => self.b3(|a, b, c| a & b | !a & c),
            ValuOp::AlignbitB32 => self.shift_third(|a, b, c| a << 1 << (!c & 31) | b >> (c & 31)),
            ValuOp::AlignbyteB32 => {
                self.b3(|a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> ((c & 3) * 8)) as u32);
            }
            ValuOp::Min3I32 => self.i3(|a, b, c| a.min(b).min(c)),
            ValuOp::Max3I32 => self.i3(|a, b, c| a.max(b).max(c)),
            ValuOp::Med3I32 => self.i3(median),
            ValuOp::Min3U32 => self.b3(|a, b, c| a.min(b).min(c)),
            ValuOp::Max3U32 => self.b3(|a, b, c| a.max(b).max(c)),
            ValuOp::Med3U32 => self.b3(median),
            ValuOp::MaxminU32 => self.b3(|a, b, c| a.max(b).min(c)),
            ValuOp::MinmaxU32 => self.b3(|a, b, c| a.min(b).max(c)),
            ValuOp::MaxminI32 => self.i3(|a, b, c| a.max(b).min(c)),
            ValuOp::MinmaxI32 => self.i3(|a, b, c| a.min(b).max(c)),
            ValuOp::PermB32 => self.b3(permute),
            ValuOp::XadU32 => self.b3(|a, b, c| (a ^ b).wrapping_add(c)),
            ValuOp::LshlAddU32 => self.shift_second(|a, b, c| (a << (b & 31)).wrapping_add(c)),
            ValuOp::AddLshlU32 => self.shift_third(|a, b, c| a.wrapping_add(b) << (c & 31)),
            ValuOp::Add3U32 => self.b3(|a, b, c| a.wrapping_add(b).wrapping_add(c)),
            ValuOp::LshlOrB32 => self.shift_second(|a, b, c| a << (b & 31) | c),
            ValuOp::AndOrB32 => self.b3(|a, b, c| a & b | c),
            ValuOp::Or3B32 => self.b3(|a, b, c| a | b | c),
            ValuOp::Xor3B32 => self.b3(|a, b, c| a ^ b ^ c),
            ValuOp::MadU32U16 if clamp => {
                self.b3(|a, b, c| ((a & 0xffff) * (b & 0xffff)).saturating_add(c));
            }
            ValuOp::MadI32I16 if clamp => {
                self.i3(|a, b, c| (i32::from(a as i16) * i32::from(b as i16)).saturating_add(c));
            }
            ValuOp::MadU32U16 => {
                self.b3(|a, b, c| ((a & 0xffff) * (b & 0xffff)).wrapping_add(c));
            }
            ValuOp::MadI32I16 => self
                .b3(|a, b, c| ((i32::from(a as i16) * i32::from(b as i16)) as u32).wrapping_add(c)),
            ValuOp::Dot4cI32I8 => {
                let lanes = self.map_accumulate(|a, b, c| {
                    let byte = |bits: u32, at: u32| i32::from((bits >> (at * 8)) as i8);
                    let sum: i32 = (0..4).map(|at| byte(a, at) * byte(b, at)).sum();
                    c.wrapping_add(sum as u32)
                });
                self.put(&lanes);
            }
            ValuOp::Dot2cF32F16 => {
                let lanes = self.map_accumulate(super::packed::dot2_f16);
                self.put_f32(lanes);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn integer16(&mut self, op: ValuOp) -> bool {
        let Instruction { clamp, .. } = *self.instruction;
        match op {
            ValuOp::MovB16 => {
                let lanes = self.map1(|a| a);
                self.put_half(&lanes);
            }
            ValuOp::NotB16 => {
                let lanes = self.map1(|a| !a & 0xffff);
                self.put_half(&lanes);
            }
            ValuOp::AndB16 => self.w2(|a, b| a & b),
            ValuOp::OrB16 => self.w2(|a, b| a | b),
            ValuOp::XorB16 => self.w2(|a, b| a ^ b),
            ValuOp::AddNcU16 if clamp => self.w2(u16::saturating_add),
            ValuOp::SubNcU16 if clamp => self.w2(u16::saturating_sub),
            ValuOp::AddNcI16 if clamp => self.s2(i16::saturating_add),
            ValuOp::SubNcI16 if clamp => self.s2(i16::saturating_sub),
            ValuOp::AddNcU16 | ValuOp::AddNcI16 => self.w2(u16::wrapping_add),
            ValuOp::SubNcU16 | ValuOp::SubNcI16 => self.w2(u16::wrapping_sub),
            ValuOp::MulLoU16 => self.w2(u16::wrapping_mul),
            ValuOp::LshlrevB16 => self.w2(|a, b| b << (a & 15)),
            ValuOp::LshrrevB16 => self.w2(|a, b| b >> (a & 15)),
            ValuOp::AshrrevI16 => self.s2(|a, b| b >> (a & 15)),
            ValuOp::MaxU16 => self.w2(u16::max),
            ValuOp::MinU16 => self.w2(u16::min),
            ValuOp::MaxI16 => self.s2(i16::max),
            ValuOp::MinI16 => self.s2(i16::min),
            ValuOp::MadU16 if clamp => self.w3(|a, b, c| {
                let sum = u32::from(a) * u32::from(b) + u32::from(c);
                sum.min(0xffff) as u16
            }),
            ValuOp::MadI16 if clamp => self.s3(|a, b, c| {
                let sum = i32::from(a) * i32::from(b) + i32::from(c);
                sum.clamp(-0x8000, 0x7fff) as i16
            }),
            ValuOp::MadU16 | ValuOp::MadI16 => {
                self.w3(|a, b, c| a.wrapping_mul(b).wrapping_add(c));
            }
            ValuOp::Min3I16 => self.s3(|a, b, c| a.min(b).min(c)),
            ValuOp::Max3I16 => self.s3(|a, b, c| a.max(b).max(c)),
            ValuOp::Med3I16 => self.s3(median),
            ValuOp::Min3U16 => self.w3(|a, b, c| a.min(b).min(c)),
            ValuOp::Max3U16 => self.w3(|a, b, c| a.max(b).max(c)),
            ValuOp::Med3U16 => self.w3(median),
            ValuOp::CndmaskB16 => {
                let lanes = self.select();
                self.put_half(&lanes);
            }
            _ => return false,
        }
        true
    }

    /// Additions with carry: the results and the carries.
    pub(super) fn carry(&mut self, op: ValuOp) -> bool {
        let carries_in =
            matches!(op, ValuOp::AddCoCiU32 | ValuOp::SubCoCiU32 | ValuOp::SubrevCoCiU32);
        match op {
            ValuOp::AddCoU32 | ValuOp::AddCoCiU32 => {
                self.with_carry(carries_in, u32::MAX, |a, b, carry| {
                    let (sum, first) = a.overflowing_add(b);
                    let (sum, second) = sum.overflowing_add(carry);
                    (sum, first | second)
                });
            }
            ValuOp::SubCoU32 | ValuOp::SubCoCiU32 => {
                self.with_carry(carries_in, 0, |a, b, borrow| {
                    let (difference, first) = a.overflowing_sub(b);
                    let (difference, second) = difference.overflowing_sub(borrow);
                    (difference, first | second)
                });
            }
            ValuOp::SubrevCoU32 | ValuOp::SubrevCoCiU32 => {
                self.with_carry(carries_in, 0, |a, b, borrow| {
                    let (difference, first) = b.overflowing_sub(a);
                    let (difference, second) = difference.overflowing_sub(borrow);
                    (difference, first | second)
                });
            }
            _ => return false,
        }
        true
    }

    /// An addition whose carries are in masks. If clamped, a result with a carry is `limit`.
    fn with_carry(
        &mut self,
        carries_in: bool,
        limit: u32,
        operation: impl Fn(u32, u32, u32) -> (u32, bool),
    ) {
        let carry_in =
            if carries_in { self.wave.scalar(self.instruction.src[2].operand) } else { 0 };
        let (mut first, mut second) = (None, None);
        let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
        let mut carry_out = 0;
        let clamp = self.instruction.clamp;
        let lanes = per_lane(|lane| {
            let bit = LANE_BITS[lane];
            let (result, carry) = operation(a[lane], b[lane], u32::from(carry_in & bit != 0));
            carry_out |= if carry { bit } else { 0 };
            if clamp && carry { limit } else { result }
        });
        self.put_mask(self.instruction.dst_mask, carry_out);
        self.put(&lanes);
    }

    fn shift64(&mut self, operation: impl Fn(u64, u32) -> u64) {
        let mut buffer = None;
        let amounts = *self.source(0, &mut buffer);
        let values = self.wide(1);
        self.put_wide(&per_lane(|lane| operation(values[lane], amounts[lane] & 63)));
    }

    pub(super) fn integer64(&mut self, op: ValuOp) -> bool {
        match op {
            ValuOp::LshlrevB64 => self.shift64(|value, amount| value << amount),
            ValuOp::LshrrevB64 => self.shift64(|value, amount| value >> amount),
            ValuOp::AshrrevI64 => self.shift64(|value, amount| (value as i64 >> amount) as u64),
            ValuOp::MadU64U32 | ValuOp::MadI64I32 => {
                let (mut first, mut second) = (None, None);
                let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
                let c = self.wide(2);
                let mut carries = 0;
                let lanes: WideLanes = per_lane(|lane| {
                    let (result, carry) = if op == ValuOp::MadU64U32 {
                        (u64::from(a[lane]) * u64::from(b[lane])).overflowing_add(c[lane])
                    } else {
                        // The carry is the sign of the exact sum.
                        let product = i64::from(a[lane] as i32) * i64::from(b[lane] as i32);
                        let sum = i128::from(product) + i128::from(c[lane] as i64);
                        (sum as u64, sum < 0)
                    };
                    carries |= u32::from(carry) << lane;
                    result
                });
                self.put_mask(self.instruction.dst_mask, carries);
                self.put_wide(&lanes);
            }
            _ => return false,
        }
        true
    }
}
