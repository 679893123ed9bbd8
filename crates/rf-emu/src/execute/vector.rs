//! Vector operations: reads sources, applies an operation to each lane, writes the result.

mod compare;
mod exchange;
mod integer;
mod lanes;
mod matrix;
mod packed;
mod real;

pub(super) use self::matrix::is_matrix;

use super::{
    float,
    wave::{LANES, Lanes, Wave, WideLanes, is_set},
};
use crate::isa::{
    Kind,
    instruction::{Encoding, Exchange, Instruction, Operand},
    op::{Op, ValuOp},
};

/// A vector instruction in execution.
pub(super) struct Vector<'a> {
    wave: &'a mut Wave,
    instruction: &'a Instruction,
    /// The first two sources after an exchange between lanes or a selection of parts.
    exchanged: Option<Box<[Lanes; 2]>>,
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
    match instruction.op {
        Op::Compare(compare) => {
            vector.compare(compare);
            Ok(())
        }
        Op::Valu(op) => vector.operation(op),
        _ => Err("operation"),
    }
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

/// A value per lane; a plain loop, which the compiler vectorises.
#[inline]
pub(super) fn each(mut value: impl FnMut(usize) -> u32) -> Lanes {
    let mut lanes = [0; LANES];
    for (lane, target) in lanes.iter_mut().enumerate() {
        *target = value(lane);
    }
    lanes
}

#[inline]
fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

impl Vector<'_> {
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
    fn source<'b>(&'b self, at: usize, buffer: &'b mut Lanes) -> &'b Lanes {
        let source = &self.instruction.src[at];
        match &self.exchanged {
            Some(exchanged) if at < 2 => {
                *buffer = exchanged[at];
                self.wave.modify(source, buffer);
                buffer
            }
            _ => self.wave.source(source, buffer),
        }
    }

    /// The old value of the destination.
    fn accumulator(&self) -> Lanes {
        let mut buffer = [0; LANES];
        *self.wave.lanes(self.instruction.dst, &mut buffer)
    }

    fn wide(&self, at: usize) -> WideLanes {
        self.wave.wide_source(&self.instruction.src[at])
    }

    #[inline]
    fn map1(&self, operation: impl Fn(u32) -> u32) -> Lanes {
        let mut buffer = [0; LANES];
        let a = self.source(0, &mut buffer);
        each(|lane| operation(a[lane]))
    }

    #[inline]
    fn map2(&self, operation: impl Fn(u32, u32) -> u32) -> Lanes {
        let mut buffers = [[0; LANES]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.source(0, first), self.source(1, second));
        each(|lane| operation(a[lane], b[lane]))
    }

    #[inline]
    fn map3(&self, operation: impl Fn(u32, u32, u32) -> u32) -> Lanes {
        let mut buffers = [[0; LANES]; 3];
        let [first, second, third] = &mut buffers;
        let (a, b, c) = (self.source(0, first), self.source(1, second), self.source(2, third));
        each(|lane| operation(a[lane], b[lane], c[lane]))
    }

    /// Two sources and the old destination.
    #[inline]
    fn map_accumulate(&self, operation: impl Fn(u32, u32, u32) -> u32) -> Lanes {
        let mut buffers = [[0; LANES]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.source(0, first), self.source(1, second));
        let c = self.accumulator();
        each(|lane| operation(a[lane], b[lane], c[lane]))
    }

    /// Writes 32-bit results.
    #[inline]
    fn put(&mut self, lanes: &Lanes) {
        if let Exchange::Sdwa { .. } = self.instruction.exchange {
            return self.put_part(lanes);
        }
        self.wave.write(self.instruction.dst, self.mask, lanes);
    }

    /// Writes f32 results, with the output modifiers.
    #[inline]
    fn put_f32(&mut self, mut lanes: Lanes) {
        let Instruction { output_modifier, clamp, .. } = *self.instruction;
        if output_modifier != 0 || clamp || self.wave.mode.flushes_f32_outputs() {
            let factor = [1.0, 2.0, 4.0, 0.5][usize::from(output_modifier & 3)];
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

    fn clamped(&self, value: f32) -> f32 {
        if value.is_nan() {
            return if self.wave.mode.clamp_nan { 0.0 } else { value };
        }
        value.clamp(0.0, 1.0) + 0.0
    }

    /// Writes f16 results, with the output modifiers.
    fn put_f16(&mut self, mut lanes: Lanes) {
        let Instruction { output_modifier, clamp, .. } = *self.instruction;
        if output_modifier != 0 || clamp {
            let factor = [1.0, 2.0, 4.0, 0.5][usize::from(output_modifier & 3)];
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

    fn put_f64(&mut self, lanes: &[f64; LANES]) {
        let Instruction { output_modifier, clamp, .. } = *self.instruction;
        let factor = [1.0, 2.0, 4.0, 0.5][usize::from(output_modifier & 3)];
        self.put_wide(&lanes.map(|value| {
            let value = if output_modifier == 0 { value } else { value * factor };
            (if clamp { value.clamp(0.0, 1.0) } else { value }).to_bits()
        }));
    }

    /// Writes a bit per lane to the scalar destination; inactive lanes are zero.
    fn put_mask(&mut self, operand: Operand, bits: u32) {
        self.wave.set_scalar(operand, bits & self.mask);
    }

    /// The result of one half of a dual instruction.
    fn dual_result(&self) -> Result<Lanes, &'static str> {
        let Op::Valu(op) = self.instruction.op else { return Err("operation") };
        let lanes = match op {
            ValuOp::FmacF32 => self.map_accumulate(|a, b, c| f(a).mul_add(f(b), f(c)).to_bits()),
            ValuOp::FmaakF32 | ValuOp::FmamkF32 => {
                self.map3(|a, b, c| f(a).mul_add(f(b), f(c)).to_bits())
            }
            ValuOp::MulF32 => self.map2(|a, b| (f(a) * f(b)).to_bits()),
            ValuOp::AddF32 => self.map2(|a, b| (f(a) + f(b)).to_bits()),
            ValuOp::SubF32 => self.map2(|a, b| (f(a) - f(b)).to_bits()),
            ValuOp::SubrevF32 => self.map2(|a, b| (f(b) - f(a)).to_bits()),
            ValuOp::MaxF32 => self.map2(|a, b| float::max(f(a), f(b)).to_bits()),
            ValuOp::MinF32 => self.map2(|a, b| float::min(f(a), f(b)).to_bits()),
            ValuOp::MovB32 => self.map1(|a| a),
            ValuOp::CndmaskB32 => self.select(),
            ValuOp::AddNcU32 => self.map2(u32::wrapping_add),
            ValuOp::LshlrevB32 => self.map2(|a, b| b << (a & 31)),
            ValuOp::AndB32 => self.map2(|a, b| a & b),
            _ => return Err("operation"),
        };
        let is_real = self.instruction.dst_kind == Kind::F32;
        if is_real && self.wave.mode.flushes_f32_outputs() {
            return Ok(lanes.map(super::wave::flush));
        }
        Ok(lanes)
    }

    /// The second source where the mask is set, otherwise the first.
    fn select(&self) -> Lanes {
        let mut buffers = [[0; LANES]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.source(0, first), self.source(1, second));
        let mask = self.wave.scalar(self.instruction.src[2].operand);
        each(|lane| if is_set(mask, lane) { b[lane] } else { a[lane] })
    }
}
