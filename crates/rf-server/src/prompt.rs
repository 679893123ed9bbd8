//! Conversations as token ids.

use std::sync::Arc;

use rocmforge::engine::{MixedPrompt, Model};
use rocmforge::messages::{ChatPrompt, Conversation, Tool};
use rocmforge::{Error, MediaKind};
use serde_json::Value;

use crate::attachments::IllustratedConversation;
use crate::error::{ApiError, check_count};
use crate::fields::{PromptItem, TextOr};
use crate::longest_token::TextLimit;
use crate::state::ServedModel;

/// Renders and tokenizes a conversation, beside the threads that serve sockets.
pub(crate) async fn rendered(
    model: &Arc<ServedModel>,
    conversation: impl Into<IllustratedConversation>,
) -> Result<RenderedChat, ApiError> {
    let limit = model.prompt_limit();
    let IllustratedConversation { mut conversation, attachments, field } = conversation.into();
    model.add_system(&mut conversation);
    if attachments.is_empty() {
        let chat =
            on_blocking_pool(model.model(), move |model| chat_prompt(model, &conversation, limit));
        return Ok(RenderedChat::from(chat.await?));
    }
    let loaded = model.loaded_model().clone();
    for file in &attachments {
        match file.kind() {
            MediaKind::Image if !loaded.reads_images() => {
                return Err(ApiError::field(field, Error::NoProjector));
            }
            MediaKind::Audio if !loaded.hears() => {
                return Err(ApiError::field(field, Error::NoAudioProjector));
            }
            MediaKind::Image | MediaKind::Audio => {}
        }
    }
    let files = model.image_urls().fetched(field, attachments).await?;
    // To encode pictures and sounds takes long.
    on_blocking_pool(model.model(), move |model| {
        let chat = chat_prompt(model, &conversation, limit)?;
        let ids = loaded.prompt_with_media(&chat.prompt.text, &files)?;
        Ok(RenderedChat { chat, ids })
    })
    .await
}

/// The prompt of a conversation, with its pictures and sounds.
pub(crate) struct RenderedChat {
    pub(crate) chat: ChatPrompt,
    pub(crate) ids: MixedPrompt,
}

impl From<ChatPrompt> for RenderedChat {
    fn from(mut chat: ChatPrompt) -> Self {
        let ids = std::mem::take(&mut chat.ids).into();
        Self { chat, ids }
    }
}

/// Checks that texts may fit the context.
pub(crate) fn check_texts(
    model: &ServedModel,
    prompt: &TextOr<PromptItem>,
) -> Result<(), ApiError> {
    let limit = model.prompt_limit();
    match prompt {
        TextOr::Text(text) => limit.check(text),
        TextOr::List(items) => items.iter().try_for_each(|item| match item {
            PromptItem::Text(text) => limit.check(text),
            PromptItem::Ids(_) | PromptItem::Id(_) => Ok(()),
        }),
    }
}

/// Renders and tokenizes a conversation, whose prompt is within `limit`.
pub(crate) fn chat_prompt(
    model: &Model,
    conversation: &Conversation,
    limit: TextLimit,
) -> Result<ChatPrompt, ApiError> {
    let Some(last) = conversation.messages.last() else {
        return Err(ApiError::field("messages", "expected at least one message"));
    };
    if conversation.continue_final_message && last.role != "assistant" {
        let message = "the last message is not one of the assistant";
        return Err(ApiError::field("continue_final_message", message));
    }
    let prompt = model.rendered_prompt(conversation).map_err(|error| match error {
        rocmforge::engine::Error::Chat(error) => chat_error(&error),
        rocmforge::engine::Error::NoChatTemplate { reason } if reason.is_empty() => {
            ApiError::invalid(
                "the model has no chat template: send a text to /v1/completions instead",
            )
        }
        error => ApiError::invalid(error.to_string()),
    })?;
    limit.check(&prompt.text)?;
    Ok(prompt.tokenized(model.tokenizer()))
}

fn chat_error(error: &rocmforge::messages::Error) -> ApiError {
    let field = match error {
        rocmforge::messages::Error::ToolChoice
        | rocmforge::messages::Error::UnknownTool { .. }
        | rocmforge::messages::Error::NoTools => "tool_choice".to_owned(),
        rocmforge::messages::Error::Tool { .. } => "tools".to_owned(),
        rocmforge::messages::Error::CallArguments { message, call, .. } => {
            format!("messages[{message}].tool_calls[{call}].function.arguments")
        }
        _ => "messages".to_owned(),
    };
    ApiError::field(field, error)
}

/// The most tools of a request.
pub(crate) const MAX_TOOLS: usize = 1024;

/// Reads the tools of a request.
pub(crate) fn tools(tools: Option<&[Value]>) -> Result<Vec<Tool>, ApiError> {
    check_count("tools", tools.map_or(0, <[_]>::len), MAX_TOOLS)?;
    let tools = tools.unwrap_or_default().iter().enumerate();
    tools.map(|(index, value)| tool(value, &format!("tools[{index}]."))).collect()
}

/// Reads a tool. `path` is that of its fields, for errors.
pub(crate) fn tool(tool: &Value, path: &str) -> Result<Tool, ApiError> {
    Tool::from_json(tool).map_err(|error| match error {
        rocmforge::messages::Error::Tool { path: field, problem } => {
            ApiError::field(format!("{path}{field}"), problem)
        }
        error => chat_error(&error),
    })
}

/// Reads `tool_choice` in the form of `OpenAI`.
pub(crate) fn tool_choice(
    choice: Option<&Value>,
) -> Result<rocmforge::messages::ToolChoice, ApiError> {
    let read = |choice| {
        rocmforge::messages::ToolChoice::from_json(choice).map_err(|error| chat_error(&error))
    };
    // A custom tool is a function for the model.
    let choice = choice.map(|choice| choice.get("custom").unwrap_or(choice));
    choice.map_or(Ok(rocmforge::messages::ToolChoice::Auto), read)
}

/// Runs CPU-bound work on tokio's blocking pool, away from the threads that serve sockets.
pub(crate) async fn on_blocking_pool<T, F>(model: &Arc<Model>, work: F) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: FnOnce(&Model) -> Result<T, ApiError> + Send + 'static,
{
    let model = Arc::clone(model);
    let joined = tokio::task::spawn_blocking(move || work(&model)).await;
    joined.map_err(|error| ApiError::internal(&error))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_field_that_causes_it() {
        let refused = rocmforge::messages::Error::TemplateRefused("no".into());
        let arguments = rocmforge::messages::Error::CallArguments {
            message: 3,
            call: 1,
            name: "f".into(),
            source: Box::new(rocmforge::messages::Error::TemplateRefused("no".into())),
        };
        for (error, field) in [
            (arguments, "messages[3].tool_calls[1].function.arguments"),
            (refused, "messages"),
            (rocmforge::messages::Error::NoTools, "tool_choice"),
        ] {
            assert_eq!(chat_error(&error).param.as_deref(), Some(field));
        }
    }
}
