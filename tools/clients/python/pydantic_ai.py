"""pydantic-ai: an agent that calls a tool, with Chat Completions and with Responses."""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["SERVER"] + "/v1", api_key="none")
for kind in OpenAIChatModel, OpenAIResponsesModel:
    agent = Agent(kind("fixed", provider=provider))
    calls = []

    @agent.tool_plain
    def weather(city: str, days: int) -> str:
        """The weather of a city."""
        calls.append((city, days))  # noqa: B023: the agent runs within this turn
        return "sunny"

    assert agent.run_sync("What is the weather?").output == "It will be sunny in Oslo.", kind
    assert calls == [("Oslo", 2)], kind
