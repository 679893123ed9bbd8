//! Atomic instructions: their changes of memory.

use super::float;
use crate::isa::op::AtomicOp;

/// The new value.
pub(crate) fn apply(op: AtomicOp, wide: bool, old: u64, data: u64, compare: u64) -> u64 {
    if wide {
        apply64(op, old, data, compare)
    } else {
        apply32(op, old as u32, data as u32, compare as u32).into()
    }
}

fn apply64(op: AtomicOp, old: u64, data: u64, compare: u64) -> u64 {
    integers64(op, old, data, compare).unwrap_or(old)
}

fn apply32(op: AtomicOp, old: u32, data: u32, compare: u32) -> u32 {
    let real = |operation: fn(f32, f32) -> f32| {
        operation(f32::from_bits(old), f32::from_bits(data)).to_bits()
    };
    if let Some(new) = integers32(op, old, data, compare) {
        return new;
    }
    match op {
        AtomicOp::SubClamp => old.saturating_sub(data),
        AtomicOp::CondSub => old.checked_sub(data).unwrap_or(old),
        AtomicOp::AddF => real(|a, b| a + b),
        AtomicOp::MinF => real(float::min),
        AtomicOp::MaxF => real(float::max),
        AtomicOp::PkAddF16 => {
            pairs(old, data, |a, b| float::to_f16(float::f16_value(a) + float::f16_value(b)))
        }
        AtomicOp::PkAddBf16 => {
            pairs(old, data, |a, b| float::to_bf16(float::bf16_value(a) + float::bf16_value(b)))
        }
        _ => old,
    }
}

/// The operations on integers that both widths have; `None` for others.
macro_rules! integers {
    ($name:ident, $unsigned:ty, $signed:ty) => {
        fn $name(
            op: AtomicOp,
            old: $unsigned,
            data: $unsigned,
            compare: $unsigned,
        ) -> Option<$unsigned> {
            Some(match op {
                AtomicOp::Swap => data,
                AtomicOp::Cmpswap if old == compare => data,
                AtomicOp::Cmpswap => old,
                AtomicOp::Add => old.wrapping_add(data),
                AtomicOp::Sub => old.wrapping_sub(data),
                AtomicOp::Rsub => data.wrapping_sub(old),
                AtomicOp::MinI => (old as $signed).min(data as $signed) as $unsigned,
                AtomicOp::MaxI => (old as $signed).max(data as $signed) as $unsigned,
                AtomicOp::MinU => old.min(data),
                AtomicOp::MaxU => old.max(data),
                AtomicOp::And => old & data,
                AtomicOp::Or => old | data,
                AtomicOp::Xor => old ^ data,
                AtomicOp::Inc if old >= data => 0,
                AtomicOp::Inc => old + 1,
                AtomicOp::Dec if old == 0 || old > data => data,
                AtomicOp::Dec => old - 1,
                _ => return None,
            })
        }
    };
}

integers!(integers32, u32, i32);
integers!(integers64, u64, i64);

fn pairs(old: u32, data: u32, operation: fn(u32, u32) -> u32) -> u32 {
    operation(old & 0xffff, data & 0xffff) | operation(old >> 16, data >> 16) << 16
}
