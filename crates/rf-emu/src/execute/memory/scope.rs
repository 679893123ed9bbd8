//! The meaning of memory instructions to other workgroups, by their cache bits.

use crate::check::global::{LoadScope, WriteKind};
use crate::execute::workgroup::Workgroup;
use crate::isa::{Instruction, ProcessorFamily};

/// The caches that an instruction drops: those of the device, that of the workgroup.
#[derive(Clone, Copy)]
pub(super) struct Drops {
    pub(super) device: bool,
    pub(super) workgroup: bool,
}

impl Workgroup<'_> {
    /// The caches that an instruction drops.
    pub(super) fn drops(&self, instruction: &Instruction) -> Drops {
        if self.program.arch.family() == ProcessorFamily::Rdna4 {
            let device = instruction.cache & 3 >= 2;
            return Drops { device, workgroup: device };
        }
        // `buffer_gl0_inv` drops the cache of the workgroup, `buffer_gl1_inv` the next one.
        let workgroup = instruction.name.ends_with("gl0_inv");
        Drops { device: !workgroup, workgroup }
    }

    /// The caches that a load passes by.
    pub(super) fn load_kind(&self, instruction: &Instruction) -> LoadScope {
        let (glc, dlc) = (instruction.cache & 1 != 0, instruction.cache & 4 != 0);
        match (self.program.arch.family(), instruction.cache & 3) {
            (ProcessorFamily::Rdna4, 2..) => LoadScope::Device,
            (ProcessorFamily::Rdna4, 1) => LoadScope::Workgroup,
            (ProcessorFamily::Rdna2, _) if glc && dlc => LoadScope::Device,
            (ProcessorFamily::Rdna2, _) if glc => LoadScope::Workgroup,
            (ProcessorFamily::Rdna3, _) if glc => LoadScope::Device,
            _ => LoadScope::Plain,
        }
    }

    /// The meaning of a store to other workgroups.
    pub(super) fn store_kind(&self, instruction: &Instruction, exec: u32, bytes: u32) -> WriteKind {
        match self.program.arch.family() {
            ProcessorFamily::Rdna4 if instruction.cache & 3 >= 2 => WriteKind::Flag,
            ProcessorFamily::Rdna4 => WriteKind::Plain,
            _ if exec.is_power_of_two() && bytes <= 8 => WriteKind::Flag,
            _ => WriteKind::Lanes,
        }
    }

    /// The meaning of an atomic update to other workgroups. Builtins of compilers have no scope.
    pub(super) fn update_kind(&self, instruction: &Instruction) -> WriteKind {
        match self.program.arch.family() {
            ProcessorFamily::Rdna4 if instruction.cache & 3 == 1 => WriteKind::Plain,
            _ => WriteKind::Update,
        }
    }
}
