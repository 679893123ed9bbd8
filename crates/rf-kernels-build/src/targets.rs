//! The targets that kernels are compiled for, with their compiler flags.

/// The oldest clang that builds every kernel.
pub(crate) const OLDEST_CLANG: u32 = 19;

/// One architecture that kernels are compiled for.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// The compiler's name for the architecture: `gfx1100`, `gfx11-generic`, `sm_80`.
    pub name: &'static str,
    isa: Isa,
    /// True if programs for other machines have it.
    pub(crate) in_release: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    /// AMD: an ELF code object for one gfx.
    Gfx,
    /// AMD: an ELF code object (version 6) for a whole family; needs ROCm 6.4 or newer at run time.
    GfxGeneric,
    /// NVIDIA: PTX, text that the driver compiles.
    Ptx,
}

const fn released(name: &'static str, isa: Isa) -> Target {
    Target { name, isa, in_release: true }
}

const fn on_request(name: &'static str, isa: Isa) -> Target {
    Target { name, isa, in_release: false }
}

/// A release covers RDNA 2 to 4 and NVIDIA. Besides the generic targets, which ROCm before 6.4 does
/// not load, it has the architectures of most cards exactly. In PTX for `sm_90` kernels start
/// before the previous one ends. That for `sm_90a` runs on compute capability 9.0 alone and uses
/// its matrix unit.
pub(crate) const TARGETS: [Target; 18] = [
    on_request("gfx9-generic", Isa::GfxGeneric),
    on_request("gfx90a", Isa::Gfx),
    on_request("gfx942", Isa::Gfx),
    released("gfx10-3-generic", Isa::GfxGeneric),
    released("gfx1030", Isa::Gfx),
    released("gfx11-generic", Isa::GfxGeneric),
    released("gfx1100", Isa::Gfx),
    released("gfx1101", Isa::Gfx),
    released("gfx1102", Isa::Gfx),
    released("gfx1103", Isa::Gfx),
    released("gfx1150", Isa::Gfx),
    released("gfx1151", Isa::Gfx),
    released("gfx12-generic", Isa::GfxGeneric),
    released("gfx1200", Isa::Gfx),
    released("gfx1201", Isa::Gfx),
    released("sm_80", Isa::Ptx),
    released("sm_90", Isa::Ptx),
    released("sm_90a", Isa::Ptx),
];

impl Target {
    /// The compiler's arguments except the source, the include directory and the output.
    ///
    /// No header or library of ROCm or CUDA is used. `-Werror` is absent because a new warning in a
    /// newer compiler must not break a user's build; `cargo xtask kernels --check` fails on
    /// warnings instead.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let name = self.name;
        let architecture: Vec<String> = match self.isa {
            Isa::Gfx => vec![format!("--offload-arch={name}")],
            // Passed to cc1 directly: clang 19's driver warns of version 6 whatever the flags.
            Isa::GfxGeneric => vec![
                format!("--offload-arch={name}"),
                "-Xclang".into(),
                "-mcode-object-version=6".into(),
                "-Xclang".into(),
                "-mllvm".into(),
                "-Xclang".into(),
                "--amdhsa-code-object-version=6".into(),
            ],
            // Without this feature clang rejects the wave shuffles.
            Isa::Ptx => vec![
                format!("--cuda-gpu-arch={name}"),
                "-Xclang".into(),
                "-target-feature".into(),
                "-Xclang".into(),
                "+ptx80".into(),
                "-S".into(),
            ],
        };
        let language: &[&str] = match self.isa {
            Isa::Ptx => &["-x", "cuda", "-nocudainc", "-nocudalib"],
            // The identifier of a unit, a symbol of its object, is a hash of the source's path
            // otherwise, and the bytes of a release would depend on the folder of its build.
            Isa::Gfx | Isa::GfxGeneric => &[
                "-x",
                "hip",
                "--no-gpu-bundle-output",
                "-nogpuinc",
                "-nogpulib",
                "-fuse-cuid=none",
            ],
        };
        let shared =
            ["--cuda-device-only", "-O3", "-std=c++20", "-ffp-contract=off", "-Wall", "-Wextra"];
        let common = language.iter().chain(&shared).map(|&flag| flag.to_owned());
        common.chain(architecture).collect()
    }

    /// The family whose members have most of their code in common; `None` for CDNA and Vega.
    pub fn family(&self) -> Option<&'static str> {
        ["gfx10", "gfx11", "gfx12", "sm_"].into_iter().find(|family| self.name.starts_with(family))
    }

    /// The file extension of compiled code.
    pub(crate) fn extension(&self) -> &'static str {
        match self.isa {
            Isa::Ptx => "ptx",
            Isa::Gfx | Isa::GfxGeneric => "co",
        }
    }
}

/// The names of all targets, separated by commas.
pub(crate) fn target_names() -> String {
    TARGETS.each_ref().map(|target| target.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        for (index, target) in TARGETS.iter().enumerate() {
            assert_eq!(TARGETS.iter().position(|other| other.name == target.name), Some(index));
        }
    }

    #[test]
    fn similar_targets_have_a_family() {
        let family =
            |name| TARGETS.iter().find(|target| target.name == name).and_then(Target::family);
        assert_eq!(family("gfx11-generic"), family("gfx1151"));
        assert_ne!(family("gfx1030"), family("gfx1201"));
        assert_eq!(family("sm_80"), family("sm_90"));
        assert_eq!((family("gfx90a"), family("gfx9-generic")), (None, None));
    }

    #[test]
    fn each_target_is_passed_to_the_compiler() {
        for target in &TARGETS {
            let arguments = target.arguments();
            assert!(arguments.iter().any(|argument| argument.ends_with(target.name)));
            assert_eq!(arguments.contains(&"-S".to_owned()), target.extension() == "ptx");
        }
    }
}
