//! Tells the program which revision, target and compiler it was built from. Nothing here can fail
//! the build: what cannot be found out is `unknown`.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let revision = git(&["rev-parse", "--short=9", "HEAD"]);
    if revision.is_some() {
        // The first changes when a branch is checked out, the second with every commit on one.
        for file in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", file]) {
                println!("cargo:rerun-if-changed={path}");
            }
        }
    }
    let number = git(&["rev-list", "--count", "HEAD"]);
    set("RF_BUILD_COMMIT", revision.as_deref().unwrap_or("unknown"));
    set("RF_BUILD_NUMBER", number.as_deref().unwrap_or("0"));
    set("RF_BUILD_TARGET", &env::var("TARGET").unwrap_or_else(|_| "unknown".into()));
    set("RF_BUILD_PROFILE", &env::var("PROFILE").unwrap_or_else(|_| "unknown".into()));
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let rustc = first_line(Command::new(rustc).arg("--version"));
    set("RF_BUILD_RUSTC", rustc.as_deref().unwrap_or("rustc unknown"));
}

fn set(name: &str, value: &str) {
    println!("cargo:rustc-env={name}={value}");
}

fn git(arguments: &[&str]) -> Option<String> {
    first_line(Command::new("git").args(arguments))
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}
