//! The root of the command line: the subcommands.

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    bench, completions, embed, fit, gguf, guide, imatrix, info, launch, list, perplexity, profile,
    pull, quantize, rerank, rm, run, serve, tokenize,
};
#[cfg(feature = "gpu")]
use crate::commands::{devices, doctor, probe, selftest, tune};
use crate::version;

/// Run GGUF language models.
#[derive(Debug, Parser)]
#[command(
    name = "rf-cli",
    version = version::short(),
    long_version = version::long(),
    max_term_width = 100,
    after_help = "\
Examples:
  rf-cli run                                  chat with the built-in demo model
  rf-cli run -m model.gguf \"Why is the sky blue?\"
  rf-cli run qwen3.5:4b                       download a model and chat with it
  rf-cli run -hf OWNER/REPO:Q4_K_M            the same with any model of the Hugging Face hub
  rf-cli serve -m model.gguf                  serve it on http://127.0.0.1:8080
  rf-cli info model.gguf
  rf-cli bench -m model.gguf

Exit codes: 0 success, 1 failure while running, 2 invalid arguments or input, 130 stopped by Ctrl-C."
)]
pub(crate) struct Cli {
    /// Without a command, a guide for the first steps is printed.
    #[command(subcommand)]
    command: Option<Command>,
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<()> {
        self.command.as_ref().map_or_else(guide::guide, Command::run)
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a prompt, continue a text, or chat
    Run(Box<run::RunArgs>),
    #[command(
        about = "Serve models over HTTP, with the APIs of OpenAI, Anthropic, Ollama and llama.cpp"
    )]
    Serve(Box<serve::ServeArgs>),
    /// Start a coding agent or a chat program on a model of this machine
    Launch(Box<launch::LaunchArgs>),
    /// Download a model
    Pull(pull::PullArgs),
    /// List the downloaded models, or all short names
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Show which models fit on this machine, and how fast they would be
    Fit(Box<fit::FitArgs>),
    /// Remove downloaded models
    Rm(rm::RmArgs),
    /// Show the contents of a model file and its memory need
    #[command(visible_alias = "show")]
    Info(info::InfoArgs),
    /// Convert text to token ids, or ids to text
    Tokenize(tokenize::TokenizeArgs),
    /// Compute embeddings of texts
    Embed(embed::EmbedArgs),
    /// Order documents by their relevance for a query
    Rerank(rerank::RerankArgs),
    /// Measure how well a model predicts a text (perplexity)
    Perplexity(perplexity::PerplexityArgs),
    /// Convert a model to another quantisation format
    Quantize(quantize::QuantizeArgs),
    /// Split, merge, edit and compare model files
    Gguf(gguf::GgufArgs),
    /// Measure which columns of a model matter, for quantize --imatrix
    Imatrix(imatrix::ImatrixArgs),
    /// Measure throughput, with the columns and fields of llama-bench
    Bench(bench::BenchArgs),
    /// Run a command under a profiler and print its hot spots
    Profile(profile::ProfileArgs),
    /// List the GPUs and the code object of each
    #[cfg(feature = "gpu")]
    Devices(devices::DevicesArgs),
    /// Check whether GPUs can be used, and print a cure for each problem
    #[cfg(feature = "gpu")]
    Doctor(doctor::DoctorArgs),
    /// Check every GPU kernel against the CPU reference and measure its speed
    #[cfg(feature = "gpu")]
    Selftest(selftest::SelftestArgs),
    /// Measure which kernel launches are fastest on a GPU, for all later runs
    #[cfg(feature = "gpu")]
    Tune(Box<tune::TuneArgs>),
    /// Examine a driver, for `devices` and `doctor`
    #[cfg(feature = "gpu")]
    #[command(hide = true)]
    Probe(probe::ProbeArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the names of models, for completion scripts
    #[command(hide = true)]
    CompleteModels,
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Run(arguments) => run::run(arguments),
            Self::Serve(arguments) => serve::serve(arguments),
            Self::Launch(arguments) => launch::launch(arguments),
            Self::Pull(arguments) => pull::pull(arguments),
            Self::List(arguments) => list::list(arguments),
            Self::Fit(arguments) => fit::fit(arguments),
            Self::Rm(arguments) => rm::rm(arguments),
            Self::Info(arguments) => info::info(arguments),
            Self::Tokenize(arguments) => tokenize::tokenize(arguments),
            Self::Embed(arguments) => embed::embed(arguments),
            Self::Rerank(arguments) => rerank::rerank(arguments),
            Self::Perplexity(arguments) => perplexity::perplexity(arguments),
            Self::Quantize(arguments) => quantize::quantize(arguments),
            Self::Gguf(arguments) => gguf::gguf(arguments),
            Self::Imatrix(arguments) => imatrix::imatrix(arguments),
            Self::Bench(arguments) => bench::bench(arguments),
            Self::Profile(arguments) => profile::profile(arguments),
            #[cfg(feature = "gpu")]
            Self::Devices(arguments) => devices::devices(arguments),
            #[cfg(feature = "gpu")]
            Self::Doctor(arguments) => doctor::doctor(arguments),
            #[cfg(feature = "gpu")]
            Self::Selftest(arguments) => selftest::selftest(arguments),
            #[cfg(feature = "gpu")]
            Self::Tune(arguments) => tune::tune(arguments),
            #[cfg(feature = "gpu")]
            Self::Probe(arguments) => probe::probe(arguments),
            Self::Completions(arguments) => completions::completions(arguments, Cli::command()),
            Self::CompleteModels => completions::complete_models(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
