"""haystack-ai: an agent with a tool, and embeddings."""

import os

from haystack.components.agents import Agent
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

KEY = Secret.from_token("none")


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"sunny in {city} for {days} days"


base = os.environ["SERVER"] + "/v1"
generator = OpenAIChatGenerator(model="fixed", api_base_url=base, api_key=KEY)
agent = Agent(chat_generator=generator, tools=[weather])
messages = agent.run(messages=[ChatMessage.from_user("What is the weather in Oslo?")])["messages"]
assert messages[-1].text == "It will be sunny in Oslo.", messages
results = [result.result for message in messages for result in message.tool_call_results]
assert results == ["sunny in Oslo for 2 days"], results

embedder = OpenAITextEmbedder(
    model="demo", api_base_url=os.environ["EMBEDDINGS"] + "/v1", api_key=KEY
)
assert len(embedder.run("one")["embedding"]) > 100
