//! Names of the hardware and of the build that results belong to.

use std::path::Path;
use std::process::Command;

use rf_profile::baseline::{Build, DeviceKind, Hardware};

use crate::Target;

/// Describes this build.
pub(crate) fn build(root: &Path, target: &Target) -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: revision(root),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        features: target.backend().description(),
    }
}

/// The file name of this hardware, such as `intel-xeon-processor-2.50ghz-2-threads`.
pub(crate) fn slug(hardware: &Hardware, device: DeviceKind) -> String {
    let name = hardware.name(device).to_lowercase().replace("(r)", "").replace("(tm)", "");
    let words = name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}

/// The git revision of the checkout, with the suffix `-dirty` if tracked files differ from it;
/// empty without git.
pub fn revision(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = output.status.success().then_some(output.stdout)?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    };
    let Some(revision) = git(&["rev-parse", "--short=10", "HEAD"]) else { return String::new() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_none_or(|files| files.is_empty()) { revision } else { revision + "-dirty" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_hardware() {
        let hardware = Hardware {
            cpu: "Intel(R) Xeon(R) Processor @ 2.50GHz".into(),
            cpu_threads: 2,
            gpu: "AMD Radeon RX 7900 XTX".into(),
            gfx: "gfx1100".into(),
            ..Hardware::default()
        };
        let expected = "intel-xeon-processor-2.50ghz-2-threads";
        assert_eq!(slug(&hardware, DeviceKind::Cpu), expected);
        assert_eq!(slug(&hardware, DeviceKind::Gpu), "amd-radeon-rx-7900-xtx-gfx1100");
    }
}
