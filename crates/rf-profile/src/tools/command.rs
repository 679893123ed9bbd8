//! Command lines of AMD's profilers.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::request::Request;
use super::tool::Tool;
use crate::Error;

/// Where a tool writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// A folder of its own.
    pub folder: PathBuf,
    /// What its files are called.
    pub name: String,
}

/// A command line, and a file that it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invocation {
    /// The tool.
    pub tool: Tool,
    /// Its options, in order.
    options: Vec<Choice>,
    /// Subcommand before them.
    subcommand: Option<&'static str>,
    /// Whether `--` stands before the program.
    separator: bool,
    /// A file to write before, with its text.
    pub input: Option<(PathBuf, String)>,
    program: Vec<OsString>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    flag: &'static str,
    values: Vec<OsString>,
    /// Whether the tool may lack it, and is run without then.
    dispensable: bool,
}

impl Invocation {
    /// The command line that has `tool` find out what `request` says about `program`, and write it to `output`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the tool cannot.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::tools::{Invocation, Output, Request, Tool};
    ///
    /// let output = Output { folder: "out".into(), name: "run".into() };
    /// let program = ["rf-cli".into(), "run".into()];
    /// let line = Invocation::new(Tool::Rocprofv3, &Request::kernels(), &output, &program)?;
    /// assert_eq!(
    ///     line.to_string(),
    ///     "rocprofv3 --kernel-trace --output-format csv -d out -o run -- rf-cli run"
    /// );
    /// # Ok::<(), rf_profile::Error>(())
    /// ```
    pub fn new(
        tool: Tool,
        request: &Request,
        output: &Output,
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
            return Err(line.unsupported("no program to run was given"));
        }
        match tool {
            Tool::Rocprofv3 => line.rocprofv3(request, output),
            Tool::Rocprofv2 => line.rocprofv2(request, output)?,
            Tool::Rocprof => line.rocprof(request, output)?,
            Tool::RocprofCompute | Tool::Omniperf => line.compute(request, output)?,
            Tool::RocprofSys | Tool::Omnitrace => line.systems(request, output)?,
            Tool::Perf | Tool::AmdSmi | Tool::RocmSmi => {
                return Err(line.unsupported("it records no kernels"));
            }
        }
        Ok(line)
    }

    fn rocprofv3(&mut self, request: &Request, output: &Output) {
        self.flag_if(request.kernels, "--kernel-trace");
        self.flag_if(request.api, "--hip-trace");
        self.flag_if(request.copies, "--memory-copy-trace");
        // Since ROCm 6.4.
        if request.allocations {
            self.dispensable("--memory-allocation-trace");
        }
        match &request.passes[..] {
            [] => {}
            [pass] => self.option("--pmc", pass.iter().map(OsString::from)),
            passes => self.input_file("-i", passes, None, output),
        }
        if let Some(filter) = &request.kernel_filter {
            self.option("--kernel-include-regex", [filter.into()]);
        }
        // The default became SQLite with 1.0.
        self.option("--output-format", ["csv".into()]);
        self.option("-d", [output.folder.clone().into()]);
        self.option("-o", [output.name.clone().into()]);
        self.separator = true;
    }

    fn rocprofv2(&mut self, request: &Request, output: &Output) -> Result<(), Error> {
        self.refuse(request.allocations, "it does not record allocations")?;
        self.refuse(request.kernel_filter.is_some(), "it cannot choose kernels by name")?;
        self.flag_if(request.kernels, "--kernel-trace");
        // Copies are among the activities.
        self.flag_if(request.api || request.copies, "--hip-trace");
        if !request.passes.is_empty() {
            self.input_file("-i", &request.passes, None, output);
        }
        self.option("--plugin", ["file".into()]);
        self.option("-d", [output.folder.clone().into()]);
        self.option("-o", [output.name.clone().into()]);
        Ok(())
    }

    fn rocprof(&mut self, request: &Request, output: &Output) -> Result<(), Error> {
        self.refuse(request.allocations, "it does not record allocations")?;
        let traces = request.api || request.copies;
        let counts = !request.passes.is_empty();
        self.refuse(traces && counts, "it counts or traces, not both in one run")?;
        let filter = request.kernel_filter.as_deref();
        self.refuse(
            filter.is_some_and(|filter| filter.chars().any(|c| !c.is_alphanumeric() && c != '_')),
            "it chooses kernels by part of their names, not by expressions",
        )?;
        if counts || filter.is_some() {
            self.input_file("-i", &request.passes, filter, output);
        }
        self.flag_if(request.kernels && !counts, "--stats");
        self.flag_if(traces, "--hip-trace");
        // Without it results.csv has no times.
        self.option("--timestamp", ["on".into()]);
        // A file, which must end so.
        self.option("-o", [output.folder.join(format!("{}.csv", output.name)).into()]);
        Ok(())
    }

    fn compute(&mut self, request: &Request, output: &Output) -> Result<(), Error> {
        let traces = request.api || request.copies || request.allocations;
        self.refuse(traces, "it records kernels, no calls, copies or allocations")?;
        self.subcommand = Some("profile");
        self.option("-n", [output.name.clone().into()]);
        self.option("-p", [output.folder.clone().into()]);
        // The roofline's benchmark would run the card for a minute more.
        self.flag("--no-roof");
        self.separator = true;
        // Blocks rather than counters: it plans its own passes.
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

    fn systems(&mut self, request: &Request, output: &Output) -> Result<(), Error> {
        self.refuse(!request.passes.is_empty(), "it is for timelines here: count with rocprofv3")?;
        self.refuse(request.kernel_filter.is_some(), "it cannot choose kernels by name")?;
        self.flag("--trace");
        self.flag("--flat-profile");
        self.option("--profile-format", ["json".into(), "text".into()]);
        self.option("-o", [output.folder.clone().into(), output.name.clone().into()]);
        self.separator = true;
        Ok(())
    }

    /// The arguments, given what the tool's `--help` says: what may be left out and is not there is left out.
    ///
    /// # Errors
    ///
    /// [`Error::FlagMissing`] where the tool lacks what is needed.
    pub fn arguments(&self, help: &str) -> Result<Vec<OsString>, Error> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let known: Vec<&str> = help.split(|c| !is_part(c)).collect();
        let mut arguments: Vec<OsString> = self.subcommand.iter().map(OsString::from).collect();
        for Choice { flag, values, dispensable } in &self.options {
            if !known.contains(flag) {
                if *dispensable {
                    tracing::info!(tool = self.tool.program(), "has no {flag}: run without");
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

    /// The options that it may pass.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|option| option.flag)
    }

    /// What comes before `--help` to see the options.
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

    fn flag_if(&mut self, wanted: bool, flag: &'static str) {
        if wanted {
            self.flag(flag);
        }
    }

    fn dispensable(&mut self, flag: &'static str) {
        self.options.push(Choice { flag, values: Vec::new(), dispensable: true });
    }

    fn option(&mut self, flag: &'static str, values: impl IntoIterator<Item = OsString>) {
        let values = values.into_iter().collect();
        self.options.push(Choice { flag, values, dispensable: false });
    }

    /// A file of counters, a line for each run of the program.
    fn input_file(
        &mut self,
        flag: &'static str,
        passes: &[Vec<String>],
        kernel: Option<&str>,
        output: &Output,
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

    fn refuse(&self, cannot: bool, reason: &str) -> Result<(), Error> {
        if cannot { Err(self.unsupported(reason)) } else { Ok(()) }
    }

    fn unsupported(&self, reason: &str) -> Error {
        Error::Unsupported { tool: self.tool.program(), reason: reason.to_owned() }
    }
}

impl std::fmt::Display for Invocation {
    /// As one would type it; arguments are not quoted.
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
