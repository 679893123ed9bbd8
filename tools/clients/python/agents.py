"""openai-agents: an agent that calls a tool, with Chat Completions and with Responses."""

import os

import agents
import openai

agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="none")


@agents.function_tool
def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"sunny in {city} for {days} days"


for kind in agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel:
    model = kind(model="fixed", openai_client=client)
    agent = agents.Agent(name="test", tools=[weather], model=model)
    result = agents.Runner.run_sync(agent, "What is the weather in Oslo?")
    assert result.final_output == "It will be sunny in Oslo.", kind
