//! WMMA: products of 16x16 matrices that a wave holds together.
//!
//! RDNA 3 holds each row of A and column of B twice, in lanes `l` and `l + 16`, and element
//! (2v + l / 16, l % 16) of C and D in register v. RDNA 4 holds the lower half of K in lanes 0 to
//! 15 and the upper half in lanes 16 to 31, and element (v + 8 (l / 16), l % 16) in register v.
//!
//! Sums start with C and add the products in order of K. Products of f16 and bf16 are exact; each
//! addition is rounded to f32. Integer sums wrap, or saturate at
//! the end. The hardware's order of additions is not documented.

use super::{LANES, Operand, ValuOp, Vector, f, float};

/// The largest K.
const DEPTH: usize = 32;

/// A matrix of f32 or of integers: for each k, an element of each row (A) or column (B). Lanes hold
/// rows and columns, so loops over the elements of one k are vectorised.
type Elements<T> = [[T; 16]; DEPTH];

#[derive(Clone, Copy, PartialEq)]
enum Element {
    F16,
    Bf16,
    /// Integers of this many bits.
    Integer(u32),
}

/// How registers hold the elements of A and B.
#[derive(Clone, Copy)]
struct Layout {
    /// The size of an element.
    bits: u32,
    /// The number of elements of a row of A.
    depth: usize,
    /// True if both halves of the wave hold all elements.
    is_doubled: bool,
}

impl Element {
    fn bits(self) -> u32 {
        match self {
            Self::Integer(bits) => bits,
            _ => 16,
        }
    }

    /// A float constant of this type, whose decoded bits are those of an f32.
    fn constant(self, bits: u32) -> f32 {
        match self {
            Self::F16 => float::f16_value(float::to_f16(f(bits))),
            Self::Bf16 => float::bf16_value(bits >> 16),
            Self::Integer(_) => f(bits),
        }
    }
}

impl Vector<'_> {
    /// Returns true if the operation was one of matrices.
    pub(super) fn matrix(&mut self, op: ValuOp) -> Result<bool, &'static str> {
        let (element, depth) = match op {
            ValuOp::WmmaF32X16F16 | ValuOp::WmmaF16X16F16 => (Element::F16, 16),
            ValuOp::WmmaF32X16Bf16 | ValuOp::WmmaBf16X16Bf16 => (Element::Bf16, 16),
            ValuOp::WmmaI32X16Iu8 => (Element::Integer(8), 16),
            ValuOp::WmmaI32X16Iu4 => (Element::Integer(4), 16),
            ValuOp::WmmaI32X32Iu4 => (Element::Integer(4), 32),
            _ => return Ok(false),
        };
        // RDNA 3's operands hold everything twice.
        let elements = u32::from(self.instruction.src[0].kind.registers()) * 32 / element.bits();
        let is_doubled = elements as usize == depth;
        let (Operand::Vgpr(a), Operand::Vgpr(b), Operand::Vgpr(dst)) = (
            self.instruction.src[0].operand,
            self.instruction.src[1].operand,
            self.instruction.dst,
        ) else {
            return Err("matrix operand outside the vector registers");
        };
        if let Element::Integer(bits) = element {
            let signed = self.signs();
            let layout = Layout { bits, depth, is_doubled };
            let a = self.integers(a, layout, signed[0]);
            let b = self.integers(b, layout, signed[1]);
            self.multiply_integers(&a, &b, layout, dst);
        } else {
            let a = self.reals(0, a, element, is_doubled);
            let b = self.reals(1, b, element, is_doubled);
            let is_half = matches!(op, ValuOp::WmmaF16X16F16 | ValuOp::WmmaBf16X16Bf16);
            self.multiply_reals(&a, &b, is_doubled, is_half.then_some(element), dst);
        }
        Ok(true)
    }

    /// The bits of the elements of A or B; zero beyond the depth.
    fn elements(&self, first: u8, layout: Layout) -> Elements<u32> {
        let Layout { bits, depth, is_doubled } = layout;
        let per_register = (32 / bits) as usize;
        let mut elements = [[0; 16]; DEPTH];
        for (k, elements) in elements.iter_mut().enumerate().take(depth) {
            let (half, at) = if is_doubled || k < depth / 2 { (0, k) } else { (1, k - depth / 2) };
            let register = &self.wave.vgpr[usize::from(first) + at / per_register];
            let shift = (at % per_register) as u32 * bits;
            for (element, &lane) in elements.iter_mut().zip(&register[half * 16..]) {
                *element = lane >> shift & (u32::MAX >> (32 - bits));
            }
        }
        elements
    }

    fn integers(&self, first: u8, layout: Layout, signed: bool) -> Elements<i32> {
        let shift = 32 - layout.bits;
        let value = |raw: u32| if signed { ((raw << shift) as i32) >> shift } else { raw as i32 };
        self.elements(first, layout).map(|elements| elements.map(value))
    }

    fn reals(&self, at: usize, first: u8, element: Element, doubled: bool) -> Elements<f32> {
        let source = &self.instruction.src[at];
        let layout = Layout { bits: 16, depth: 16, is_doubled: doubled };
        let raw = self.elements(first, layout);
        let mut values = [[0.0; 16]; DEPTH];
        for (k, (values, raw)) in values.iter_mut().zip(&raw).enumerate() {
            let negated = if k % 2 == 0 { source.neg } else { source.neg_high };
            let flip = if negated { 0x8000 } else { 0 };
            for (value, raw) in values.iter_mut().zip(raw) {
                *value = match element {
                    Element::F16 => float::f16_value(raw ^ flip),
                    _ => float::bf16_value(raw ^ flip),
                };
            }
        }
        values
    }

    /// The row of the result that register `v` of lane `lane` holds.
    fn row(v: usize, lane: usize, doubled: bool) -> usize {
        if doubled { v * 2 + lane / 16 } else { v + lane / 16 * 8 }
    }

    fn multiply_integers(&mut self, a: &Elements<i32>, b: &Elements<i32>, layout: Layout, dst: u8) {
        let Layout { depth, is_doubled, .. } = layout;
        let addend = self.instruction.src[2];
        let mut sums = [[0_i32; 16]; 16];
        for (row, sums) in sums.iter_mut().enumerate() {
            for (a, b) in a.iter().zip(b).take(depth) {
                for (sum, &b) in sums.iter_mut().zip(b) {
                    // Elements have at most 8 bits: nothing wraps, and the lower halves are enough.
                    let product = i32::from(a[row] as i16) * i32::from(b as i16);
                    *sum = sum.wrapping_add(product);
                }
            }
        }
        let mut results = [[0; LANES]; 8];
        for (v, result) in results.iter_mut().enumerate() {
            let c = self.addend(addend.operand, v);
            for (lane, value) in result.iter_mut().enumerate() {
                let sum: i32 = sums[Self::row(v, lane, is_doubled)][lane % 16];
                *value = if self.instruction.clamp {
                    (c[lane] as i32).saturating_add(sum) as u32
                } else {
                    c[lane].wrapping_add(sum as u32)
                };
            }
        }
        for (v, result) in results.into_iter().enumerate() {
            self.wave.vgpr[usize::from(dst) + v] = result;
        }
    }

    /// Register `v` of the addend, which may be a constant.
    fn addend(&self, operand: Operand, v: usize) -> [u32; LANES] {
        match operand {
            Operand::Vgpr(first) => self.wave.vgpr[usize::from(first) + v],
            other => [self.wave.scalar(other); LANES],
        }
    }

    fn multiply_reals(
        &mut self,
        a: &Elements<f32>,
        b: &Elements<f32>,
        doubled: bool,
        half: Option<Element>,
        dst: u8,
    ) {
        let addend = self.instruction.src[2];
        // RDNA 3 keeps 16-bit results one per register, in the selected half; RDNA 4 packs them.
        let value_of = |raw: u32| match half {
            None => f(raw),
            Some(Element::Bf16) => float::bf16_value(raw & 0xffff),
            Some(_) => float::f16_value(raw & 0xffff),
        };
        let place = |v: usize| match half {
            None => (v, 0),
            Some(_) if doubled => (v, if addend.high { 16 } else { 0 }),
            Some(_) => (v / 2, v % 2 * 16),
        };
        let is_exact = are_moderate(a) & are_moderate(b);
        let mut sums = [[0.0; LANES]; 8];
        for (v, sums) in sums.iter_mut().enumerate() {
            let (register, shift) = place(v);
            let c = self.addend(addend.operand, register);
            let is_constant = !matches!(addend.operand, Operand::Vgpr(_));
            let is_float = matches!(addend.operand, Operand::Constant { code: 240.., .. });
            let shift = if is_constant { 0 } else { shift };
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = match half {
                    Some(element) if is_float => element.constant(c[lane]),
                    _ => value_of(c[lane] >> shift),
                };
                if addend.neg_high {
                    *sum = sum.abs();
                }
                if addend.neg {
                    *sum = -*sum;
                }
            }
            for (half, sums) in sums.chunks_exact_mut(16).enumerate() {
                let row = Self::row(v, half * 16, doubled);
                for (a, b) in a.iter().zip(b).take(16) {
                    for (sum, &b) in sums.iter_mut().zip(b) {
                        *sum = if is_exact { *sum + a[row] * b } else { a[row].mul_add(b, *sum) };
                    }
                }
            }
        }
        for (v, sums) in sums.iter().enumerate() {
            let (register, shift) = place(v);
            let target = &mut self.wave.vgpr[usize::from(dst) + register];
            for (target, &sum) in target.iter_mut().zip(sums) {
                *target = match half {
                    None => sum.to_bits(),
                    Some(element) => {
                        let bits = match element {
                            Element::Bf16 => float::to_bf16(sum),
                            _ => float::to_f16(sum),
                        };
                        *target & !(0xffff << shift) | bits << shift
                    }
                };
            }
        }
    }
}

/// Returns true if all products with another such matrix are exact.
fn are_moderate(matrix: &Elements<f32>) -> bool {
    // Not `all`, which would look at one element after the other.
    matrix.as_flattened().iter().fold(true, |all, &value| all & float::is_moderate(value))
}
