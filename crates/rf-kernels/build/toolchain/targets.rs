//! What kernels are compiled for, and with which flags.

/// One architecture that code objects are built for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the compiler has it: `gfx1100`, `gfx11-generic`, `sm_80`.
    pub(crate) name: &'static str,
    pub(crate) isa: Isa,
    /// Built when nothing else is asked for.
    default: Default,
}

/// When a target is built without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Default {
    /// In every build: what emulators and test machines run.
    Always,
    /// In optimised builds, which people carry to other machines.
    Optimised,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// AMD: an ELF code object for one gfx.
    Gfx,
    /// AMD: an ELF code object (version 6) for a whole family; needs ROCm 6.3 or newer at run time.
    GfxGeneric,
    /// NVIDIA: PTX, text that the driver compiles.
    Ptx,
}

const fn target(name: &'static str, isa: Isa, default: Default) -> Target {
    Target { name, isa, default }
}

/// All of them. The defaults are few, so that a build stays short: an optimised one reaches RDNA 2 to 4 and
/// NVIDIA, any other has what its tests can run.
const TARGETS: [Target; 16] = [
    target("gfx9-generic", Isa::GfxGeneric, Default::Never),
    target("gfx90a", Isa::Gfx, Default::Never),
    target("gfx942", Isa::Gfx, Default::Never),
    target("gfx10-3-generic", Isa::GfxGeneric, Default::Optimised),
    target("gfx1030", Isa::Gfx, Default::Never),
    target("gfx11-generic", Isa::GfxGeneric, Default::Optimised),
    target("gfx1100", Isa::Gfx, Default::Always),
    target("gfx1101", Isa::Gfx, Default::Never),
    target("gfx1102", Isa::Gfx, Default::Never),
    target("gfx1103", Isa::Gfx, Default::Never),
    target("gfx1150", Isa::Gfx, Default::Never),
    target("gfx1151", Isa::Gfx, Default::Never),
    target("gfx12-generic", Isa::GfxGeneric, Default::Optimised),
    target("gfx1200", Isa::Gfx, Default::Never),
    target("gfx1201", Isa::Gfx, Default::Never),
    target("sm_80", Isa::Ptx, Default::Always),
];

impl Target {
    /// The compiler's arguments, but for the source, the include folder and the output.
    ///
    /// No header and no library of ROCm or CUDA takes part. No `-Werror`: a newer compiler's new warning must
    /// not break a user's build; `cargo xtask kernels` fails on warnings instead.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let name = self.name;
        let own: Vec<String> = match self.isa {
            Isa::Gfx => vec![format!("--offload-arch={name}")],
            // Past the driver, which in clang 19 warns of version 6 whatever the flags.
            Isa::GfxGeneric => vec![
                format!("--offload-arch={name}"),
                "-Xclang".into(),
                "-mcode-object-version=6".into(),
                "-Xclang".into(),
                "-mllvm".into(),
                "-Xclang".into(),
                "--amdhsa-code-object-version=6".into(),
            ],
            // Without the feature the wave shuffles are refused.
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
            Isa::Gfx | Isa::GfxGeneric => {
                &["-x", "hip", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"]
            }
        };
        let shared =
            ["--cuda-device-only", "-O3", "-std=c++20", "-ffp-contract=off", "-Wall", "-Wextra"];
        language.iter().chain(&shared).map(|&flag| flag.to_owned()).chain(own).collect()
    }

    /// The ending of a built file's name.
    pub(crate) fn extension(&self) -> &'static str {
        match self.isa {
            Isa::Ptx => "ptx",
            Isa::Gfx | Isa::GfxGeneric => "co",
        }
    }
}

/// What to build.
pub(crate) enum Selection {
    /// What the table says of each target.
    Default,
    /// Every target that the compiler knows.
    All,
    /// Nothing.
    Nothing,
    /// These, all of which the compiler must know.
    Named(Vec<&'static Target>),
}

impl Selection {
    /// Reads `all`, `none` or a list of names separated by commas; nothing or `default` is the default.
    ///
    /// # Errors
    ///
    /// A name that is not in the table.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" | "default" => Ok(Self::Default),
            "all" => Ok(Self::All),
            "none" => Ok(Self::Nothing),
            list => {
                let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                names.map(find).collect::<Result<_, _>>().map(Self::Named)
            }
        }
    }

    /// The targets; the default ones depend on whether the build is `optimised`.
    pub(crate) fn targets(&self, optimised: bool) -> Vec<&'static Target> {
        let default = |target: &&Target| match target.default {
            Default::Always => true,
            Default::Optimised => optimised,
            Default::Never => false,
        };
        match self {
            Self::Default => TARGETS.iter().filter(default).collect(),
            Self::All => TARGETS.iter().collect(),
            Self::Nothing => Vec::new(),
            Self::Named(targets) => targets.clone(),
        }
    }
}

fn find(name: &str) -> Result<&'static Target, String> {
    TARGETS.iter().find(|target| target.name == name).ok_or_else(|| {
        let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        format!("no kernel target {name:?}; there are all, none, default and: {}", known.join(", "))
    })
}
