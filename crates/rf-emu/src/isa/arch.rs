//! The processors that the emulator knows, with their numbers in ELF headers.

use std::fmt;

/// A generation of processors that share one instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessorFamily {
    /// gfx10.3.
    Rdna2,
    /// gfx11.
    Rdna3,
    /// gfx12.
    Rdna4,
}

macro_rules! processors {
    ($($variant:ident $name:literal $family:ident $mach:literal;)*) => {
        /// A processor, or a generic target that stands for all processors of a family.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the names are those of the processors")]
        pub enum Arch { $($variant,)* }

        impl Arch {
            /// All processors, oldest family first.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name as in `--offload-arch`: `gfx1100`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The instruction set.
            pub const fn family(self) -> ProcessorFamily {
                match self { $(Self::$variant => ProcessorFamily::$family,)* }
            }

            /// The number in the low byte of the ELF header's flags (`EF_AMDGPU_MACH`).
            pub const fn elf_mach(self) -> u8 {
                match self { $(Self::$variant => $mach,)* }
            }
        }
    };
}

processors! {
    Gfx1030 "gfx1030" Rdna2 0x36;
    Gfx1031 "gfx1031" Rdna2 0x37;
    Gfx1032 "gfx1032" Rdna2 0x38;
    Gfx1033 "gfx1033" Rdna2 0x39;
    Gfx1034 "gfx1034" Rdna2 0x3e;
    Gfx1035 "gfx1035" Rdna2 0x3d;
    Gfx1036 "gfx1036" Rdna2 0x45;
    Gfx103Generic "gfx10-3-generic" Rdna2 0x53;
    Gfx1100 "gfx1100" Rdna3 0x41;
    Gfx1101 "gfx1101" Rdna3 0x46;
    Gfx1102 "gfx1102" Rdna3 0x47;
    Gfx1103 "gfx1103" Rdna3 0x44;
    Gfx1150 "gfx1150" Rdna3 0x43;
    Gfx1151 "gfx1151" Rdna3 0x4a;
    Gfx11Generic "gfx11-generic" Rdna3 0x54;
    Gfx1200 "gfx1200" Rdna4 0x48;
    Gfx1201 "gfx1201" Rdna4 0x4e;
    Gfx12Generic "gfx12-generic" Rdna4 0x59;
}

impl Arch {
    /// The processor with this number in the ELF header's flags.
    pub fn from_elf_mach(mach: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|arch| arch.elf_mach() == mach)
    }

    /// The processor of this name. Features after a colon (`gfx1100:xnack-`) are ignored.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.split(':').next().unwrap_or_default();
        Self::ALL.iter().copied().find(|arch| arch.name() == name)
    }

    /// Returns true if this is the common subset of a family and not a processor.
    pub fn is_generic(self) -> bool {
        matches!(self, Self::Gfx103Generic | Self::Gfx11Generic | Self::Gfx12Generic)
    }

    /// Returns true if the processor `device` runs code for this target.
    pub fn runs_on(self, device: Self) -> bool {
        self == device || (self.is_generic() && self.family() == device.family())
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_elf_numbers_are_unique() {
        for &arch in Arch::ALL {
            assert_eq!(Arch::from_name(arch.name()), Some(arch));
            assert_eq!(Arch::from_elf_mach(arch.elf_mach()), Some(arch));
        }
        assert_eq!(Arch::from_elf_mach(0x3f), None, "gfx90a");
        assert_eq!(Arch::from_name("gfx1100:xnack-"), Some(Arch::Gfx1100));
    }

    #[test]
    fn generic_code_runs_on_the_processors_of_its_family() {
        assert!(Arch::Gfx11Generic.runs_on(Arch::Gfx1151));
        assert!(!Arch::Gfx11Generic.runs_on(Arch::Gfx1200));
        assert!(!Arch::Gfx1100.runs_on(Arch::Gfx1101));
    }
}
