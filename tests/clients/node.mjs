// The `openai` package and the AI SDK on Node.js: node node.mjs ADDRESS. Prints the name of each flow that works.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// Packages are in the folder CLIENTS.
const require = createRequire(`${process.env.CLIENTS}/package.json`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { default: OpenAI } = await load("openai");
const { generateText, jsonSchema, streamText, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");

const baseURL = `${process.argv[2]}/v1`;
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const provider = createOpenAICompatible({ name: "peri", baseURL, apiKey: "none", includeUsage: true });
const messages = [{ role: "user", content: "Once upon a time" }];
const options = { model: "storyteller", messages, max_tokens: 16, seed: 1 };
const chat = (more = {}) => client.chat.completions.create({ ...options, ...more });
const content = async (more) => (await chat(more)).choices[0].message.content;
const ai = { model: provider("storyteller"), prompt: "Once upon a time", maxOutputTokens: 16, seed: 1, maxRetries: 0 };

// The built-in model knows no tools: it calls one because it must.
const schema = {
  type: "object",
  properties: { city: { enum: ["Rome", "Köln"] } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "weather", parameters: schema, strict: true } }];
const must = { tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200 };
const aiMust = {
  ...ai,
  maxOutputTokens: 200,
  tools: { weather: tool({ description: "The weather.", inputSchema: jsonSchema(schema) }) },
  toolChoice: "required",
};

const flows = {
  async "openai: models"() {
    const ids = (await client.models.list()).data.map((model) => model.id);
    assert(ids.includes("storyteller"));
  },
  async "openai: chat"() {
    const answer = await chat();
    assert.equal(answer.usage.completion_tokens, 16);
    assert.equal(answer.choices[0].finish_reason, "length");
  },
  async "openai: chat stream"() {
    let text = "";
    for await (const chunk of await chat({ stream: true })) text += chunk.choices[0]?.delta.content ?? "";
    assert.equal(text, await content());
  },
  async "openai: stream helper"() {
    const stream = client.chat.completions.stream(options);
    assert.equal(await stream.finalContent(), await content());
    assert.equal((await stream.finalChatCompletion()).choices.length, 1);
  },
  async "openai: samples and log-probabilities"() {
    const answer = await chat({ n: 2, logprobs: true, top_logprobs: 2, temperature: 1 });
    assert.equal(answer.choices.length, 2);
    assert.equal(answer.choices[1].logprobs.content.length, 16);
  },
  async "openai: completions"() {
    const answer = await client.completions.create({ model: "storyteller", prompt: "Once", max_tokens: 3, echo: true });
    assert(answer.choices[0].text.startsWith("Once"));
  },
  async "openai: errors"() {
    await assert.rejects(chat({ temperature: -1 }), (error) => error.status === 400 && error.param === "temperature");
    await assert.rejects(chat({ model: "none" }), (error) => error instanceof OpenAI.NotFoundError);
  },
  async "openai: stop a stream"() {
    const stream = await chat({ stream: true, max_tokens: 400 });
    for await (const _ of stream) break;
    stream.controller.abort();
    assert(await content());
  },
  async "openai: many at once"() {
    const seeds = [...Array(8).keys()];
    const together = await Promise.all(seeds.map((seed) => content({ seed, temperature: 1 })));
    for (const seed of seeds) assert.equal(together[seed], await content({ seed, temperature: 1 }));
  },
  async "openai: stop strings"() {
    const answer = await chat({ stop: " a", max_tokens: 100 });
    assert.equal(answer.choices[0].finish_reason, "stop");
  },
  async "openai: tools"() {
    const [call] = (await chat(must)).choices[0].message.tool_calls;
    assert(["Rome", "Köln"].includes(JSON.parse(call.function.arguments).city));
    const stream = client.chat.completions.stream({ ...options, ...must });
    const { name, arguments: streamed } = await stream.finalFunctionToolCall();
    assert.deepEqual([name, streamed], [call.function.name, call.function.arguments]);
  },
  async "ai: tools"() {
    const { toolCalls, finishReason } = await generateText(aiMust);
    assert.equal(finishReason, "tool-calls");
    assert(["Rome", "Köln"].includes(toolCalls[0].input.city));
    const stream = streamText(aiMust);
    for await (const _ of stream.fullStream);
    assert.deepEqual((await stream.toolCalls)[0].input, toolCalls[0].input);
  },
  async "ai: generateText"() {
    const { text, usage, finishReason } = await generateText(ai);
    assert(text.length > 0);
    assert.equal(usage.outputTokens, 16);
    assert.equal(finishReason, "length");
  },
  async "ai: streamText"() {
    const { text } = await generateText(ai);
    const stream = streamText(ai);
    let streamed = "";
    for await (const part of stream.textStream) streamed += part;
    assert.equal(streamed, text);
    assert.equal((await stream.usage).outputTokens, 16);
  },
  async "ai: stop a stream"() {
    const abort = new AbortController();
    const stream = streamText({ ...ai, maxOutputTokens: 400, abortSignal: abort.signal });
    for await (const _ of stream.textStream) abort.abort();
    assert((await generateText(ai)).text);
  },
  async "ai: messages and system prompt"() {
    const { text } = await generateText({ ...ai, prompt: undefined, system: "Tell a story.", messages });
    assert(text);
  },
  async "ai: errors"() {
    await assert.rejects(generateText({ ...ai, temperature: -1 }), (error) => error.statusCode === 400);
  },
};

for (const [name, flow] of Object.entries(flows)) {
  await flow();
  console.log(name);
}
