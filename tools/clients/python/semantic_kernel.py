"""semantic-kernel: a function that the model calls."""

import asyncio
import os

import openai
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

calls = []


@kernel_function(name="weather", description="The weather of a city.")
def weather(city: str, days: int) -> str:
    """The weather of a city."""
    calls.append((city, days))
    return "sunny"


async def main():
    client = openai.AsyncOpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="none")
    service = OpenAIChatCompletion(ai_model_id="fixed", async_client=client)
    kernel = Kernel()
    kernel.add_function(plugin_name="tools", function=weather)
    history = ChatHistory()
    history.add_user_message("What is the weather in Oslo?")
    behavior = FunctionChoiceBehavior.Auto()
    settings = OpenAIChatPromptExecutionSettings(function_choice_behavior=behavior)
    return str(await service.get_chat_message_content(history, settings, kernel=kernel))


answer = asyncio.run(main())
# It names a function by its plugin, too, and tells the model that it has no other.
assert "sunny in Oslo" in answer, answer
