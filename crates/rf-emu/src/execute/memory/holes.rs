//! Bytes that were never written, which a load reads and a store copies.

use super::LaneAddress;
use crate::View;
use crate::check::unwritten::Holes;
use crate::execute::wave::Wave;
use crate::execute::workgroup::Workgroup;
use crate::fault::FaultKind;
use crate::isa::Instruction;

impl Holes {
    /// The bytes of a load by one lane that were never written. Loads of fewer than four bytes,
    /// whose values are extended, have none.
    pub(super) fn of(view: &View<'_>, at: usize, bytes: usize, lane: usize) -> Option<Self> {
        if bytes < 4 {
            return None;
        }
        let missing = (0..bytes).filter(|byte| !view.is_initialised(at + byte, 1));
        Some(Self { lane, bytes: missing.fold(0, |mask, byte| mask | 1 << byte) })
    }
}

impl Workgroup<'_> {
    /// Records after a store that it moved bytes that were never written.
    pub(in crate::execute) fn unwrite(
        &mut self,
        wave: &Wave,
        instruction: &Instruction,
        moved: &[Holes],
    ) -> Result<(), FaultKind> {
        if moved.is_empty() {
            return Ok(());
        }
        let places = Self::places(wave, instruction);
        for holes in moved {
            let LaneAddress::Global(address) = places[holes.lane] else { continue };
            for byte in (0..16).filter(|byte| holes.bytes >> byte & 1 != 0) {
                let view = self.ranges.resolve_writable(address + byte, 1, &mut self.hint)?;
                view.unmark(0);
            }
        }
        Ok(())
    }
}
