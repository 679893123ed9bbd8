"""autogen-agentchat: an agent with a tool."""

import asyncio
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"sunny in {city} for {days} days"


async def main():
    client = OpenAIChatCompletionClient(
        model="fixed",
        base_url=os.environ["SERVER"] + "/v1",
        api_key="none",
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "structured_output": True,
            "family": "unknown",
        },
    )
    agent = AssistantAgent("agent", client, tools=[weather], reflect_on_tool_use=True)
    result = await agent.run(task="What is the weather in Oslo?")
    assert result.messages[-1].content == "It will be sunny in Oslo.", result.messages
    await client.close()


asyncio.run(main())
