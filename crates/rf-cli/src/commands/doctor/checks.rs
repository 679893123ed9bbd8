//! The findings about drivers, runtimes and GPUs, with their cures.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use rf_kernels::objects::{self, CodeOrigin};
use rocmforge::device::probe::{DeviceReport, PlatformReport, VISIBLE_DEVICES};

use super::check::Check;
use super::overrides::{self, Code, Situation};
use super::system::{DeviceFile, FileAccess, System, rocm_version};
use super::windows;

/// Results of running kernels, by the number of the GPU.
pub(super) type KernelResults = Vec<(usize, Result<(), String>)>;

const CONTAINER: &str = "start the container with --device /dev/kfd --device /dev/dri";

/// Returns the findings of every check, from the drivers up to the GPUs.
pub(super) fn all(
    system: &System,
    reports: &[PlatformReport],
    tried: &KernelResults,
    alone: &[(usize, String)],
) -> Vec<Check> {
    let mut checks = vec![program()];
    let find = |platform: &str| reports.iter().find(|report| report.platform == platform);
    let others_work = |platform: &str| {
        let mut others = reports.iter().filter(|report| report.platform != platform);
        others.any(|report| report.devices.iter().any(|device| device.usable))
    };
    if let (Some(report), Some(drivers)) = (find("AMD"), &system.display_drivers) {
        checks.extend(windows::amd(drivers, report, others_work("AMD")));
    } else if let Some(report) = find("AMD") {
        let is_wanted = system.amd_cards > 0 || system.kfd.is_some() || !report.is_absent;
        if is_wanted {
            amd(system, report, alone, &mut checks);
        } else if !others_work("AMD") {
            checks.push(no_card(env::var_os("ROCFORGE_HIP_LIBRARY")));
        }
    }
    if let Some(report) = find("NVIDIA")
        && (system.nvidia_cards > 0 || !report.is_absent)
    {
        nvidia(system, report, &mut checks);
    }
    for device in reports.iter().flat_map(|report| &report.devices) {
        let verdict = tried.iter().find(|(number, _)| *number == device.number);
        checks.push(gpu(device, verdict.map(|(_, verdict)| verdict)));
    }
    checks
}

/// The embedded kernels.
fn program() -> Check {
    let targets: Vec<_> = objects::embedded_targets().collect();
    let note = objects::build_note();
    if targets.is_empty() {
        return Check::warn(
            format!("this program has no embedded kernels: {note}"),
            "install a released program, or build it with clang 19 and lld 19 installed (with ROCm's libhiprtc, \
             kernels are compiled on first use)",
        );
    }
    Check::ok(format!("kernels for {} ({note})", targets.join(", ")))
}

fn no_card(library: Option<OsString>) -> Check {
    let what = "no AMD GPU is on the PCI bus, and no ROCm is installed";
    match library {
        Some(path) => Check::fail(
            format!("{what}: ROCFORGE_HIP_LIBRARY={} does not exist", path.display()),
            "check the path, or unset the variable",
        ),
        None => {
            Check::fail(what, "nothing to do on a machine without a card: models run on the CPU")
        }
    }
}

/// The findings about AMD. `alone` are the GPUs that a driver lists alone, if it does not list all.
fn amd(
    system: &System,
    report: &PlatformReport,
    alone: &[(usize, String)],
    checks: &mut Vec<Check>,
) {
    // If the GPUs work, problems are only warnings.
    let works = !report.devices.is_empty();
    let mut push = |check: Check| checks.push(if works { check.at_most_warn() } else { check });
    if !system.is_wsl {
        push(kernel_driver(system));
        push(interface(system, system.kfd.as_ref(), "/dev/kfd"));
        if system.render_nodes.is_empty() {
            push(interface(system, None, "/dev/dri/renderD*"));
        }
        for node in &system.render_nodes {
            push(interface(system, Some(node), ""));
        }
        system.machine.checks(system.amdgpu_version.is_some()).into_iter().for_each(&mut push);
    }
    push(amd_runtime(system, report, alone));
    if let Some(problem) = &report.graph_problem {
        let cure = "install another version of ROCm; until then --graphs on uses them, and every replay is checked";
        push(Check::warn(format!("captured graphs are off: {problem}"), cure));
    }
    if let Some(version) = &report.compiler {
        push(Check::ok(format!(
            "libhiprtc {version}, which compiles kernels that are not embedded"
        )));
    }
    for variable in ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"] {
        if let Ok(value) = env::var(variable)
            && report.devices.len() < system.amd_cards
        {
            let what = format!(
                "{variable}={value} hides GPUs: {} of {} are listed",
                report.devices.len(),
                system.amd_cards
            );
            push(Check::warn(what, format!("unset {variable} if you want them all")));
        }
    }
    let value = env::var("HSA_OVERRIDE_GFX_VERSION").ok();
    let listed: Vec<_> = report.devices.iter().map(|device| device.arch.clone()).collect();
    // With the variable, HIP lists the overridden architectures.
    let cards = if system.archs.is_empty() && value.is_none() { &listed } else { &system.archs };
    let hip = report.version.as_deref().and_then(major_minor);
    let (value, has_compiler) = (value.as_deref(), report.compiler.is_some());
    let situation = Situation { value, cards, hip, has_compiler, code_for: &code_for };
    overrides::check(&situation).into_iter().for_each(push);
}

fn kernel_driver(system: &System) -> Check {
    if !system.has_amdgpu {
        return Check::fail(
            "AMD's kernel driver amdgpu is not loaded",
            "run sudo modprobe amdgpu (in a container: on the host), and check sudo dmesg if that fails",
        );
    }
    let version = system
        .amdgpu_version
        .as_ref()
        .map_or_else(|| "the kernel's own".to_owned(), |version| format!("version {version}"));
    Check::ok(format!("kernel driver amdgpu ({version})"))
}

/// A device file that ROCm opens.
fn interface(system: &System, node: Option<&DeviceFile>, name: &str) -> Check {
    let Some(node) = node else {
        let cure = if system.is_container {
            CONTAINER
        } else {
            "load the kernel driver amdgpu, which creates it, or enable the card in the firmware settings"
        };
        return Check::fail(format!("{name} does not exist"), cure);
    };
    let path = node.path.display();
    match &node.access {
        FileAccess::Allowed => Check::ok(format!("{path} can be opened")),
        FileAccess::Denied { group } => {
            let group = group.as_deref().filter(|group| *group != "root").unwrap_or("render,video");
            Check::fail(
                format!("this user has no access to {path}"),
                if system.is_container {
                    format!("start the container with --group-add {group}")
                } else {
                    format!("sudo usermod -aG {group} $USER, then log out and in again")
                },
            )
        }
        FileAccess::Failed(error) => {
            Check::fail(format!("{path} cannot be opened: {error}"), "check sudo dmesg")
        }
    }
}

fn amd_runtime(system: &System, report: &PlatformReport, alone: &[(usize, String)]) -> Check {
    let Some(library) = &report.library else {
        let error = report.error.as_deref().unwrap_or("it was not found");
        return if report.is_absent {
            Check::fail(
                "ROCm's libamdhip64 is not installed",
                format!(
                    "{}; if it is not below /opt/rocm, set ROCM_PATH",
                    system.machine.install()
                ),
            )
        } else {
            let cure = match alone.first() {
                Some((number, name)) => format!(
                    "export {VISIBLE_DEVICES}={number}, with which it lists {}; check sudo dmesg",
                    name.escape_debug()
                ),
                None => "install ROCm again, and check sudo dmesg".to_owned(),
            };
            Check::fail(format!("ROCm's runtime does not load: {error}"), cure)
        };
    };
    let version = report.version.as_deref().unwrap_or("of unknown version");
    let rocm = rocm_version(Path::new(library));
    let rocm = rocm.map(|version| format!(", ROCm {version}")).unwrap_or_default();
    let what = format!("HIP {version}{rocm}, {library}");
    if let Some(error) = &report.error {
        return Check::fail(
            format!("{what}: {error}"),
            "see the lines above, and check sudo dmesg",
        );
    }
    if report.devices.is_empty() && system.is_wsl {
        return Check::fail(
            format!("{what}: it lists no GPU"),
            "WSL needs librocdxg and AMD's current driver on Windows, and export HSA_ENABLE_DXG_DETECTION=1",
        );
    }
    if report.devices.is_empty() {
        return Check::fail(
            format!("{what}: it lists no GPU"),
            "see the lines above, and check with `rocminfo` of ROCm whether the card is supported",
        );
    }
    match report.version.as_deref().and_then(major_minor) {
        Some(version) if version < (6, 0) => {
            Check::warn(what, "this version is not supported: install ROCm 6.4 or newer")
        }
        _ => Check::ok(what),
    }
}

fn nvidia(system: &System, report: &PlatformReport, checks: &mut Vec<Check>) {
    if let Some(version) = &system.nvidia_version {
        checks.push(Check::ok(format!("kernel driver {version}")));
    }
    let Some(library) = &report.library else {
        let error = report.error.as_deref().unwrap_or("it was not found");
        checks.push(Check::warn(
            format!("NVIDIA's libcuda does not load: {error}"),
            "install NVIDIA's driver",
        ));
        return;
    };
    let what = format!(
        "CUDA {}, {library}",
        report.driver_version.as_deref().unwrap_or("of unknown version")
    );
    checks.push(match &report.error {
        Some(error) => Check::warn(format!("{what}: {error}"), "check with `nvidia-smi`"),
        None => Check::ok(what),
    });
}

/// A GPU that a runtime lists, and the result of its kernels.
fn gpu(device: &DeviceReport, verdict: Option<&Result<(), String>>) -> Check {
    let DeviceReport { number, name, arch, .. } = device;
    let name = name.escape_debug();
    let gpu = format!("GPU {number}, {name} ({arch})");
    let code = device.code.as_deref().unwrap_or_default();
    match (&device.problem, verdict) {
        (Some(problem), _) => {
            Check::warn(format!("{gpu}: {problem}"), "see ROCFORGE_KERNEL_TARGETS in docs/gpu.md")
        }
        (None, Some(Err(error))) => Check::fail(
            format!("{gpu} cannot run kernels: {error}"),
            if cfg!(windows) {
                "update the graphics driver"
            } else {
                "check sudo dmesg; update the driver and ROCm"
            },
        ),
        (None, Some(Ok(()))) => Check::ok(format!(
            "{gpu} runs kernels (code for {code}), with the same results as the CPU"
        )),
        (None, None) => Check::ok(format!("{gpu} uses code for {code}")),
    }
}

fn code_for(arch: &str) -> Code {
    match objects::choose(arch) {
        Ok(CodeOrigin::Generic { .. }) => Code::Family,
        Ok(_) => Code::Own,
        Err(_) => Code::None,
    }
}

/// Parses the first two numbers of `6.4.43482`.
fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::super::check::Level;
    use super::*;

    /// A machine with an AMD card and a working kernel driver.
    fn system() -> System {
        System {
            amd_cards: 1,
            has_amdgpu: true,
            kfd: Some(DeviceFile { path: "/dev/kfd".into(), access: FileAccess::Allowed }),
            render_nodes: vec![DeviceFile {
                path: "/dev/dri/renderD128".into(),
                access: FileAccess::Allowed,
            }],
            ..System::default()
        }
    }

    fn absent() -> PlatformReport {
        PlatformReport { platform: "AMD".into(), is_absent: true, ..PlatformReport::default() }
    }

    fn failures(system: &System, report: PlatformReport) -> Vec<Check> {
        let alone = if report.is_broken { vec![(1, "Radeon".to_owned())] } else { Vec::new() };
        let checks = all(system, &[report], &Vec::new(), &alone);
        checks.into_iter().filter(|check| check.level == Level::Fail).collect()
    }

    #[test]
    fn a_missing_rocm_is_named_where_there_is_a_card() {
        let failures = failures(&system(), absent());
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].cure.as_ref().unwrap().contains("amdrocm-runtime"), "{failures:?}");
    }

    #[test]
    fn a_device_file_without_access_names_its_group() {
        let mut system = system();
        let denied = FileAccess::Denied { group: Some("render".into()) };
        system.kfd = Some(DeviceFile { path: "/dev/kfd".into(), access: denied });
        let failures = failures(&system, absent());
        let cure = failures[0].cure.as_ref().unwrap();
        assert!(cure.starts_with("sudo usermod -aG render $USER"), "{failures:?}");
    }

    #[test]
    fn device_files_missing_in_a_container_are_passed_with_flags() {
        let system = System { amd_cards: 1, is_container: true, ..System::default() };
        let failures = failures(&system, absent());
        let handed_in = failures.iter().filter(|check| check.cure.as_deref() == Some(CONTAINER));
        assert_eq!(handed_in.count(), 2, "{failures:?}");
    }

    #[test]
    fn a_driver_that_crashes_is_a_failure_with_its_signal() {
        let error = "the driver ended the process that examines it (signal: 11 (SIGSEGV))";
        let report = PlatformReport {
            platform: "AMD".into(),
            error: Some(error.into()),
            is_broken: true,
            ..PlatformReport::default()
        };
        let failures = failures(&system(), report);
        assert!(failures[0].what.contains("SIGSEGV"), "{failures:?}");
        // The driver works with one of the GPUs.
        let cure = failures[0].cure.as_ref().unwrap();
        assert!(cure.starts_with(&format!("export {VISIBLE_DEVICES}=1")), "{cure}");
    }

    #[test]
    fn graphs_that_a_version_of_hip_replays_wrongly_are_named() {
        let checks = |graph_problem: Option<&str>| {
            let report = PlatformReport {
                platform: "AMD".into(),
                library: Some("libamdhip64.so.7".into()),
                graph_problem: graph_problem.map(str::to_owned),
                ..PlatformReport::default()
            };
            let checks = all(&system(), &[report], &Vec::new(), &[]);
            checks.into_iter().filter(|check| check.what.contains("graphs are off")).count()
        };
        assert_eq!((checks(Some("stale data")), checks(None)), (1, 0));
    }

    #[test]
    fn without_a_card_and_without_rocm_one_line_says_so() {
        let failures = failures(&System::default(), absent());
        assert_eq!(failures.len(), 1, "{failures:?}");
    }
}
