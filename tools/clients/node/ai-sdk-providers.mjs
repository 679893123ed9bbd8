// The AI SDK with the providers of OpenAI (responses and chat) and Anthropic.
import assert from "node:assert";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const options = { baseURL: `${process.env.SERVER}/v1`, apiKey: "none" };
const openai = createOpenAI(options);
const weather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string(), days: z.number() }),
  execute: async ({ city, days }) => `sunny in ${city} for ${days} days`,
});
for (const model of [openai("fixed"), openai.chat("fixed"), createAnthropic(options)("fixed")]) {
  const stream = streamText({ model, prompt: "Hello" });
  assert((await stream.text).startsWith("Every prompt"), model.provider);
  const prompt = "What is the weather in Oslo?";
  const answer = await generateText({ model, prompt, tools: { weather }, stopWhen: stepCountIs(4) });
  assert.equal(answer.text, "It will be sunny in Oslo.", model.provider);
}
