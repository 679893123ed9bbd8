//! The findings about AMD's driver on Windows, which brings the runtime of HIP.

use std::env;

use rocmforge::device::probe::PlatformReport;

use super::check::Check;
use super::system::DisplayDriver;

const UPDATE: &str =
    "install AMD's current graphics driver, which brings HIP; nothing else is needed";

/// Returns the findings from the driver up to the runtime. `others_work` is true if a card of
/// another vendor is usable.
pub(super) fn amd(
    drivers: &[DisplayDriver],
    report: &PlatformReport,
    others_work: bool,
) -> Vec<Check> {
    let is_amd = |driver: &&DisplayDriver| driver.device.to_uppercase().contains("VEN_1002");
    let cards: Vec<_> = drivers.iter().filter(is_amd).collect();
    if cards.is_empty() && report.is_absent {
        let what = "no graphics driver of AMD is installed";
        let cure = "nothing to do on a machine without a card: models run on the CPU; else install the driver";
        return if others_work { Vec::new() } else { vec![Check::fail(what, cure)] };
    }
    let mut checks: Vec<_> = cards.iter().map(|driver| driver_of_card(driver)).collect();
    checks.push(runtime(report));
    if let Some(problem) = &report.graph_problem {
        let cure = "run `rf-cli selftest`; if it passes, --graphs on may be faster, and every replay is checked";
        checks.push(Check::warn(format!("captured graphs are off: {problem}"), cure));
    }
    for variable in ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"] {
        if let Ok(value) = env::var(variable)
            && report.devices.len() < cards.len()
        {
            let (listed, all) = (report.devices.len(), cards.len());
            let what = format!("{variable}={value} hides GPUs: {listed} of {all} are listed");
            checks.push(Check::warn(what, format!("unset {variable} if you want them all")));
        }
    }
    let works = !report.devices.is_empty();
    checks.into_iter().map(|check| if works { check.at_most_warn() } else { check }).collect()
}

fn driver_of_card(driver: &DisplayDriver) -> Check {
    Check::ok(format!("{}, driver {}", driver.card.escape_debug(), driver.version.escape_debug()))
}

fn runtime(report: &PlatformReport) -> Check {
    let Some(library) = &report.library else {
        let error = report.error.as_deref().unwrap_or("it was not found");
        return if report.is_absent {
            Check::fail("the driver has no HIP 6 or HIP 7: no amdhip64_7.dll in System32", UPDATE)
        } else {
            Check::fail(format!("HIP does not load: {error}"), UPDATE)
        };
    };
    let what =
        format!("HIP {}, {library}", report.version.as_deref().unwrap_or("of unknown version"));
    match &report.error {
        Some(error) => Check::fail(format!("{what}: {error}"), UPDATE),
        None if report.devices.is_empty() => Check::fail(
            format!("{what}: it lists no GPU"),
            "HIP supports Radeon RX 6000 and later; for such a card install AMD's current graphics driver",
        ),
        None => Check::ok(what),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Level;
    use super::*;

    fn radeon() -> DisplayDriver {
        DisplayDriver {
            card: "AMD Radeon RX 9070".into(),
            version: "32.0.21025.1024".into(),
            device: r"pci\ven_1002&dev_7550".into(),
        }
    }

    #[test]
    fn a_driver_without_hip_is_to_be_updated() {
        let report = PlatformReport { is_absent: true, ..PlatformReport::default() };
        let checks = amd(&[radeon()], &report, false);
        assert_eq!(checks.len(), 2, "{checks:?}");
        assert_eq!(checks[0], Check::ok("AMD Radeon RX 9070, driver 32.0.21025.1024"));
        assert_eq!((checks[1].level, checks[1].cure.as_deref()), (Level::Fail, Some(UPDATE)));
    }

    #[test]
    fn a_machine_without_a_card_of_amd_gets_one_line_or_none() {
        let report = PlatformReport { is_absent: true, ..PlatformReport::default() };
        let other = DisplayDriver { device: r"PCI\VEN_10DE&DEV_2684".into(), ..radeon() };
        assert_eq!(amd(std::slice::from_ref(&other), &report, false).len(), 1);
        assert_eq!(amd(&[other], &report, true), []);
    }
}
