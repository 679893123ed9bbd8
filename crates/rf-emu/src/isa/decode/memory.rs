//! SMEM, DS, FLAT, GLOBAL, SCRATCH and what kernels use of MUBUF.

use super::{Decoded, Decoder, bit, bits};
use crate::isa::ProcessorFamily;
use crate::isa::instruction::{Encoding, Instruction, Operand, SourceOperand, register};
use crate::isa::op::{AtomicOp, DsOp, Op, VmemOp};
use crate::isa::table::{OperandType, memory};

/// The register fields of a vector memory instruction.
struct Fields {
    address: u32,
    data: u32,
    dst: u32,
    scalar: Operand,
}

/// Sign-extends the low `count` bits.
fn signed(value: u32, count: u32) -> i32 {
    ((value << (32 - count)) as i32) >> (32 - count)
}

/// The first `registers` registers as a kind; only the number of registers matters.
fn kind(registers: u8) -> OperandType {
    match registers {
        1 => OperandType::B32,
        2 => OperandType::B64,
        3 | 4 => OperandType::X4,
        _ => OperandType::X8,
    }
}

impl Decoder<'_> {
    pub(super) fn smem(&mut self) -> Decoded {
        let word = self.word;
        let (opcode, offset_bits) = match self.family {
            ProcessorFamily::Rdna2 | ProcessorFamily::Rdna3 => (bits(word, 18, 8), 21),
            ProcessorFamily::Rdna4 => (bits(word, 13, 6), 24),
        };
        let row = self.row(memory::SMEM, "SMEM", opcode as u16)?;
        let second = self.next()?;
        let mut instruction = self.of_row(row, Encoding::Smem);
        instruction.immediate = signed(bits(second, 0, offset_bits), offset_bits);
        instruction.cache = match self.family {
            ProcessorFamily::Rdna2 => u8::from(bit(word, 16)) | u8::from(bit(word, 14)) << 2,
            ProcessorFamily::Rdna3 => u8::from(bit(word, 14)) | u8::from(bit(word, 13)) << 2,
            ProcessorFamily::Rdna4 => (bits(word, 21, 2) | bits(word, 23, 2) << 2) as u8,
        };
        if matches!(row.op, Op::ScalarCacheInvalidate) {
            return Ok(instruction);
        }
        instruction.dst = self.scalar_register(bits(word, 6, 7));
        if row.op != Op::Time {
            let base = self.scalar_register(bits(word, 0, 6) * 2);
            instruction.src[0] = SourceOperand::plain(base, OperandType::B64);
            let offset = self.scalar_register(bits(second, 25, 7));
            instruction.src[1] = SourceOperand::plain(offset, OperandType::B32);
            instruction.sources = 2;
        }
        Ok(instruction)
    }

    pub(super) fn ds(&mut self) -> Decoded {
        let word = self.word;
        let row = self.row(memory::DS, "DS", bits(word, 18, 8) as u16)?;
        if self.family != ProcessorFamily::Rdna4 && bit(word, 17) {
            return Err(self.unsupported("global data share"));
        }
        let second = self.next()?;
        let mut instruction = self.of_row(row, Encoding::Ds);
        instruction.immediate = i32::from(word as u16);
        let Op::Ds(op) = row.op else { return Err(self.unsupported("operation")) };
        let register = |code: u32| Operand::Vgpr(code as u8);
        let wide = |wide| if wide { OperandType::B64 } else { OperandType::B32 };
        let mut data = [None, None];
        match op {
            DsOp::Nop => return Ok(instruction),
            DsOp::Load(access) => {
                instruction.dst = register(second >> 24);
                instruction.dst_kind = kind(access.registers());
            }
            DsOp::Load2 { wide, .. } => {
                instruction.dst = register(second >> 24);
                instruction.dst_kind = kind(if wide { 4 } else { 2 });
            }
            DsOp::Store(access) => data[0] = Some(kind(access.registers())),
            DsOp::Store2 { wide: is_wide, .. } => data = [Some(wide(is_wide)); 2],
            DsOp::Atomic { op, wide: is_wide, returns } => {
                data[0] = Some(wide(is_wide));
                if op == AtomicOp::Cmpswap {
                    data[1] = data[0];
                }
                if returns {
                    instruction.dst = register(second >> 24);
                    instruction.dst_kind = wide(is_wide);
                }
            }
            DsOp::Permute | DsOp::Bpermute => {
                instruction.dst = register(second >> 24);
                data[0] = Some(OperandType::B32);
            }
            DsOp::Swizzle => instruction.dst = register(second >> 24),
        }
        instruction.src[0] = SourceOperand::plain(register(second), OperandType::B32);
        instruction.sources = 1;
        for (data, shift) in data.into_iter().zip([8, 16]) {
            if let Some(kind) = data {
                let at = usize::from(instruction.sources);
                instruction.src[at] = SourceOperand::plain(register(second >> shift), kind);
                instruction.sources += 1;
            }
        }
        Ok(instruction)
    }

    pub(super) fn flat(&mut self) -> Decoded {
        let word = self.word;
        let rdna2 = self.family == ProcessorFamily::Rdna2;
        let (segment, offset_bits) =
            if rdna2 { (bits(word, 14, 2), 12) } else { (bits(word, 16, 2), 13) };
        let encoding = match segment {
            0 => Encoding::Flat,
            1 => Encoding::Scratch,
            2 => Encoding::Global,
            _ => return Err(self.unknown("FLAT", None)),
        };
        if rdna2 && bit(word, 13) {
            return Err(self.unsupported("load to LDS"));
        }
        let row = self.row(memory::FLAT, "FLAT", bits(word, 18, 7) as u16)?;
        let second = self.next()?;
        let mut instruction = self.of_row(row, encoding);
        // The address of a flat access is not signed on RDNA 2 and 3.
        instruction.immediate = if encoding == Encoding::Flat {
            bits(word, 0, offset_bits - 1) as i32
        } else {
            signed(bits(word, 0, offset_bits), offset_bits)
        };
        let cache = if rdna2 { [16, 17, 12] } else { [14, 15, 13] };
        instruction.cache =
            (0..).zip(cache).map(|(at, place)| u8::from(bit(word, place)) << at).sum();
        let scalar = bits(second, 16, 7);
        let scalar = match self.scalar_register(scalar) {
            // RDNA 2 marks a missing scalar address by 125 and, for scratch, 127.
            Operand::Sgpr(register::NULL | 127) => Operand::None,
            other => other,
        };
        // RDNA 2 has no vector address where a scratch access has a scalar one; RDNA 3 has a bit.
        let has_vector = encoding != Encoding::Scratch
            || if rdna2 { scalar == Operand::None } else { bit(second, 23) };
        let fields = Fields { address: second, data: second >> 8, dst: second >> 24, scalar };
        let returns = instruction.cache & 1 != 0;
        self.vector_memory(instruction, &fields, has_vector, returns)
    }

    pub(super) fn flat_rdna4(&mut self) -> Decoded {
        let word = self.word;
        let encoding = match word >> 24 {
            0xec => Encoding::Flat,
            0xed => Encoding::Scratch,
            0xee => Encoding::Global,
            _ => return Err(self.unknown("VFLAT", None)),
        };
        let row = self.row(memory::FLAT, "VFLAT", bits(word, 14, 8) as u16)?;
        let second = self.next()?;
        let third = self.next()?;
        let mut instruction = self.of_row(row, encoding);
        instruction.immediate = signed(third >> 8, 24);
        instruction.cache = (bits(second, 18, 2) | bits(second, 20, 3) << 2) as u8;
        let scalar = match self.scalar_register(bits(word, 0, 7)) {
            Operand::Sgpr(register::NULL) => Operand::None,
            other => other,
        };
        let has_vector = encoding != Encoding::Scratch || bit(second, 17);
        let fields = Fields { address: third, data: second >> 23, dst: second, scalar };
        let returns = bit(second, 20);
        self.vector_memory(instruction, &fields, has_vector, returns)
    }

    /// Sources: the address, the data, the scalar address.
    fn vector_memory(
        &self,
        mut instruction: Instruction,
        fields: &Fields,
        has_vector: bool,
        returns: bool,
    ) -> Decoded {
        let prefix = match instruction.encoding {
            Encoding::Flat => "flat_",
            Encoding::Scratch => "scratch_",
            _ => "global_",
        };
        instruction.name = format!("{prefix}{}", instruction.name).into();
        let Op::Vmem(op) = instruction.op else { return Err(self.unsupported("operation")) };
        let dst = Operand::Vgpr(fields.dst as u8);
        let data = match op {
            VmemOp::Load(access) => {
                instruction.dst = dst;
                instruction.dst_kind = kind(access.registers());
                None
            }
            VmemOp::Store(access) => Some(kind(access.registers())),
            VmemOp::Atomic { op, wide } => {
                let value = if wide { OperandType::B64 } else { OperandType::B32 };
                if returns {
                    instruction.dst = dst;
                    instruction.dst_kind = value;
                }
                Some(if op == AtomicOp::Cmpswap { value.doubled() } else { value })
            }
            VmemOp::Invalidate | VmemOp::WriteBack | VmemOp::WriteBackInvalidate => {
                return Ok(instruction);
            }
        };
        if matches!(op, VmemOp::Atomic { .. }) && instruction.encoding == Encoding::Scratch {
            return Err(self.unsupported("atomic update of scratch memory"));
        }
        let scalar =
            if instruction.encoding == Encoding::Flat && self.family != ProcessorFamily::Rdna4 {
                Operand::None
            } else {
                fields.scalar
            };
        let wide_address = instruction.encoding != Encoding::Scratch && scalar == Operand::None;
        let address = if has_vector { Operand::Vgpr(fields.address as u8) } else { Operand::None };
        let address_kind = if wide_address { OperandType::B64 } else { OperandType::B32 };
        instruction.src[0] = SourceOperand::plain(address, address_kind);
        if let Some(kind) = data {
            instruction.src[1] = SourceOperand::plain(Operand::Vgpr(fields.data as u8), kind);
        }
        instruction.src[2] = SourceOperand::plain(scalar, OperandType::B64);
        instruction.sources = 3;
        Ok(instruction)
    }

    /// Sources of loads and stores: the offset, the data, the scalar offset, the buffer.
    pub(super) fn mubuf(&mut self) -> Decoded {
        let word = self.word;
        let row = self.row(memory::MUBUF, "MUBUF", bits(word, 18, 8) as u16)?;
        let second = self.next()?;
        let mut instruction = self.of_row(row, Encoding::Mubuf);
        let data = Operand::Vgpr((second >> 8) as u8);
        match instruction.op {
            Op::Vmem(VmemOp::Load(access)) => {
                instruction.dst = data;
                instruction.dst_kind = kind(access.registers());
            }
            Op::Vmem(VmemOp::Store(access)) => {
                instruction.src[1] = SourceOperand::plain(data, kind(access.registers()));
            }
            _ => return Ok(instruction),
        }
        if bit(word, 13) || bit(word, 16) || bit(second, 23) {
            return Err(self.unsupported("index, LDS or fail bit of a buffer"));
        }
        if bit(word, 12) {
            instruction.src[0] =
                SourceOperand::plain(Operand::Vgpr(second as u8), OperandType::B32);
        }
        let offset = self.source(second >> 24, OperandType::B32)?;
        instruction.src[2] = SourceOperand::plain(offset, OperandType::B32);
        let buffer = self.scalar_register(bits(second, 16, 5) * 4);
        instruction.src[3] = SourceOperand::plain(buffer, OperandType::X4);
        instruction.sources = 4;
        instruction.immediate = bits(word, 0, 12) as i32;
        let cache = [bit(word, 14), bit(second, 22), bit(word, 15)];
        instruction.cache = (0..).zip(cache).map(|(at, is_set)| u8::from(is_set) << at).sum();
        Ok(instruction)
    }
}
