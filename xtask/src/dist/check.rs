//! Checks of a release without its programs, which take minutes to build: a script stands in for
//! them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::command::output_of;
use super::manual::Texts;
use super::release::{Machine, Release, WINDOWS};
use super::staging::{self, Linux};
use super::wheel::{self, Platform};
use super::{archive, licences, manifests, page, rpm, sbom, signature};

/// Answers the arguments that a release calls, and names a symbol version of the C library.
const STAND_IN: &str = "\
#!/bin/sh
# GLIBC_2.28
case \"$1\" in
    -V) echo 'rf-cli stand-in' ;;
    --help) printf 'Runs models.\\n\\nCommands:\\n  run  Answer\\n' ;;
    *) echo \"text of $*\" ;;
esac
";

/// Its answer to `-V`.
const VERSION: &str = "rf-cli stand-in\n";

/// Runs all checks, and returns a line for each.
pub(super) fn all(release: &Release) -> Result<Vec<String>> {
    let base = release.root.join("target/dist-check");
    if base.exists() {
        fs::remove_dir_all(&base).with_context(|| base.display().to_string())?;
    }
    let one = dist(release, &base.join("one"), 1_000_000_000)?;
    let two = dist(release, &base.join("another folder"), 1_700_000_000)?;
    let mut checked = Vec::new();
    for (one, two) in one.iter().zip(&two) {
        let name = one.file_name().unwrap_or_default().to_string_lossy();
        ensure!(fs::read(one)? == fs::read(two)?, "{name} differs between two folders");
        checked.push(format!("{name} is the same in two folders"));
    }
    checked.push(python(&base, &one)?);
    checked.push(installer(release, &base, &one)?);
    checked.push(package_manifests(release, &base)?);
    for target in Machine::ALL.map(Machine::target).into_iter().chain([WINDOWS]) {
        let lines = licences::text(release, target)?.lines().count();
        checked.push(format!("{target}: {lines} lines of licences, with those of the chat page"));
        checked.push(bill(release, target)?);
    }
    Ok(checked)
}

/// Makes the archives with the stand-in, from files of the time `epoch`.
fn dist(release: &Release, dist: &Path, epoch: u64) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(dist)?;
    let program = dist.join("stand-in");
    fs::write(&program, STAND_IN)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    let texts = Texts::of(&program)?;
    let machine = Machine::X86_64;
    let linux = Linux { machine, program: &program, texts: &texts };
    let tarball = staging::tarball(release, dist, &linux)?;
    let debian = staging::debian(release, dist, &linux)?;
    let red_hat = staging::red_hat(release, dist, &linux)?;
    let wheel = wheel::stage(release, dist, Platform::Linux(machine), &program)?;
    let zip = staging::zip(release, dist, &program)?;
    for folder in [&tarball, &debian, &red_hat, &wheel, &zip] {
        licences::check_page(release, folder)?;
        let mut find = Command::new("find");
        find.arg(folder).args(["-exec", "touch", "-h", "-d", &format!("@{epoch}"), "{}", "+"]);
        output_of(&mut find)?;
    }
    let tarballs = archive::tar(release, &tarball)?;
    Ok(vec![
        tarballs.xz,
        tarballs.gz,
        archive::deb(release, &debian)?,
        rpm::pack(release, &red_hat, machine)?,
        archive::wheel(release, &wheel)?,
        archive::zip(release, &zip)?,
    ])
}

/// Installs the wheel, and runs the program by both of its names.
fn python(base: &Path, made: &[PathBuf]) -> Result<String> {
    let wheel = made.iter().find(|path| path.extension().is_some_and(|end| end == "whl"));
    let venv = base.join("venv");
    output_of(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index"]);
    output_of(pip.arg(wheel.context("no wheel")?))?;
    for (name, arguments) in
        [("rf-cli", &["-V"][..]), ("rocmforge", &["-V"]), ("python", &["-m", "rocmforge", "-V"])]
    {
        let answer = output_of(Command::new(venv.join("bin").join(name)).args(arguments))?;
        ensure!(answer == VERSION, "{name} of the wheel says {answer}");
    }
    Ok("the wheel installs rf-cli, rocmforge and the module".to_owned())
}

/// Installs the tarball with its signature, and refuses damaged files.
fn installer(release: &Release, base: &Path, made: &[PathBuf]) -> Result<String> {
    let dist = base.join("one");
    let script = staging::installer(release, &dist)?;
    let checksums = archive::checksums(&dist, made)?;
    let [secret, public] = ["secret.key", "public.key"].map(|name| base.join(name));
    let mut generate = Command::new("minisign");
    generate.args(["-G", "-W", "-s"]).arg(&secret).arg("-p").arg(&public);
    output_of(&mut generate)?;
    let signed = signature::sign(release, &checksums, &secret)?;
    let prefix = base.join("prefix");
    let install = || {
        let mut command = Command::new("sh");
        command.arg(&script).arg("--from").arg(&dist).arg("--prefix").arg(&prefix);
        output_of(command.arg("--public-key").arg(&public))
    };
    install()?;
    let answer = output_of(Command::new(prefix.join("bin/rocmforge")).arg("-V"))?;
    ensure!(answer == VERSION, "the installed program says {answer}");
    for (file, word) in [(&made[0], "checksum"), (&checksums, "signature"), (&signed, "signature")]
    {
        let bytes = fs::read(file)?;
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        fs::write(file, damaged)?;
        let refused = install().err();
        let name = file.display();
        let refused = refused.with_context(|| format!("the installer takes a damaged {name}"))?;
        ensure!(refused.to_string().contains(word), "{name}: the installer says {refused}");
        fs::write(file, bytes)?;
    }
    Ok("install.sh installs the signed tarball, and refuses damaged files".to_owned())
}

fn package_manifests(release: &Release, base: &Path) -> Result<String> {
    let sha256 = "0123456789abcdef".repeat(4);
    let sums = Machine::ALL.map(|machine| (machine, sha256.clone()));
    let mut paths = manifests::windows(release, base, &sha256)?;
    paths.extend(manifests::linux(release, base, &sums)?);
    for path in &paths {
        let text = fs::read_to_string(path)?;
        let name = path.display();
        ensure!(text.contains(&release.version), "{name} does not name the version");
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => {
                let manifest: Value =
                    serde_json::from_str(&text).with_context(|| name.to_string())?;
                let file = &manifest["architecture"]["64bit"];
                ensure!(file["hash"] == *sha256, "{name}: {file}");
            }
            // This subset of YAML is a list of keys and values.
            Some("yaml") => {
                for line in text.lines().filter(|line| !line.starts_with('#')) {
                    let is_entry =
                        line.contains(": ") || line.ends_with(':') || line.starts_with("- ");
                    ensure!(is_entry && !line.contains('\t'), "{name}: no key and value: {line}");
                }
            }
            // Homebrew's formulas are programs in Ruby, which few machines have.
            Some("rb") => ensure!(text.matches(&sha256).count() == 2, "{name}: {text}"),
            _ => {
                output_of(Command::new("bash").arg("-n").arg(path))?;
            }
        }
    }
    Ok(format!("{} manifests for winget, scoop, Homebrew and Arch Linux", paths.len()))
}

fn bill(release: &Release, target: &str) -> Result<String> {
    let bill: Value = serde_json::from_str(&sbom::text(release, target)?)?;
    let components = bill["components"].as_array().context("no components")?;
    for one in release.crates(target)? {
        let (name, version) = (&one.name, &one.version);
        ensure!(one.is_ours || one.sha256.is_some(), "{name} {version} has no checksum");
    }
    for one in page::packages(&release.root)? {
        let is_one = |component: &Value| component["purl"] == *one.purl;
        ensure!(components.iter().any(is_one), "{} is not in the bill of materials", one.name);
    }
    Ok(format!("{target}: a bill of materials of {} components", components.len()))
}
