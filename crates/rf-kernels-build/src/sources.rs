//! Reads the kernel sources and expands the includes of each translation unit.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// The kernel sources of a directory: translation units `*.hip` and headers in `include/`.
#[derive(Clone, Debug)]
pub struct Sources {
    include: PathBuf,
    units: Vec<Unit>,
}

/// A translation unit: one `.hip` file.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The file name without its extension.
    pub name: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The text of the file and of every header it includes, for compilation without an include
    /// directory.
    pub text: String,
}

impl Sources {
    /// Reads every unit of `directory`, sorted by name.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], or [`Error::Include`] for an include that is not a header of the directory.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let fail = |source| Error::Read { path: directory.to_owned(), source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_some_and(|extension| extension == "hip") {
                paths.push(path);
            }
        }
        paths.sort();
        let include = directory.join("include");
        let units = paths.into_iter().map(|path| read_unit(&include, path));
        Ok(Self { units: units.collect::<Result<_, _>>()?, include })
    }

    /// The translation units, sorted by name.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Removes the units for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&Unit) -> bool) {
        self.units.retain(keep);
    }

    /// The directory of the headers.
    pub(crate) fn include(&self) -> &Path {
        &self.include
    }
}

fn read_unit(include: &Path, path: PathBuf) -> Result<Unit, Error> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut expansion = Expansion { include: include.to_owned(), ..Expansion::default() };
    expansion.append(&path, &format!("{name}.hip"))?;
    Ok(Unit { name, path, text: expansion.text })
}

/// The text of a unit while its includes are expanded. Other preprocessor directives stay.
#[derive(Default)]
struct Expansion {
    include: PathBuf,
    text: String,
    /// Headers included outside of all conditions: they need no second copy.
    complete: HashSet<String>,
    /// Headers being read, outermost first: breaks circular includes.
    open: Vec<String>,
    /// The number of `#if` directives open at the end of the text.
    conditions: usize,
}

impl Expansion {
    fn append(&mut self, path: &Path, name: &str) -> Result<(), Error> {
        let source = fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.to_owned(), source })?;
        writeln!(self.text, "#line 1 \"{name}\"").ok();
        for (number, line) in (1..).zip(source.lines()) {
            let directive = line.trim_start().strip_prefix('#').map(str::trim_start);
            let directive = directive.unwrap_or_default();
            if directive.starts_with("if") {
                self.conditions += 1;
            } else if directive.starts_with("endif") {
                self.conditions = self.conditions.saturating_sub(1);
            }
            if let Some(operand) = directive.strip_prefix("include") {
                self.include(operand).map_err(|error| Error::Include {
                    path: path.to_owned(),
                    line: number,
                    source: Box::new(error),
                })?;
                writeln!(self.text, "#line {} \"{name}\"", number + 1).ok();
            } else if directive.starts_with("pragma once") {
                self.text.push('\n');
            } else {
                self.text.push_str(line);
                self.text.push('\n');
            }
        }
        Ok(())
    }

    fn include(&mut self, operand: &str) -> Result<(), Error> {
        let operand = operand.trim();
        let name = operand.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let Some((name, _)) = name else {
            return Err(Error::ForeignInclude { operand: operand.to_owned() });
        };
        if self.complete.contains(name) || self.open.iter().any(|open| open == name) {
            return Ok(());
        }
        let path = self.include.join(name);
        let guard: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();

        // The guard replaces `#pragma once`: two different conditions may both include a header.
        writeln!(self.text, "#ifndef JOINED_{guard}\n#define JOINED_{guard}").ok();
        self.open.push(name.to_owned());
        let conditions = self.conditions;
        self.append(&path, name)?;
        self.conditions = conditions;
        self.open.pop();
        self.text.push_str("#endif\n");

        // The guard of an enclosing header does not count as a condition: its first copy is read.
        if conditions == 0 {
            self.complete.insert(name.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the only unit of a directory with these files.
    fn read(files: &[(&str, &str)]) -> Result<Unit, Error> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Sources::read(directory.path()).map(|sources| sources.units()[0].clone())
    }

    #[test]
    fn units_are_sorted_and_other_files_ignored() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["rows.hip", "embed.hip", "README.md"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let sources = Sources::read(directory.path()).unwrap();
        let names: Vec<_> = sources.units().iter().map(|unit| &*unit.name).collect();
        assert_eq!(names, ["embed", "rows"]);
    }

    #[test]
    fn headers_are_expanded_once_with_line_numbers() {
        let unit = read(&[
            ("u.hip", "#include \"rf/a.h\"\n#include \"rf/a.h\"\nint u;\n"),
            ("include/rf/a.h", "#pragma once\nint a;\n"),
        ])
        .unwrap();
        let expected = "#line 1 \"u.hip\"\n\
                        #ifndef JOINED_rf_a_h\n#define JOINED_rf_a_h\n\
                        #line 1 \"rf/a.h\"\n\nint a;\n#endif\n\
                        #line 2 \"u.hip\"\n#line 3 \"u.hip\"\nint u;\n";
        assert_eq!(unit.text, expected);
    }

    #[test]
    fn a_header_under_a_condition_is_expanded_again_behind_a_guard() {
        let unit = read(&[
            ("u.hip", "#if A\n#include \"a.h\"\n#else\n#include \"a.h\"\n#endif\n"),
            ("include/a.h", "int a;\n"),
        ])
        .unwrap();
        assert_eq!(unit.text.matches("int a;").count(), 2);
        assert_eq!(unit.text.matches("#ifndef JOINED_a_h").count(), 2);
    }

    #[test]
    fn circular_includes_end() {
        let unit = read(&[
            ("u.hip", "#include \"a.h\"\n"),
            ("include/a.h", "#include \"b.h\"\nint a;\n"),
            ("include/b.h", "#include \"a.h\"\nint b;\n"),
        ])
        .unwrap();
        assert_eq!(unit.text.matches("int a;").count(), 1);
        assert_eq!(unit.text.matches("int b;").count(), 1);
    }

    #[test]
    fn includes_that_cannot_be_resolved_are_errors_with_their_line() {
        let error = read(&[("u.hip", "\n#include <hip/hip_runtime.h>\n")]).unwrap_err();
        let Error::Include { line: 2, source, .. } = error else { panic!("{error}") };
        assert!(matches!(*source, Error::ForeignInclude { .. }), "{source}");

        let error = read(&[("u.hip", "#include \"missing.h\"\n")]).unwrap_err();
        let Error::Include { line: 1, source, .. } = error else { panic!("{error}") };
        assert!(matches!(*source, Error::Read { .. }), "{source}");
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let error = Sources::read(Path::new("/nonexistent")).unwrap_err();
        assert!(matches!(error, Error::Read { .. }), "{error}");
    }
}
