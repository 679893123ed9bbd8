//! The source lanes of instructions that move values between lanes.

use super::exchange::{DPP16_SOURCES, NO_SOURCE};
use super::{LANES, Wave, is_set};
use crate::isa::Instruction;
use crate::isa::instruction::Exchange;
use crate::isa::op::{Op, ValuOp};

/// The lane from which a lane reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceLane {
    Lane(u8),
    /// Zero, because this lane is not active.
    Inactive(u8),
    /// Zero, because there is no such lane.
    Missing,
    /// Nothing: the lane keeps its result.
    Kept,
}

/// The source lanes of the first operand; `None` if the instruction exchanges nothing.
pub(crate) fn source_lanes(wave: &Wave, instruction: &Instruction) -> Option<[SourceLane; LANES]> {
    match instruction.op {
        Op::Valu(
            op @ (ValuOp::Permlane16B32
            | ValuOp::Permlanex16B32
            | ValuOp::Permlane16VarB32
            | ValuOp::Permlanex16VarB32),
        ) => Some(permuted(wave, instruction, op)),
        _ => exchanged(instruction.exchange, wave.exec()),
    }
}

/// Returns true if the first operand may come from another lane.
pub(crate) fn moves_between_lanes(instruction: &Instruction) -> bool {
    matches!(instruction.exchange, Exchange::Dpp16 { .. } | Exchange::Dpp8 { .. })
        || matches!(
            instruction.op,
            Op::Valu(
                ValuOp::Permlane16B32
                    | ValuOp::Permlanex16B32
                    | ValuOp::Permlane16VarB32
                    | ValuOp::Permlanex16VarB32
            )
        )
}

/// The lanes of DPP.
pub(super) fn exchanged(exchange: Exchange, exec: u32) -> Option<[SourceLane; LANES]> {
    Some(match exchange {
        Exchange::Dpp16 { control, row_mask, bank_mask, zero, fetch_inactive } => {
            std::array::from_fn(|lane| {
                let is_written =
                    is_set(row_mask.into(), lane / 16) && is_set(bank_mask.into(), lane % 16 / 4);
                let sources = DPP16_SOURCES.get(usize::from(control));
                match sources.map_or(NO_SOURCE, |sources| sources[lane]) {
                    _ if !is_written => SourceLane::Kept,
                    NO_SOURCE if zero => SourceLane::Missing,
                    NO_SOURCE => SourceLane::Kept,
                    source => read(source.into(), exec, zero, fetch_inactive),
                }
            })
        }
        Exchange::Dpp8 { lanes, fetch_inactive } => std::array::from_fn(|lane| {
            let source = lane & !7 | (lanes >> (lane % 8 * 3) & 7) as usize;
            read(source, exec, true, fetch_inactive)
        }),
        Exchange::None | Exchange::Sdwa { .. } => return None,
    })
}

/// Each lane reads the lane of its row, or of the other row, that a selector names.
fn permuted(wave: &Wave, instruction: &Instruction, op: ValuOp) -> [SourceLane; LANES] {
    let [value, low, high, _] = &instruction.src;
    let (fetch_inactive, zero) = (value.high, low.high);
    let mut buffer = None;
    let selectors = match op {
        ValuOp::Permlane16B32 | ValuOp::Permlanex16B32 => {
            let (low, high) = (wave.scalar(low.operand), wave.scalar(high.operand));
            let selector = u64::from(high) << 32 | u64::from(low);
            std::array::from_fn(|lane| (selector >> (lane % 16 * 4)) as u32)
        }
        _ => *wave.lanes(low.operand, &mut buffer),
    };
    let is_crossed = matches!(op, ValuOp::Permlanex16B32 | ValuOp::Permlanex16VarB32);
    let exec = wave.exec();
    std::array::from_fn(|lane| {
        let row = if is_crossed { !lane & 16 } else { lane & 16 };
        read(row | (selectors[lane] & 15) as usize, exec, zero, fetch_inactive)
    })
}

fn read(source: usize, exec: u32, zero: bool, fetch_inactive: bool) -> SourceLane {
    let lane = source as u8;
    match (fetch_inactive || is_set(exec, source), zero) {
        (true, _) => SourceLane::Lane(lane),
        (false, true) => SourceLane::Inactive(lane),
        (false, false) => SourceLane::Kept,
    }
}
