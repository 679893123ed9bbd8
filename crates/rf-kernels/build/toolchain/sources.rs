//! Reads the kernel sources and joins each translation unit with its headers.

use std::{
    collections::HashSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// A translation unit: one `kernels/*.hip` file.
pub(crate) struct Unit {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The unit and every header it includes in one text, for compilation where no include folder is.
    pub(crate) text: String,
}

/// The folder that quoted includes are relative to.
pub(crate) fn include_folder(kernels: &Path) -> PathBuf {
    kernels.join("include")
}

/// Every unit of the `kernels` folder, by name. None when there is no such folder.
///
/// # Errors
///
/// A file that cannot be read, or an include that is not one of the project's headers.
pub(crate) fn read_units(kernels: &Path) -> Result<Vec<Unit>, String> {
    let Ok(entries) = fs::read_dir(kernels) else {
        return Ok(Vec::new());
    };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "hip"))
        .collect();
    paths.sort();
    paths.into_iter().map(|path| read_unit(kernels, path)).collect()
}

fn read_unit(kernels: &Path, path: PathBuf) -> Result<Unit, String> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut joined = Joined { include: include_folder(kernels), ..Joined::default() };
    joined.append(&path, &format!("{name}.hip"))?;
    Ok(Unit { name, path, text: joined.text })
}

/// Does the preprocessor's includes and nothing else of it.
#[derive(Default)]
struct Joined {
    include: PathBuf,
    text: String,
    /// Headers that stand in the text whatever the conditions: need no second copy.
    complete: HashSet<String>,
    /// Headers being read, outermost first: a circle would not end.
    open: Vec<String>,
    /// How many `#if` the end of the text is inside of.
    conditions: usize,
}

impl Joined {
    fn append(&mut self, path: &Path, name: &str) -> Result<(), String> {
        let source =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
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
                self.include(operand)
                    .map_err(|why| format!("{}:{number}: {why}", path.display()))?;
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

    fn include(&mut self, operand: &str) -> Result<(), String> {
        let name = operand.trim().strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let Some((name, _)) = name else {
            return Err(format!(
                "include of {}: kernels include their own headers only, in quotes",
                operand.trim()
            ));
        };
        if self.complete.contains(name) || self.open.iter().any(|open| open == name) {
            return Ok(());
        }
        let path = self.include.join(name);
        let guard: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();

        // The guard takes the place of `#pragma once` for a header that conditions admit twice.
        writeln!(self.text, "#ifndef JOINED_{guard}\n#define JOINED_{guard}").ok();
        self.open.push(name.to_owned());
        let conditions = self.conditions;
        self.append(&path, name)?;
        self.conditions = conditions;
        self.open.pop();
        self.text.push_str("#endif\n");

        // Inside of another header the guard of that one is no condition: it holds at the first copy.
        if conditions == 0 {
            self.complete.insert(name.to_owned());
        }
        Ok(())
    }
}
