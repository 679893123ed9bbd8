//! The cards of the machine that builds, as targets.

use std::fs;
use std::path::Path;

use crate::Target;
use crate::targets::TARGETS;

/// The folder in which AMD's kernel driver describes its devices, one folder each.
const AMD_NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
/// The folder in which NVIDIA's kernel driver lists its devices, one folder each.
const NVIDIA_GPUS: &str = "/proc/driver/nvidia/gpus";

/// The targets of the cards that the drivers of this machine list; none without a card.
pub(crate) fn targets() -> Vec<&'static Target> {
    let is_nvidia = folders(Path::new(NVIDIA_GPUS)).next().is_some();
    of_cards(&amd_cards(Path::new(AMD_NODES)), is_nvidia)
}

/// The architectures of AMD's devices, such as `gfx1100`.
fn amd_cards(nodes: &Path) -> Vec<String> {
    let properties =
        folders(nodes).filter_map(|node| fs::read_to_string(node.join("properties")).ok());
    properties.filter_map(|properties| gfx(&properties)).collect()
}

fn folders(path: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Reads `gfx_target_version 90010` as `gfx90a`: two decimal digits each for minor and stepping,
/// which are hexadecimal in the name. It is 0 for a CPU.
fn gfx(properties: &str) -> Option<String> {
    let value = properties.lines().find_map(|line| line.strip_prefix("gfx_target_version "))?;
    let version: u32 = value.trim().parse().ok()?;
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    (major > 0).then(|| format!("gfx{major}{minor:x}{stepping:x}"))
}

/// The target of each card: its own, or else the generic one of its family.
fn of_cards(gfx: &[String], is_nvidia: bool) -> Vec<&'static Target> {
    let generic = |gfx: &str| match gfx {
        _ if gfx.starts_with("gfx103") => "gfx10-3-generic",
        _ if gfx.starts_with("gfx11") => "gfx11-generic",
        _ if gfx.starts_with("gfx12") => "gfx12-generic",
        _ => "gfx9-generic",
    };
    let is_of = |target: &Target, gfx: &String| {
        let has_own = TARGETS.iter().any(|target| target.name == gfx);
        target.name == if has_own { gfx } else { generic(gfx) }
    };
    let is_wanted = |target: &&Target| {
        gfx.iter().any(|gfx| is_of(target, gfx)) || is_nvidia && target.name.starts_with("sm_")
    };
    TARGETS.iter().filter(is_wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(gfx: &[&str], is_nvidia: bool) -> Vec<&'static str> {
        let gfx: Vec<String> = gfx.iter().map(|&gfx| gfx.to_owned()).collect();
        of_cards(&gfx, is_nvidia).iter().map(|target| target.name).collect()
    }

    #[test]
    fn a_card_has_its_own_target_or_that_of_its_family() {
        assert_eq!(names(&["gfx1201", "gfx1100", "gfx1100"], false), ["gfx1100", "gfx1201"]);
        assert_eq!(names(&["gfx1032", "gfx1152"], false), ["gfx10-3-generic", "gfx11-generic"]);
        assert_eq!(names(&[], true), ["sm_80", "sm_90", "sm_90a"]);
        assert_eq!(names(&[], false), [""; 0]);
    }

    #[test]
    fn versions_of_the_driver_are_names_of_the_compiler() {
        let gfx = |version: u32| gfx(&format!("simd_count 96\ngfx_target_version {version}\n"));
        for (version, name) in
            [(110_000, "gfx1100"), (90_010, "gfx90a"), (100_300, "gfx1030"), (120_001, "gfx1201")]
        {
            assert_eq!(gfx(version).as_deref(), Some(name));
        }
        assert_eq!(gfx(0), None);
    }

    #[test]
    fn cards_are_found_among_the_nodes_of_the_driver() {
        let nodes = tempfile::tempdir().unwrap();
        for (node, properties) in [
            ("0", "cpu_cores_count 16\ngfx_target_version 0\n"),
            ("1", "simd_count 96\ngfx_target_version 110000\n"),
        ] {
            let folder = nodes.path().join(node);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("properties"), properties).unwrap();
        }
        assert_eq!(amd_cards(nodes.path()), ["gfx1100"]);
        assert_eq!(amd_cards(&nodes.path().join("none")), [""; 0]);
    }
}
