// @openai/agents: an agent with a tool, over chat completions and responses.
import assert from "node:assert";
import { Agent, run, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";

setTracingDisabled(true);
setDefaultOpenAIClient(new OpenAI({ baseURL: `${process.env.SERVER}/v1`, apiKey: "none" }));
const weather = tool({
  name: "weather",
  description: "The weather of a city",
  parameters: z.object({ city: z.string(), days: z.number() }),
  execute: async ({ city, days }) => `sunny in ${city} for ${days} days`,
});
for (const api of ["chat_completions", "responses"]) {
  setOpenAIAPI(api);
  const agent = new Agent({ name: "agent", instructions: "Be brief.", model: "fixed", tools: [weather] });
  const result = await run(agent, "What is the weather in Oslo?");
  assert.equal(result.finalOutput, "It will be sunny in Oslo.", api);
}
