"""langchain-openai and langchain-ollama: chat, streams, tools, structured output, embeddings."""

import os

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"sunny in {city} for {days} days"


base = os.environ["SERVER"]
models = [
    ChatOpenAI(base_url=base + "/v1", api_key="none", model="fixed"),
    ChatOpenAI(base_url=base + "/v1", api_key="none", model="fixed", use_responses_api=True),
    ChatOllama(base_url=base, model="fixed"),
]
for model in models:
    assert model.invoke("Hello").text.startswith("Every prompt"), model
    assert "".join(part.text for part in model.stream("Hello")).startswith("Every prompt"), model
    question = HumanMessage("What is the weather in Oslo?")
    with_tools = model.bind_tools([weather])
    answer = with_tools.invoke([question])
    call = answer.tool_calls[0]
    assert (call["name"], call["args"]) == ("weather", {"city": "Oslo", "days": 2}), model
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert with_tools.invoke([question, answer, result]).text == "It will be sunny in Oslo.", model
embeddings = OpenAIEmbeddings(
    base_url=os.environ["EMBEDDINGS"] + "/v1",
    api_key="none",
    model="demo",
    check_embedding_ctx_length=False,
)
assert len(embeddings.embed_documents(["one", "two"])) == 2
