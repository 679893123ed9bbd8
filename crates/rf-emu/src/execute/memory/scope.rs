//! The meaning of memory instructions to other workgroups, by their cache bits.

use crate::check::global::{Kind, Load};
use crate::execute::workgroup::Group;
use crate::isa::{Family, Instruction};

/// The caches that an instruction drops: those of the device, that of the workgroup.
#[derive(Clone, Copy)]
pub(super) struct Drops {
    pub(super) device: bool,
    pub(super) workgroup: bool,
}

impl Group<'_> {
    /// The caches that an instruction drops.
    pub(super) fn drops(&self, instruction: &Instruction) -> Drops {
        if self.program.arch.family() == Family::Rdna4 {
            let device = instruction.cache & 3 >= 2;
            return Drops { device, workgroup: device };
        }
        // `buffer_gl0_inv` drops the cache of the workgroup, `buffer_gl1_inv` the next one.
        let workgroup = instruction.name.ends_with("gl0_inv");
        Drops { device: !workgroup, workgroup }
    }

    /// The caches that a load passes by.
    pub(super) fn load_kind(&self, instruction: &Instruction) -> Load {
        let (glc, dlc) = (instruction.cache & 1 != 0, instruction.cache & 4 != 0);
        match (self.program.arch.family(), instruction.cache & 3) {
            (Family::Rdna4, 2..) => Load::Device,
            (Family::Rdna4, 1) => Load::Workgroup,
            (Family::Rdna2, _) if glc && dlc => Load::Device,
            (Family::Rdna2, _) if glc => Load::Workgroup,
            (Family::Rdna3, _) if glc => Load::Device,
            _ => Load::Plain,
        }
    }

    /// The meaning of a store to other workgroups.
    pub(super) fn store_kind(&self, instruction: &Instruction, exec: u32, bytes: u32) -> Kind {
        match self.program.arch.family() {
            Family::Rdna4 if instruction.cache & 3 >= 2 => Kind::Flag,
            Family::Rdna4 => Kind::Plain,
            _ if exec.is_power_of_two() && bytes <= 8 => Kind::Flag,
            _ => Kind::Lanes,
        }
    }

    /// The meaning of an atomic update to other workgroups. Builtins of compilers have no scope.
    pub(super) fn update_kind(&self, instruction: &Instruction) -> Kind {
        match self.program.arch.family() {
            Family::Rdna4 if instruction.cache & 3 == 1 => Kind::Plain,
            _ => Kind::Update,
        }
    }
}
