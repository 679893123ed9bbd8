//! Command lines of AMD's profilers.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::request::ProfileRequest;
use super::tool::Tool;
use crate::Error;

/// The destination of a tool's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// A folder for this run only.
    pub folder: PathBuf,
    /// The common part of the file names.
    pub name: String,
}

/// The command line of a tool and its input file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invocation {
    /// The tool.
    pub tool: Tool,
    options: Vec<ToolOption>,
    /// The subcommand before the options.
    subcommand: Option<&'static str>,
    /// True if `--` separates the options from the program.
    separator: bool,
    /// The path and the text of a file to write before the run.
    pub input: Option<(PathBuf, String)>,
    program: Vec<OsString>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ToolOption {
    flag: &'static str,
    values: Vec<OsString>,
    /// True if an option that the tool lacks is left out.
    optional: bool,
}

impl Invocation {
    /// Creates the command line with which `tool` runs `program` and records the requested data.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the tool does not support the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::tools::{Invocation, ToolOutput, ProfileRequest, Tool};
    ///
    /// let output = ToolOutput { folder: "out".into(), name: "run".into() };
    /// let program = ["rf-cli".into(), "run".into()];
    /// let line = Invocation::new(Tool::Rocprofv3, &ProfileRequest::kernels(), &output, &program)?;
    /// assert_eq!(
    ///     line.to_string(),
    ///     "rocprofv3 --kernel-trace --output-format csv -d out -o run -- rf-cli run"
    /// );
    /// # Ok::<(), rf_profile::Error>(())
    /// ```
    pub fn new(
        tool: Tool,
        request: &ProfileRequest,
        output: &ToolOutput,
        program: &[OsString],
    ) -> Result<Self, Error> {
        let mut line = Self {
            tool,
            options: Vec::new(),
            subcommand: None,
            separator: false,
            input: None,
            program: program.to_vec(),
        };
        if program.is_empty() {
            return Err(line.unsupported("the program to run is missing"));
        }
        match tool {
            Tool::Rocprofv3 => line.rocprofv3(request, output),
            Tool::Rocprofv2 => line.rocprofv2(request, output)?,
            Tool::Rocprof => line.rocprof(request, output)?,
            Tool::RocprofCompute | Tool::Omniperf => line.compute(request, output)?,
            Tool::RocprofSys | Tool::Omnitrace => line.systems(request, output)?,
            Tool::Perf | Tool::AmdSmi | Tool::RocmSmi => {
                return Err(line.unsupported("it does not record kernels"));
            }
        }
        Ok(line)
    }

    fn rocprofv3(&mut self, request: &ProfileRequest, output: &ToolOutput) {
        self.flag_if(request.kernels, "--kernel-trace");
        self.flag_if(request.api, "--hip-trace");
        self.flag_if(request.copies, "--memory-copy-trace");
        // The option exists since ROCm 6.4.
        if request.allocations {
            self.optional_flag("--memory-allocation-trace");
        }
        match &request.passes[..] {
            [] => {}
            [pass] => self.option("--pmc", pass.iter().map(OsString::from)),
            passes => self.input_file("-i", passes, None, output),
        }
        if let Some(filter) = &request.kernel_filter {
            self.option("--kernel-include-regex", [filter.into()]);
        }
        // The default is SQLite since version 1.0.
        self.option("--output-format", ["csv".into()]);
        self.option("-d", [output.folder.clone().into()]);
        self.option("-o", [output.name.clone().into()]);
        self.separator = true;
    }

    fn rocprofv2(&mut self, request: &ProfileRequest, output: &ToolOutput) -> Result<(), Error> {
        self.reject_if(request.allocations, "it does not record allocations")?;
        self.reject_if(request.kernel_filter.is_some(), "it cannot select kernels by name")?;
        self.flag_if(request.kernels, "--kernel-trace");
        // The trace of HIP includes copies.
        self.flag_if(request.api || request.copies, "--hip-trace");
        if !request.passes.is_empty() {
            self.input_file("-i", &request.passes, None, output);
        }
        self.option("--plugin", ["file".into()]);
        self.option("-d", [output.folder.clone().into()]);
        self.option("-o", [output.name.clone().into()]);
        Ok(())
    }

    fn rocprof(&mut self, request: &ProfileRequest, output: &ToolOutput) -> Result<(), Error> {
        self.reject_if(request.allocations, "it does not record allocations")?;
        let traces = request.api || request.copies;
        let counts = !request.passes.is_empty();
        self.reject_if(traces && counts, "it supports counters or traces, not both in one run")?;
        let filter = request.kernel_filter.as_deref();
        self.reject_if(
            filter.is_some_and(|filter| filter.chars().any(|c| !c.is_alphanumeric() && c != '_')),
            "it selects kernels by a part of their names, not by expressions",
        )?;
        if counts || filter.is_some() {
            self.input_file("-i", &request.passes, filter, output);
        }
        self.flag_if(request.kernels && !counts, "--stats");
        self.flag_if(traces, "--hip-trace");
        // Without this option, results.csv has no times.
        self.option("--timestamp", ["on".into()]);
        // The value is a file name, which must end in .csv.
        self.option("-o", [output.folder.join(format!("{}.csv", output.name)).into()]);
        Ok(())
    }

    fn compute(&mut self, request: &ProfileRequest, output: &ToolOutput) -> Result<(), Error> {
        let traces = request.api || request.copies || request.allocations;
        self.reject_if(traces, "it records kernels, but not calls, copies or allocations")?;
        self.subcommand = Some("profile");
        self.option("-n", [output.name.clone().into()]);
        self.option("-p", [output.folder.clone().into()]);
        // The roofline benchmark would take another minute.
        self.flag("--no-roof");
        self.separator = true;
        // The tool takes hardware blocks, not counters, and plans its own passes.
        let mut blocks: Vec<&str> = Vec::new();
        for counter in request.passes.iter().flatten() {
            let block = match counter.split('_').next().unwrap_or_default() {
                "SQ" | "SQC" | "VALUBusy" | "SALUBusy" | "VALUUtilization" | "OccupancyPercent" => {
                    "SQ"
                }
                "TCC" | "FETCH" | "WRITE" => "TCC",
                "TCP" => "TCP",
                "TA" => "TA",
                _ => continue,
            };
            if !blocks.contains(&block) {
                blocks.push(block);
            }
        }
        if !blocks.is_empty() {
            self.option("-b", blocks.into_iter().map(OsString::from));
        }
        if let Some(filter) = &request.kernel_filter {
            self.option("-k", [filter.into()]);
        }
        Ok(())
    }

    fn systems(&mut self, request: &ProfileRequest, output: &ToolOutput) -> Result<(), Error> {
        self.reject_if(
            !request.passes.is_empty(),
            "it is supported for timelines only: use rocprofv3 for counters",
        )?;
        self.reject_if(request.kernel_filter.is_some(), "it cannot select kernels by name")?;
        self.flag("--trace");
        self.flag("--flat-profile");
        self.option("--profile-format", ["json".into(), "text".into()]);
        self.option("-o", [output.folder.clone().into(), output.name.clone().into()]);
        self.separator = true;
        Ok(())
    }

    /// The arguments for a tool with this `--help` text. Optional flags that it lacks are left out.
    ///
    /// # Errors
    ///
    /// [`Error::FlagMissing`] if the tool lacks any other flag.
    pub fn arguments(&self, help: &str) -> Result<Vec<OsString>, Error> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let known: Vec<&str> = help.split(|c| !is_part(c)).collect();
        let mut arguments: Vec<OsString> = self.subcommand.iter().map(OsString::from).collect();
        for ToolOption { flag, values, optional } in &self.options {
            if !known.contains(flag) {
                if *optional {
                    tracing::info!(
                        tool = self.tool.program(),
                        "running without {flag}, which the installed version lacks"
                    );
                    continue;
                }
                let (tool, flag) = (self.tool.program(), (*flag).to_owned());
                return Err(Error::FlagMissing { tool, flag });
            }
            arguments.push(flag.into());
            arguments.extend(values.iter().cloned());
        }
        self.finish(&mut arguments);
        Ok(arguments)
    }

    /// The flags that the command line may contain.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|option| option.flag)
    }

    /// The arguments that print the tool's options.
    pub(super) fn help_arguments(&self) -> Vec<&'static str> {
        self.subcommand.into_iter().chain(["--help"]).collect()
    }

    fn finish(&self, arguments: &mut Vec<OsString>) {
        if self.separator {
            arguments.push("--".into());
        }
        arguments.extend(self.program.iter().cloned());
    }

    fn flag(&mut self, flag: &'static str) {
        self.option(flag, []);
    }

    fn flag_if(&mut self, enabled: bool, flag: &'static str) {
        if enabled {
            self.flag(flag);
        }
    }

    fn optional_flag(&mut self, flag: &'static str) {
        self.options.push(ToolOption { flag, values: Vec::new(), optional: true });
    }

    fn option(&mut self, flag: &'static str, values: impl IntoIterator<Item = OsString>) {
        let values = values.into_iter().collect();
        self.options.push(ToolOption { flag, values, optional: false });
    }

    /// Adds an input file with one line of counters for each pass.
    fn input_file(
        &mut self,
        flag: &'static str,
        passes: &[Vec<String>],
        kernel: Option<&str>,
        output: &ToolOutput,
    ) {
        let mut text = String::new();
        for pass in passes {
            // Writing into a String cannot fail.
            _ = writeln!(text, "pmc: {}", pass.join(" "));
        }
        if let Some(kernel) = kernel {
            _ = writeln!(text, "kernel: {kernel}");
        }
        let path = output.folder.join("counters.txt");
        self.option(flag, [Path::as_os_str(&path).to_owned()]);
        self.input = Some((path, text));
    }

    fn reject_if(&self, unsupported: bool, reason: &str) -> Result<(), Error> {
        if unsupported { Err(self.unsupported(reason)) } else { Ok(()) }
    }

    fn unsupported(&self, reason: &str) -> Error {
        Error::Unsupported { tool: self.tool.program(), reason: reason.to_owned() }
    }
}

impl std::fmt::Display for Invocation {
    /// Formats the command line without quoting.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words: Vec<OsString> = vec![self.tool.program().into()];
        words.extend(self.subcommand.iter().map(OsString::from));
        for option in &self.options {
            words.push(option.flag.into());
            words.extend(option.values.iter().cloned());
        }
        self.finish(&mut words);
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        f.write_str(&words.join(" "))
    }
}
