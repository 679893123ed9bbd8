//! The processor and the system according to the registry of Windows.

use windows_registry::LOCAL_MACHINE;

/// The name of the first processor; empty if it is unknown.
pub(super) fn cpu_model() -> String {
    let processor = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0";
    text(processor, "ProcessorNameString").trim().to_owned()
}

/// The product and its build, such as `Windows 10 Pro, build 26100`.
pub(super) fn operating_system() -> String {
    let version = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion";
    format!("{}, build {}", text(version, "ProductName"), text(version, "CurrentBuild"))
}

fn text(key: &str, value: &str) -> String {
    LOCAL_MACHINE.open(key).and_then(|key| key.get_string(value)).unwrap_or_default()
}
