"""llama-index with an OpenAI-like model: completion, chat, streams."""

import os

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model="fixed",
    api_base=os.environ["SERVER"] + "/v1",
    api_key="none",
    is_chat_model=True,
    context_window=4096,
)
assert model.complete("Hello").text.startswith("Every prompt")
messages = [ChatMessage(role="user", content="Hello")]
assert model.chat(messages).message.content.startswith("Every prompt")
assert "".join(part.delta for part in model.stream_chat(messages)).startswith("Every prompt")
