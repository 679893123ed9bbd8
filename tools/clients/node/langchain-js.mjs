// @langchain/openai and @langchain/anthropic: chat, streams and tools.
import assert from "node:assert";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatAnthropic } from "@langchain/anthropic";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";

const base = process.env.SERVER;
const weather = tool(({ city, days }) => `sunny in ${city} for ${days} days`, {
  name: "weather",
  description: "The weather of a city",
  schema: z.object({ city: z.string(), days: z.number() }),
});
const configuration = { baseURL: `${base}/v1` };
for (const model of [
  new ChatOpenAI({ model: "fixed", apiKey: "none", configuration }),
  new ChatOpenAI({ model: "fixed", apiKey: "none", configuration, useResponsesApi: true }),
  new ChatAnthropic({ model: "fixed", apiKey: "none", anthropicApiUrl: base, maxTokens: 200 }),
]) {
  assert((await model.invoke("Hello")).text.startsWith("Every prompt"));
  let text = "";
  for await (const chunk of await model.stream("Hello")) text += chunk.text;
  assert(text.startsWith("Every prompt"), text);
  const question = new HumanMessage("What is the weather in Oslo?");
  const withTools = model.bindTools([weather]);
  const answer = await withTools.invoke([question]);
  const [call] = answer.tool_calls;
  assert.deepEqual([call.name, call.args], ["weather", { city: "Oslo", days: 2 }]);
  const result = new ToolMessage({ content: await weather.invoke(call.args), tool_call_id: call.id });
  const last = await withTools.invoke([question, answer, result]);
  assert.equal(last.text, "It will be sunny in Oslo.");
}
const embeddings = new OpenAIEmbeddings({
  model: "demo",
  apiKey: "none",
  configuration: { baseURL: `${process.env.EMBEDDINGS}/v1` },
});
assert.equal((await embeddings.embedDocuments(["one", "two"])).length, 2);
