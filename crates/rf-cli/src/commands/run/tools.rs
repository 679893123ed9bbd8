//! The tools that `rf-cli run` offers the model.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rocmforge::messages::{Conversation, Tool, ToolChoice};

use crate::failure::bad_input;
use crate::sources;

/// Tools, and which of them answers call.
#[derive(Debug, Args)]
pub(super) struct ToolArgs {
    #[arg(
        help = "Offer the model the tools in FILE, a JSON list in the form of OpenAI's API. Calls are \
                printed as JSON, one per line"
    )]
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    pub(super) tools: Option<PathBuf>,
    /// Let answers call a tool (auto), none of them (none), at least one (required), or the one of
    /// this name
    #[arg(long, value_name = "CHOICE", requires = "tools")]
    tool_choice: Option<String>,
}

impl ToolArgs {
    /// A conversation without messages, which has the tools.
    pub(super) fn conversation(&self) -> Result<Conversation> {
        let choice = match self.tool_choice.as_deref() {
            None | Some("auto") => ToolChoice::Auto,
            Some("none") => ToolChoice::None,
            Some("required") => ToolChoice::Required,
            Some(name) => ToolChoice::Named(name.to_owned()),
        };
        Ok(Conversation::default().with_tools(self.tools()?).with_tool_choice(choice))
    }

    /// The tools of the file that the arguments name.
    fn tools(&self) -> Result<Vec<Tool>> {
        let Some(path) = &self.tools else { return Ok(Vec::new()) };
        let json: serde_json::Value = serde_json::from_str(&sources::file_text(path)?)
            .map_err(|error| bad_input!("--tools {} is not JSON: {error}", path.display()))?;
        let list = json.as_array().ok_or_else(|| {
            bad_input!(
                "--tools {} is not a list: write [{{\"type\": \"function\", \"function\": \
                 {{\"name\": …}}}}]",
                path.display()
            )
        })?;
        let tool = |(index, tool)| {
            Tool::from_json(tool).map_err(|error| bad_input!("--tools: tool {index}: {error}"))
        };
        (1..).zip(list).map(tool).collect()
    }
}
