//! Compilation and caching, with a script instead of clang.

#![expect(clippy::unwrap_used, reason = "a failure of the test")]

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rf_kernels_build::{Cache, Compiler, Error, Selection, Sources, compile_all};
use tempfile::TempDir;

/// A directory with sources and a cache.
struct Project {
    directory: TempDir,
    compiler: Compiler,
}

/// Unit, target, warnings, and whether the compiler ran.
type Outcome = (String, &'static str, String, bool);

impl Project {
    fn new(units: &[(&str, &str)]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-clang");
        let project = Self {
            directory: tempfile::tempdir().unwrap(),
            compiler: Compiler::new(script).unwrap(),
        };
        for (name, text) in units {
            project.write(name, text);
        }
        project
    }

    fn write(&self, unit: &str, text: &str) {
        fs::write(self.directory.path().join(unit).with_extension("hip"), text).unwrap();
    }

    fn build(&self, targets: &str) -> Result<Vec<Outcome>, Error> {
        let sources = Sources::read(self.directory.path())?;
        let selection: Selection = targets.parse()?;
        let targets = self.compiler.supported_targets(&selection)?.targets;
        let objects = compile_all(&self.compiler, &self.cache(), &sources, &targets, 3)?;
        for object in &objects {
            assert_eq!(fs::read(&object.path).unwrap(), fs::read(&object.unit.path).unwrap());
        }
        let outcome = |object: &rf_kernels_build::ObjectFile<'_>| {
            let compiled = object.compile_time.is_some();
            (object.unit.name.clone(), object.target.name, object.warnings.clone(), compiled)
        };
        Ok(objects.iter().map(outcome).collect())
    }

    fn cache(&self) -> Cache {
        Cache::open(self.directory.path()).unwrap()
    }

    fn cached_files(&self) -> Vec<fs::DirEntry> {
        let directory = self.directory.path().join("rocmforge-kernels");
        fs::read_dir(directory).unwrap().map(Result::unwrap).collect()
    }
}

fn outcome(unit: &str, target: &'static str, warnings: &str, compiled: bool) -> Outcome {
    (unit.to_owned(), target, warnings.to_owned(), compiled)
}

#[test]
fn every_unit_is_compiled_once_for_every_target() {
    let project = Project::new(&[("rows", "warn"), ("embed", "plain")]);
    for compiled in [true, false] {
        let expected = [
            outcome("embed", "gfx1100", "", compiled),
            outcome("rows", "gfx1100", "warning: warn\n", compiled),
            outcome("embed", "sm_80", "", compiled),
            outcome("rows", "sm_80", "warning: warn\n", compiled),
        ];
        assert_eq!(project.build("gfx1100,sm_80").unwrap(), expected);
    }
}

#[test]
fn only_changed_units_are_compiled_again() {
    let project = Project::new(&[("rows", "old"), ("embed", "old")]);
    project.build("gfx1100").unwrap();
    project.write("rows", "new");
    let expected = [outcome("embed", "gfx1100", "", false), outcome("rows", "gfx1100", "", true)];
    assert_eq!(project.build("gfx1100").unwrap(), expected);
}

#[test]
fn a_source_that_does_not_compile_is_an_error_and_leaves_no_file() {
    let project = Project::new(&[("rows", "fail")]);
    let error = project.build("gfx1100").unwrap_err();
    let Error::Compile { unit, target, log } = error else { panic!("{error}") };
    assert_eq!((&*unit, target, &*log), ("rows", "gfx1100", "error: the source fails\n"));
    assert!(project.cached_files().is_empty());
}

#[test]
fn unsupported_targets_are_errors_only_where_named() {
    let project = Project::new(&[]);
    let error = project.build("gfx942").unwrap_err();
    assert!(matches!(&error, Error::UnsupportedTarget { target: "gfx942", .. }), "{error}");
    let all = project.compiler.supported_targets(&Selection::All).unwrap();
    let unsupported: Vec<_> =
        all.unsupported.iter().map(|one| (one.target.name, &*one.message)).collect();
    assert_eq!(unsupported, [("gfx942", "error: unknown target gfx942")]);
    assert!(all.targets.iter().any(|target| target.name == "gfx1100"));
}

#[test]
fn pruning_removes_only_objects_that_no_build_uses() {
    let project = Project::new(&[("rows", "text"), ("embed", "text")]);
    project.build("gfx1100").unwrap();
    let old = SystemTime::now() - Duration::from_hours(4 * 24);
    for file in project.cached_files() {
        fs::File::options().append(true).open(file.path()).unwrap().set_modified(old).unwrap();
    }
    fs::remove_file(project.directory.path().join("rows.hip")).unwrap();
    project.build("gfx1100").unwrap();
    project.cache().prune();
    let names = project.cached_files();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        assert!(name.file_name().to_str().unwrap().starts_with("embed-gfx1100-"), "{name:?}");
    }
}

#[test]
fn builds_in_one_target_directory_share_the_cache() {
    let project = Project::new(&[("rows", "text")]);
    fs::write(project.directory.path().join("CACHEDIR.TAG"), "").unwrap();
    let inside = project.directory.path().join("release/build/rf-kernels/out");
    fs::create_dir_all(&inside).unwrap();
    Cache::open(&inside).unwrap();
    assert!(project.directory.path().join("rocmforge-kernels").is_dir());
}

#[test]
fn machine_code_does_not_depend_on_the_folder_of_its_source() {
    let Ok(compiler) = Compiler::find() else {
        rf_testing::skip!("clang 19 or newer is not installed");
        return;
    };
    let selection: Selection = "gfx1100,gfx11-generic,sm_80".parse().unwrap();
    let Ok(supported) = compiler.supported_targets(&selection) else {
        rf_testing::skip!("clang has no linker for AMD's targets");
        return;
    };
    let kernel = "extern \"C\" __attribute__((global)) void add(int *x) { *x += 1; }\n";
    let [one, other] = ["one", "another folder"].map(|name| {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("add.hip"), kernel).unwrap();
        let sources = Sources::read(&folder).unwrap();
        let cache = Cache::open(&folder).unwrap();
        let objects = compile_all(&compiler, &cache, &sources, &supported.targets, 1).unwrap();
        objects.iter().map(|object| fs::read(&object.path).unwrap()).collect::<Vec<_>>()
    });
    assert!(!one.is_empty());
    assert!(one == other, "an object contains the path of its source");
}
