//! The state of a wave: registers, and the reading and writing of operands.

use crate::isa::OperandType;
use crate::isa::instruction::{Instruction, Operand, SourceOperand, register};

/// The number of lanes.
pub(crate) const LANES: usize = 32;

/// The bit of each lane.
pub(crate) const LANE_BITS: Lanes = {
    let mut bits = [1; LANES];
    let mut lane = 1;
    while lane < LANES {
        bits[lane] = bits[lane - 1] << 1;
        lane += 1;
    }
    bits
};

/// A value per lane.
pub(crate) type Lanes = [u32; LANES];

/// Room for the values of an operand that is not a register. Empty, because it is rarely needed and
/// zeros would have to be written each time.
pub(crate) type LaneBuffer = Option<Lanes>;

/// A 64-bit value per lane.
pub(crate) type WideLanes = [u64; LANES];

/// Operands of several registers may reach beyond the last one without a panic.
pub(crate) const VGPRS: usize = 256 + 32;
const SGPRS: usize = 128 + 32;

/// The high halves of the addresses of LDS and of scratch memory in the flat address space.
pub(crate) const SHARED_BASE: u32 = 0x0001_0000;
/// See [`SHARED_BASE`].
pub(crate) const PRIVATE_BASE: u32 = 0x0002_0000;

/// The first half of the buffer of scratch memory of RDNA 2: its bit for lanes that take turns.
pub(crate) const SCRATCH_BUFFER: u64 = 1 << 63;

/// How a wave treats floats: the bits of the MODE register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatMode {
    /// Bits 0 to 7: rounding of f32, of f16 and f64; denormals of f32, of f16 and f64.
    pub(crate) bits: u8,
    /// True if clamping turns NaN into zero.
    pub(crate) clamp_nan: bool,
    /// True if a signalling NaN wins against a number (before RDNA 4).
    pub(crate) ieee: bool,
}

impl FloatMode {
    /// The value within 0 to 1.
    pub(crate) fn clamped(self, value: f32) -> f32 {
        if value.is_nan() {
            return if self.clamp_nan { 0.0 } else { value };
        }
        value.clamp(0.0, 1.0) + 0.0
    }

    /// True if results are rounded in another way than to nearest.
    #[inline]
    pub(crate) fn is_directed(self) -> bool {
        self.bits & 15 != 0
    }

    pub(crate) fn flushes_f32_inputs(self) -> bool {
        self.bits & 0x10 == 0
    }

    /// True if results of f16 and f64 that are denormal become zero.
    pub(crate) fn flushes_f16_outputs(self) -> bool {
        self.bits & 0x80 == 0
    }

    pub(crate) fn flushes_f32_outputs(self) -> bool {
        self.bits & 0x20 == 0
    }
}

/// Registers and flags of a wave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wave {
    pub(crate) vgpr: Vec<Lanes>,
    pub(crate) sgpr: [u32; SGPRS],
    pub(crate) scc: bool,
    pub(crate) mode: FloatMode,
    /// The bytes of scratch memory, lane after lane.
    pub(crate) scratch: Vec<u8>,
    pub(crate) scratch_bytes: usize,
    /// True if each byte of scratch memory was written; empty if that is not checked.
    pub(crate) scratch_written: Vec<bool>,
}

/// A value per lane; a plain loop, which the compiler vectorises.
#[inline]
pub(crate) fn per_lane<T: Copy + Default>(mut value: impl FnMut(usize) -> T) -> [T; LANES] {
    let mut lanes = [T::default(); LANES];
    for (lane, target) in lanes.iter_mut().enumerate() {
        *target = value(lane);
    }
    lanes
}

/// Bit `lane` of `mask`.
#[inline]
pub(crate) fn is_set(mask: u32, lane: usize) -> bool {
    mask >> lane & 1 != 0
}

impl Wave {
    pub(crate) fn new(mode: FloatMode, scratch_bytes: usize, vector_registers: usize) -> Self {
        Self {
            vgpr: vec![[0; LANES]; vector_registers],
            sgpr: [0; SGPRS],
            scc: false,
            mode,
            scratch: vec![0; scratch_bytes * LANES],
            scratch_bytes,
            scratch_written: Vec::new(),
        }
    }

    /// Clears everything.
    pub(crate) fn reset(&mut self, mode: FloatMode) {
        self.vgpr.fill([0; LANES]);
        self.sgpr.fill(0);
        self.scc = false;
        self.mode = mode;
        self.scratch.fill(0);
        self.scratch_written.fill(false);
    }

    #[inline]
    pub(crate) fn exec(&self) -> u32 {
        self.sgpr[usize::from(register::EXEC)]
    }

    #[inline]
    pub(crate) fn vcc(&self) -> u32 {
        self.sgpr[usize::from(register::VCC)]
    }

    /// The low 32 bits of a scalar operand.
    #[inline]
    pub(crate) fn scalar(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Sgpr(register) => self.sgpr[usize::from(register)],
            Operand::Constant { bits, .. } | Operand::Literal { bits, .. } => bits as u32,
            Operand::Special(code) => self.special(code) as u32,
            // A vector register where a scalar is expected: its first active lane.
            Operand::Vgpr(register) => self.vgpr[usize::from(register)][self.first_active()],
            Operand::None => 0,
        }
    }

    /// The 64 bits of a scalar operand.
    #[inline]
    pub(crate) fn scalar_wide(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Sgpr(register::NULL) | Operand::None => 0,
            Operand::Sgpr(register) => {
                let at = usize::from(register);
                u64::from(self.sgpr[at]) | u64::from(self.sgpr[at + 1]) << 32
            }
            Operand::Constant { bits, .. } | Operand::Literal { bits, .. } => bits,
            Operand::Special(code @ 235..=238) => u64::from(self.special(code) as u32) << 32,
            Operand::Special(code) => self.special(code),
            Operand::Vgpr(register) => {
                let (at, lane) = (usize::from(register), self.first_active());
                u64::from(self.vgpr[at][lane]) | u64::from(self.vgpr[at + 1][lane]) << 32
            }
        }
    }

    fn special(&self, code: u8) -> u64 {
        match code {
            235 => SHARED_BASE.into(),
            237 => PRIVATE_BASE.into(),
            251 => (self.vcc() == 0).into(),
            252 => (self.exec() == 0).into(),
            253 => self.scc.into(),
            _ => 0xffff_ffff,
        }
    }

    #[inline]
    pub(crate) fn set_scalar(&mut self, operand: Operand, value: u32) {
        if let Operand::Sgpr(register) = operand
            && register != register::NULL
        {
            self.sgpr[usize::from(register)] = value;
        }
    }

    #[inline]
    pub(crate) fn set_scalar_wide(&mut self, operand: Operand, value: u64) {
        if let Operand::Sgpr(register) = operand
            && register != register::NULL
        {
            self.sgpr[usize::from(register)] = value as u32;
            self.sgpr[usize::from(register) + 1] = (value >> 32) as u32;
        }
    }

    /// The first active lane, or lane 0 if none is active.
    pub(crate) fn first_active(&self) -> usize {
        match self.exec() {
            0 => 0,
            exec => exec.trailing_zeros() as usize,
        }
    }

    /// The 32 bits of an operand in each lane, without modifiers.
    #[inline]
    pub(crate) fn lanes<'a>(&'a self, operand: Operand, buffer: &'a mut LaneBuffer) -> &'a Lanes {
        if let Operand::Vgpr(register) = operand {
            return &self.vgpr[usize::from(register)];
        }
        buffer.insert([self.scalar(operand); LANES])
    }

    /// The 32 bits of a source in each lane, with its modifiers.
    #[inline]
    pub(crate) fn source<'a>(
        &'a self,
        source: &SourceOperand,
        buffer: &'a mut LaneBuffer,
    ) -> &'a Lanes {
        let modified = source.neg | source.abs | source.high;
        let flushed = source.kind == OperandType::F32 && self.mode.flushes_f32_inputs();
        if !(modified || flushed) {
            return self.lanes(source.operand, buffer);
        }
        let lanes = buffer.insert(*self.lanes(source.operand, &mut None));
        self.modify(source, lanes);
        lanes
    }

    /// Applies the modifiers of a source.
    pub(crate) fn modify(&self, source: &SourceOperand, lanes: &mut Lanes) {
        let is_half = matches!(source.kind, OperandType::F16 | OperandType::B16);
        let sign = if is_half { 1 << 15 } else { 1 << 31 };
        let shift = if source.high && is_half { 16 } else { 0 };
        let flushes = source.kind == OperandType::F32 && self.mode.flushes_f32_inputs();
        let (cleared, flipped) =
            (if source.abs { sign } else { 0 }, if source.neg { sign } else { 0 });
        for value in lanes {
            let moved = *value >> shift;
            let kept = if flushes { flush(moved) } else { moved };
            *value = kept & !cleared ^ flipped;
        }
    }

    /// The 64 bits of a source in each lane, with its modifiers.
    pub(crate) fn wide_source(&self, source: &SourceOperand) -> WideLanes {
        let mut lanes = match source.operand {
            Operand::Vgpr(register) => {
                let at = usize::from(register);
                let (low, high) = (&self.vgpr[at], &self.vgpr[at + 1]);
                per_lane(|lane| u64::from(low[lane]) | u64::from(high[lane]) << 32)
            }
            operand => [self.scalar_wide(operand); LANES],
        };
        if source.abs | source.neg {
            for value in &mut lanes {
                if source.abs {
                    *value &= !(1 << 63);
                }
                if source.neg {
                    *value ^= 1 << 63;
                }
            }
        }
        lanes
    }

    /// Writes the lanes of `mask`.
    #[inline]
    pub(crate) fn write(&mut self, operand: Operand, mask: u32, lanes: &Lanes) {
        let Operand::Vgpr(register) = operand else {
            if mask != 0 {
                self.set_scalar(operand, lanes[mask.trailing_zeros() as usize]);
            }
            return;
        };
        self.write_register(register.into(), mask, lanes);
    }

    /// Writes the lanes of `mask` of a vector register.
    #[inline]
    pub(crate) fn write_register(&mut self, register: usize, mask: u32, lanes: &Lanes) {
        let target = &mut self.vgpr[register];
        if mask == u32::MAX {
            *target = *lanes;
            return;
        }
        // A choice of values instead of a branch, so that the compiler vectorises the loop.
        for ((target, &value), bit) in target.iter_mut().zip(lanes).zip(LANE_BITS) {
            *target = if mask & bit == 0 { *target } else { value };
        }
    }

    /// Writes the 64-bit lanes of `mask`.
    pub(crate) fn write_wide(&mut self, operand: Operand, mask: u32, lanes: &WideLanes) {
        let Operand::Vgpr(register) = operand else { return };
        let at = usize::from(register);
        for (lane, &value) in lanes.iter().enumerate() {
            if is_set(mask, lane) {
                self.vgpr[at][lane] = value as u32;
                self.vgpr[at + 1][lane] = (value >> 32) as u32;
            }
        }
    }

    /// Writes 16-bit results: RDNA 2 and the selected half of later families keep the other half.
    pub(crate) fn write_half(&mut self, instruction: &Instruction, mask: u32, lanes: &Lanes) {
        let Operand::Vgpr(register) = instruction.dst else { return };
        let target = &mut self.vgpr[usize::from(register)];
        for (lane, (target, &value)) in target.iter_mut().zip(lanes).enumerate() {
            if is_set(mask, lane) {
                *target = if instruction.dst_high {
                    *target & 0xffff | value << 16
                } else {
                    *target & 0xffff_0000 | value & 0xffff
                };
            }
        }
    }
}

/// Zero with the same sign if the bits are a denormal f32.
#[inline]
pub(crate) fn flush(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}
