//! Conversations as token ids.

use std::sync::Arc;

use rf_chat::{Conversation, Prompt, Tool};
use rf_engine::Model;
use serde_json::Value;

use crate::error::ApiError;

/// The prompt of a conversation: its ids, and how to read the answer.
pub(crate) struct ChatPrompt {
    pub(crate) ids: Vec<u32>,
    pub(crate) prompt: Prompt,
}

/// Renders and tokenizes a conversation.
pub(crate) fn chat_prompt(
    model: &Model,
    conversation: &Conversation,
) -> Result<ChatPrompt, ApiError> {
    let template = model.chat_template().ok_or_else(|| match model.chat_template_error() {
        Some(error) => ApiError::invalid(error.to_string()),
        None => ApiError::invalid(
            "the model has no chat template: send a text to /v1/completions instead",
        ),
    })?;
    let Some(last) = conversation.messages.last() else {
        return Err(ApiError::field("messages", "expected at least one message"));
    };
    if conversation.continue_final_message && last.role != "assistant" {
        let message = "the last message is not one of the assistant";
        return Err(ApiError::field("continue_final_message", message));
    }
    let prompt = conversation.prompt(template).map_err(|error| chat_error(&error))?;
    Ok(ChatPrompt { ids: model.rendered_ids(&prompt.text), prompt })
}

fn chat_error(error: &rf_chat::Error) -> ApiError {
    let field = match error {
        rf_chat::Error::ToolChoice
        | rf_chat::Error::UnknownTool { .. }
        | rf_chat::Error::NoTools => "tool_choice",
        rf_chat::Error::Tool { .. } => "tools",
        _ => "messages",
    };
    ApiError::field(field, error)
}

/// Reads the tools of a request.
pub(crate) fn tools(tools: Option<Vec<Value>>) -> Result<Vec<Tool>, ApiError> {
    let tool = |(index, tool): (usize, Value)| {
        Tool::from_json(&tool).map_err(|error| match error {
            rf_chat::Error::Tool { path, problem } => {
                ApiError::field(format!("tools[{index}].{path}"), problem)
            }
            error => chat_error(&error),
        })
    };
    tools.unwrap_or_default().into_iter().enumerate().map(tool).collect()
}

/// Reads `tool_choice` in the form of `OpenAI`.
pub(crate) fn tool_choice(choice: Option<&Value>) -> Result<rf_chat::ToolChoice, ApiError> {
    let read = |choice| rf_chat::ToolChoice::from_json(choice).map_err(|error| chat_error(&error));
    choice.map_or(Ok(rf_chat::ToolChoice::Auto), read)
}

/// Runs work that takes time in proportion to the prompt, beside the threads that serve sockets.
pub(crate) async fn beside<T, F>(model: &Arc<Model>, work: F) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: FnOnce(&Model) -> Result<T, ApiError> + Send + 'static,
{
    let model = Arc::clone(model);
    let joined = tokio::task::spawn_blocking(move || work(&model)).await;
    joined.map_err(|error| ApiError::internal(&error))?
}
