"""llm, the command and library: chat, a stream, a chain with a tool, and a schema."""

import json
import os
import pathlib
import tempfile

folder = tempfile.mkdtemp()
os.environ["LLM_USER_PATH"] = folder
models = [
    {
        "model_id": name,
        "model_name": name,
        "api_base": os.environ["SERVER"] + "/v1",
        "api_key_name": "local",
        "supports_tools": True,
        "supports_schema": True,
    }
    for name in ("fixed", "demo")
]
# YAML contains JSON.
(pathlib.Path(folder) / "extra-openai-models.yaml").write_text(json.dumps(models))

import llm  # noqa: E402  It reads the variable when it is imported.


def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"sunny in {city} for {days} days"


fixed, demo = llm.get_model("fixed"), llm.get_model("demo")
assert fixed.prompt("Hello", key="none").text().startswith("Every prompt")
assert "".join(fixed.prompt("Hello", key="none", stream=True)).startswith("Every prompt")
chain = fixed.chain("What is the weather in Oslo?", tools=[weather], key="none")
assert chain.text().endswith("It will be sunny in Oslo."), chain.text()
schema = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
answer = demo.prompt("Is it?", schema=schema, key="none").text()
assert isinstance(json.loads(answer)["ok"], bool), answer
