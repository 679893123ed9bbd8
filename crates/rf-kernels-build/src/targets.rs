//! The targets that kernels are compiled for, with their compiler flags.

use std::str::FromStr;

use crate::Error;

/// One architecture that kernels are compiled for.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// The compiler's name for the architecture: `gfx1100`, `gfx11-generic`, `sm_80`.
    pub name: &'static str,
    isa: Isa,
    default_in: DefaultIn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    /// AMD: an ELF code object for one gfx.
    Gfx,
    /// AMD: an ELF code object (version 6) for a whole family; needs ROCm 6.3 or newer at run time.
    GfxGeneric,
    /// NVIDIA: PTX, text that the driver compiles.
    Ptx,
}

/// The builds that include a target by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DefaultIn {
    /// Every build: emulators and test machines run these targets.
    EveryBuild,
    /// Optimised builds, which are carried to other machines.
    OptimisedBuilds,
    /// No build; the target must be selected.
    NoBuild,
}

const fn target(name: &'static str, isa: Isa, default_in: DefaultIn) -> Target {
    Target { name, isa, default_in }
}

/// The default targets are few, to keep builds short: an optimised build covers RDNA 2 to 4 and
/// NVIDIA, any other build covers what its tests can run.
const TARGETS: [Target; 16] = [
    target("gfx9-generic", Isa::GfxGeneric, DefaultIn::NoBuild),
    target("gfx90a", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx942", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx10-3-generic", Isa::GfxGeneric, DefaultIn::OptimisedBuilds),
    target("gfx1030", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx11-generic", Isa::GfxGeneric, DefaultIn::OptimisedBuilds),
    target("gfx1100", Isa::Gfx, DefaultIn::EveryBuild),
    target("gfx1101", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx1102", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx1103", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx1150", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx1151", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx12-generic", Isa::GfxGeneric, DefaultIn::OptimisedBuilds),
    target("gfx1200", Isa::Gfx, DefaultIn::NoBuild),
    target("gfx1201", Isa::Gfx, DefaultIn::NoBuild),
    target("sm_80", Isa::Ptx, DefaultIn::EveryBuild),
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
            Isa::Gfx | Isa::GfxGeneric => {
                &["-x", "hip", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"]
            }
        };
        let shared =
            ["--cuda-device-only", "-O3", "-std=c++20", "-ffp-contract=off", "-Wall", "-Wextra"];
        let common = language.iter().chain(&shared).map(|&flag| flag.to_owned());
        common.chain(architecture).collect()
    }

    /// The file extension of compiled code.
    pub(crate) fn extension(&self) -> &'static str {
        match self.isa {
            Isa::Ptx => "ptx",
            Isa::Gfx | Isa::GfxGeneric => "co",
        }
    }
}

/// The targets to build, parsed from `all`, `none`, `default` or names separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The default targets of the build profile.
    Default,
    /// Every target that the compiler supports.
    All,
    /// No target.
    None,
    /// These targets, all of which the compiler must support.
    Named(Vec<&'static Target>),
}

impl FromStr for Selection {
    type Err = Error;

    /// Parses a selection; an empty text means [`Selection::Default`].
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTarget`]
    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim() {
            "" | "default" => Ok(Self::Default),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            list => {
                let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                names.map(find).collect::<Result<_, _>>().map(Self::Named)
            }
        }
    }
}

impl Selection {
    /// The selected targets; those of [`Selection::Default`] depend on whether the build is
    /// `optimised`.
    pub fn targets(&self, optimised: bool) -> Vec<&'static Target> {
        let is_default = |target: &&Target| match target.default_in {
            DefaultIn::EveryBuild => true,
            DefaultIn::OptimisedBuilds => optimised,
            DefaultIn::NoBuild => false,
        };
        match self {
            Self::Default => TARGETS.iter().filter(is_default).collect(),
            Self::All => TARGETS.iter().collect(),
            Self::None => Vec::new(),
            Self::Named(targets) => targets.clone(),
        }
    }
}

/// The names of all targets, separated by commas.
pub(crate) fn target_names() -> String {
    TARGETS.each_ref().map(|target| target.name).join(", ")
}

fn find(name: &str) -> Result<&'static Target, Error> {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.ok_or_else(|| Error::UnknownTarget { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, optimised: bool) -> Vec<&'static str> {
        let selection: Selection = text.parse().unwrap();
        selection.targets(optimised).iter().map(|target| target.name).collect()
    }

    #[test]
    fn defaults_depend_on_the_profile() {
        assert_eq!(names("", false), ["gfx1100", "sm_80"]);
        assert_eq!(
            names("default", true),
            ["gfx10-3-generic", "gfx11-generic", "gfx1100", "gfx12-generic", "sm_80"]
        );
        assert_eq!(names("all", false).len(), TARGETS.len());
        assert_eq!(names("none", true), [""; 0]);
    }

    #[test]
    fn lists_keep_their_order_and_ignore_spaces_and_empty_items() {
        assert_eq!(names(" sm_80 , gfx1030,, ", true), ["sm_80", "gfx1030"]);
    }

    #[test]
    fn unknown_names_are_reported_with_the_known_ones() {
        let error = "gfx1100,gfx803".parse::<Selection>().unwrap_err().to_string();
        assert!(error.starts_with("unknown kernel target \"gfx803\""), "{error}");
        assert!(error.contains("gfx9-generic, gfx90a, "), "{error}");
        // Keywords cannot be part of a list.
        assert!("all,gfx1100".parse::<Selection>().is_err());
    }

    #[test]
    fn names_are_distinct() {
        for (index, target) in TARGETS.iter().enumerate() {
            assert_eq!(TARGETS.iter().position(|other| other.name == target.name), Some(index));
        }
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
