"""agno: an agent with a tool, with and without a stream."""

import os

from agno.agent import Agent
from agno.models.openai.like import OpenAILike


def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"sunny in {city} for {days} days"


model = OpenAILike(id="fixed", base_url=os.environ["SERVER"] + "/v1", api_key="none")
agent = Agent(model=model, tools=[weather], telemetry=False)
answer = agent.run("What is the weather in Oslo?")
assert answer.content.endswith("It will be sunny in Oslo."), answer.content
events = agent.run("What is the weather in Oslo?", stream=True)
text = "".join(getattr(event, "content", None) or "" for event in events)
assert text.endswith("It will be sunny in Oslo."), text
