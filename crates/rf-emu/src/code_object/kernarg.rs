//! The arguments of a launch in memory.

use super::kernel::{Argument, ArgumentKind, Hidden, Kernel};
use crate::Error;

/// The upper halves of the addresses at which flat instructions reach LDS and scratch memory.
pub(crate) const SHARED_BASE: u32 = 0x0001_0000;
/// See [`SHARED_BASE`].
pub(crate) const PRIVATE_BASE: u32 = 0x0002_0000;

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// The number of workgroups in each dimension.
    pub workgroups: [u32; 3],
    /// The number of threads of a workgroup in each dimension.
    pub workgroup_size: [u32; 3],
    /// LDS in addition to the kernel's own.
    pub dynamic_lds_bytes: u32,
}

impl Kernel {
    /// The size of the arguments that the program passes, before hidden ones.
    pub fn explicit_bytes(&self) -> u32 {
        self.explicit().map(|argument| argument.offset + argument.bytes).max().unwrap_or(0)
    }

    fn explicit(&self) -> impl Iterator<Item = &Argument> {
        let hidden = |kind| matches!(kind, ArgumentKind::Hidden(_));
        self.arguments.iter().filter(move |argument| !hidden(argument.kind))
    }

    /// The bytes from which the kernel reads its arguments: those that the program passes, and the
    /// hidden ones.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`] if `explicit` is too short, or longer than what the kernel takes and
    /// rounding up to 8 bytes explains.
    pub fn kernarg_segment(&self, explicit: &[u8], grid: &Grid) -> Result<Vec<u8>, Error> {
        let needed = self.explicit_bytes() as usize;
        if explicit.len() < needed || explicit.len() > needed.next_multiple_of(8) {
            let reason = format!("{} bytes passed, {needed} needed", explicit.len());
            return Err(Error::Arguments { kernel: self.name.clone(), reason });
        }
        let mut segment = vec![0; self.kernarg_bytes as usize];
        segment[..needed].copy_from_slice(&explicit[..needed]);
        for argument in &self.arguments {
            let ArgumentKind::Hidden(hidden) = argument.kind else { continue };
            let value = grid.hidden_value(hidden).to_le_bytes();
            let place = &mut segment[argument.offset as usize..][..argument.bytes as usize];
            for (place, byte) in place.iter_mut().zip(value) {
                *place = byte;
            }
        }
        Ok(segment)
    }

    /// Compares the hidden arguments in memory with those of a launch. `byte` reads a byte of the
    /// arguments.
    pub(crate) fn check_hidden(
        &self,
        grid: &Grid,
        byte: impl Fn(usize) -> u8,
    ) -> Result<(), String> {
        for argument in &self.arguments {
            let ArgumentKind::Hidden(hidden) = argument.kind else { continue };
            let expected = grid.hidden_value(hidden);
            let count = argument.bytes.min(8);
            let found = (0..count).fold(0, |value, at| {
                value | u64::from(byte((argument.offset + at) as usize)) << (at * 8)
            });
            let mask = u64::MAX.checked_shr(64 - count * 8).unwrap_or(0);
            if hidden != Hidden::Service && found != expected & mask {
                let offset = argument.offset;
                return Err(format!(
                    "the hidden argument {hidden:?} at offset {offset} is {found}, not {expected}"
                ));
            }
        }
        Ok(())
    }
}

impl Grid {
    fn hidden_value(&self, hidden: Hidden) -> u64 {
        match hidden {
            Hidden::BlockCount(dimension) => self.workgroups[dimension].into(),
            Hidden::GroupSize(dimension) => self.workgroup_size[dimension].into(),
            // A launch is a number of whole workgroups from position zero.
            Hidden::Remainder(_) | Hidden::GlobalOffset(_) | Hidden::Service => 0,
            Hidden::GridDims => {
                let threads = |dimension: usize| {
                    u64::from(self.workgroups[dimension])
                        * u64::from(self.workgroup_size[dimension])
                };
                (1..3).rev().find(|&dimension| threads(dimension) > 1).map_or(1, |last| last + 1)
                    as u64
            }
            Hidden::DynamicLdsSize => self.dynamic_lds_bytes.into(),
            Hidden::SharedBase => SHARED_BASE.into(),
            Hidden::PrivateBase => PRIVATE_BASE.into(),
        }
    }
}
