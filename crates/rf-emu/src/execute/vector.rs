//! Vector operations: reads sources, applies an operation to each lane, writes the result.

mod compare;
mod directed;
mod exchange;
mod fma;
mod integer;
mod lanes;
mod matrix;
mod packed;
mod real;
mod sources;

pub(crate) use self::sources::{SourceLane, moves_between_lanes, source_lanes};

use super::float;
use super::wave::{LANE_BITS, LANES, LaneBuffer, Lanes, Wave, WideLanes, is_set, per_lane};
use crate::isa::OperandType;
use crate::isa::instruction::{Encoding, Exchange, Instruction, Operand};
use crate::isa::op::{Op, ValuOp};

/// A vector instruction in execution.
pub(crate) struct Vector<'a> {
    wave: &'a mut Wave,
    instruction: &'a Instruction,
    /// The first two sources after an exchange between lanes or a selection of parts.
    exchanged: Option<[Lanes; 2]>,
    /// The lanes that are written.
    mask: u32,
}

/// Executes a vector instruction. The error names what is not supported.
pub(super) fn execute(wave: &mut Wave, instruction: &Instruction) -> Result<(), &'static str> {
    if let Some(second) = &instruction.second {
        return dual(wave, instruction, second);
    }
    let mask = wave.exec();
    let mut vector = Vector { wave, instruction, exchanged: None, mask };
    if instruction.exchange != Exchange::None {
        vector.exchange();
    }
    if vector.wave.mode.is_directed() && vector.directed() {
        return Ok(());
    }
    match instruction.op {
        Op::Compare(compare) => {
            vector.compare(compare);
            Ok(())
        }
        Op::Valu(op) => vector.operation(op),
        _ => Err("operation"),
    }
}

/// A function that executes some of the vector operations; false if the operation is another one.
pub(crate) type VectorGroup = fn(&mut Vector<'_>) -> bool;

/// The function that executes an instruction, if it concerns nothing but vector registers and
/// masks. It is tried with `wave`.
pub(super) fn group(instruction: &Instruction, wave: &mut Wave) -> Option<VectorGroup> {
    let op = match instruction.op {
        Op::Compare(compare) => {
            let group: VectorGroup = |vector| {
                let Op::Compare(compare) = vector.instruction.op else { return false };
                vector.compare(compare);
                true
            };
            return (!compare.to_exec).then_some(group);
        }
        Op::Valu(op) => op,
        _ => return None,
    };
    let is_special = matches!(op, ValuOp::WritelaneB32 | ValuOp::MovrelsB32 | ValuOp::MovreldB32);
    if is_special || op.is_matrix() {
        return None;
    }
    let groups: &[VectorGroup] = match (&instruction.second, instruction.encoding) {
        (Some(_), _) => &[|vector| {
            let instruction = vector.instruction;
            let Some(second) = &instruction.second else { return false };
            dual(vector.wave, instruction, second).is_ok()
        }],
        (None, Encoding::Vop3p) => &[|vector| vector.packed(vector.op()).is_ok()],
        (None, _) => &[
            |vector| vector.real32(vector.op()),
            |vector| vector.real16(vector.op()),
            |vector| vector.real64(vector.op()),
            |vector| vector.convert(vector.op()),
            |vector| vector.one_or_two32(vector.op()),
            |vector| vector.three32(vector.op()),
            |vector| vector.integer16(vector.op()),
            |vector| vector.carry(vector.op()),
            |vector| vector.integer64(vector.op()),
            |vector| vector.across_lanes(vector.op()) == Ok(true),
        ],
    };
    groups.iter().copied().find(|group| {
        let mask = wave.exec();
        group(&mut Vector { wave: &mut *wave, instruction, exchanged: None, mask })
    })
}

/// Executes an instruction by its function.
#[inline]
pub(super) fn execute_group(wave: &mut Wave, instruction: &Instruction, group: VectorGroup) {
    let mask = wave.exec();
    let mut vector = Vector { wave, instruction, exchanged: None, mask };
    if instruction.exchange != Exchange::None {
        vector.exchange();
    }
    if vector.wave.mode.is_directed() && vector.directed() {
        return;
    }
    group(&mut vector);
}

/// Executes both halves of a dual instruction: both read before either writes.
fn dual(wave: &mut Wave, first: &Instruction, second: &Instruction) -> Result<(), &'static str> {
    let mask = wave.exec();
    let mut results = [[0; LANES]; 2];
    for (result, half) in results.iter_mut().zip([first, second]) {
        let vector = Vector { wave: &mut *wave, instruction: half, exchanged: None, mask };
        *result = vector.dual_result()?;
    }
    wave.write(first.dst, mask, &results[0]);
    wave.write(second.dst, mask, &results[1]);
    Ok(())
}

/// The lanes for which a test holds; a plain loop, which the compiler vectorises.
#[inline]
fn lanes_with(test: impl Fn(usize) -> bool) -> u32 {
    let mut lanes = 0;
    for (lane, bit) in LANE_BITS.into_iter().enumerate() {
        lanes |= if test(lane) { bit } else { 0 };
    }
    lanes
}

#[inline]
fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

impl Vector<'_> {
    /// The operation; any other for a comparison.
    fn op(&self) -> ValuOp {
        match self.instruction.op {
            Op::Valu(op) => op,
            _ => ValuOp::ReadfirstlaneB32,
        }
    }

    fn operation(&mut self, op: ValuOp) -> Result<(), &'static str> {
        if self.instruction.encoding == Encoding::Vop3p {
            return self.packed(op);
        }
        if self.real(op) || self.integer(op) || self.across_lanes(op)? {
            return Ok(());
        }
        Err("operation")
    }

    /// A source with its modifiers.
    #[inline]
    fn source<'b>(&'b self, at: usize, buffer: &'b mut LaneBuffer) -> &'b Lanes {
        let source = &self.instruction.src[at];
        match &self.exchanged {
            Some(exchanged) if at < 2 => {
                let lanes = buffer.insert(exchanged[at]);
                self.wave.modify(source, lanes);
                lanes
            }
            _ => self.wave.source(source, buffer),
        }
    }

    /// The value of a source without modifiers that is the same in all lanes.
    fn uniform(&self, at: usize) -> Option<u32> {
        let source = &self.instruction.src[at];
        let is_plain = self.exchanged.is_none() && !(source.neg | source.abs | source.high);
        let is_vector = matches!(source.operand, Operand::Vgpr(_));
        (is_plain && !is_vector).then(|| self.wave.scalar(source.operand))
    }

    /// The old value of the destination.
    fn accumulator(&self) -> Lanes {
        let mut buffer = None;
        *self.wave.lanes(self.instruction.dst, &mut buffer)
    }

    fn wide(&self, at: usize) -> WideLanes {
        self.wave.wide_source(&self.instruction.src[at])
    }

    #[inline]
    fn map1(&self, operation: impl Fn(u32) -> u32) -> Lanes {
        let mut buffer = None;
        let a = self.source(0, &mut buffer);
        per_lane(|lane| operation(a[lane]))
    }

    #[inline]
    fn map2(&self, operation: impl Fn(u32, u32) -> u32) -> Lanes {
        let (mut first, mut second) = (None, None);
        let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
        per_lane(|lane| operation(a[lane], b[lane]))
    }

    #[inline]
    fn map3(&self, operation: impl Fn(u32, u32, u32) -> u32) -> Lanes {
        let (mut first, mut second, mut third) = (None, None, None);
        let (a, b, c) =
            (self.source(0, &mut first), self.source(1, &mut second), self.source(2, &mut third));
        per_lane(|lane| operation(a[lane], b[lane], c[lane]))
    }

    /// Two sources and the old destination.
    #[inline]
    fn map_accumulate(&self, operation: impl Fn(u32, u32, u32) -> u32) -> Lanes {
        let (mut first, mut second) = (None, None);
        let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
        let c = self.accumulator();
        per_lane(|lane| operation(a[lane], b[lane], c[lane]))
    }

    /// Multiplies the first two sources and adds the third one.
    fn fma(&self) -> Lanes {
        let (mut first, mut second, mut third) = (None, None, None);
        let (a, b, c) =
            (self.source(0, &mut first), self.source(1, &mut second), self.source(2, &mut third));
        fma::lanes(a, b, c)
    }

    /// Multiplies two sources and adds the old destination.
    fn fma_accumulate(&self) -> Lanes {
        let (mut first, mut second, mut third) = (None, None, None);
        let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
        fma::lanes(a, b, self.wave.lanes(self.instruction.dst, &mut third))
    }

    /// Writes 32-bit results.
    #[inline]
    fn put(&mut self, lanes: &Lanes) {
        if let Exchange::Sdwa { .. } = self.instruction.exchange {
            return self.put_part(lanes);
        }
        self.wave.write(self.instruction.dst, self.mask, lanes);
    }

    /// The factor of the output modifier, which IEEE mode and denormal results disable.
    fn output_factor(&self, flushes: bool) -> f32 {
        match self.instruction.output_modifier & 3 {
            _ if !flushes || self.wave.mode.ieee => 1.0,
            0 => 1.0,
            1 => 2.0,
            2 => 4.0,
            _ => 0.5,
        }
    }

    /// Writes f32 results, with the output modifiers.
    #[inline]
    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
    fn put_f32(&mut self, mut lanes: Lanes) {
        let Instruction { clamp, .. } = *self.instruction;
        let factor = self.output_factor(self.wave.mode.flushes_f32_outputs());
        if factor != 1.0 || clamp || self.wave.mode.flushes_f32_outputs() {
            for value in &mut lanes {
                let mut result = f(*value) * factor;
                if self.wave.mode.flushes_f32_outputs() {
                    result = f(super::wave::flush(result.to_bits()));
                }
                if clamp {
                    result = self.clamped(result);
                }
                *value = result.to_bits();
            }
        }
        self.put(&lanes);
    }

    /// The smaller and the larger of two values, as the mode says.
    fn selections(&self) -> [float::SelectFunction; 2] {
        if self.wave.mode.ieee {
            [float::ieee_min, float::ieee_max]
        } else {
            [float::min, float::max]
        }
    }

    fn clamped(&self, value: f32) -> f32 {
        self.wave.mode.clamped(value)
    }

    /// Writes f16 results, with the output modifiers.
    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
    fn put_f16(&mut self, mut lanes: Lanes) {
        let Instruction { clamp, .. } = *self.instruction;
        let factor = self.output_factor(self.wave.mode.flushes_f16_outputs());
        if factor != 1.0 || clamp {
            for value in &mut lanes {
                let result = float::f16_value(*value) * factor;
                let result = if clamp { self.clamped(result) } else { result };
                *value = float::to_f16(result);
            }
        }
        self.put_half(&lanes);
    }

    /// Writes 16-bit results.
    fn put_half(&mut self, lanes: &Lanes) {
        if let Exchange::Sdwa { .. } = self.instruction.exchange {
            return self.put_part(lanes);
        }
        self.wave.write_half(self.instruction, self.mask, lanes);
    }

    fn put_wide(&mut self, lanes: &WideLanes) {
        self.wave.write_wide(self.instruction.dst, self.mask, lanes);
    }

    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
    fn put_f64(&mut self, lanes: &[f64; LANES]) {
        let Instruction { clamp, .. } = *self.instruction;
        let factor = self.output_factor(self.wave.mode.flushes_f16_outputs());
        self.put_wide(&per_lane(|lane| {
            let value = lanes[lane];
            let value = if factor == 1.0 { value } else { value * f64::from(factor) };
            let value = match clamp {
                true if value.is_nan() && self.wave.mode.clamp_nan => 0.0,
                true => value.clamp(0.0, 1.0) + 0.0,
                false => value,
            };
            value.to_bits()
        }));
    }

    /// Writes a bit per lane to the scalar destination; inactive lanes are zero.
    fn put_mask(&mut self, operand: Operand, bits: u32) {
        self.wave.set_scalar(operand, bits & self.mask);
    }

    /// The result of one half of a dual instruction.
    fn dual_result(&self) -> Result<Lanes, &'static str> {
        let Op::Valu(op) = self.instruction.op else { return Err("operation") };
        let directed = self.wave.mode.is_directed().then(|| self.directed32(op)).flatten();
        if let Some(lanes) = directed {
            let flushes = self.wave.mode.flushes_f32_outputs();
            return Ok(if flushes { lanes.map(super::wave::flush) } else { lanes });
        }
        let lanes = match op {
            ValuOp::FmacF32 => self.fma_accumulate(),
            ValuOp::FmaakF32 | ValuOp::FmamkF32 => self.fma(),
            ValuOp::MulF32 => self.map2(|a, b| (f(a) * f(b)).to_bits()),
            ValuOp::AddF32 => self.map2(|a, b| (f(a) + f(b)).to_bits()),
            ValuOp::SubF32 => self.map2(|a, b| (f(a) - f(b)).to_bits()),
            ValuOp::SubrevF32 => self.map2(|a, b| (f(b) - f(a)).to_bits()),
            ValuOp::MaxF32 | ValuOp::MinF32 => self.selection(op),
            ValuOp::MovB32 => self.map1(|a| a),
            ValuOp::CndmaskB32 => self.select(),
            ValuOp::AddNcU32 => self.map2(u32::wrapping_add),
            ValuOp::LshlrevB32 => self.map2(|a, b| b << (a & 31)),
            ValuOp::AndB32 => self.map2(|a, b| a & b),
            _ => return Err("operation"),
        };
        let is_real = self.instruction.dst_kind == OperandType::F32;
        if is_real && self.wave.mode.flushes_f32_outputs() {
            return Ok(lanes.map(super::wave::flush));
        }
        Ok(lanes)
    }

    /// The second source where the mask is set, otherwise the first.
    fn select(&self) -> Lanes {
        let (mut first, mut second) = (None, None);
        let (a, b) = (self.source(0, &mut first), self.source(1, &mut second));
        let mask = self.wave.scalar(self.instruction.src[2].operand);
        per_lane(|lane| if mask & LANE_BITS[lane] == 0 { a[lane] } else { b[lane] })
    }
}
