// Answers that are being computed. They go on while another conversation is shown.
import { emit } from "./data/bus";
import { newId } from "./data/id";
import * as data from "./data/store";
import { store } from "./data/store";
import { lost } from "./connection";
import { models } from "./models";
import { Refusal, Unreachable, post } from "./net/api";
import { chatRequest, type ChatRequest } from "./net/body";
import { events } from "./net/sse";
import { type Chunk, Running } from "./net/stream";
import { firstProblem } from "./params";
import { functions } from "./tools";
import { pathTo } from "./tree";
import type { Conversation, Message } from "./conversation";

export interface Run {
  message: Message;
  abort: AbortController;
  running: Running;
  request: ChatRequest;
  /** Until when the server asked to wait, in milliseconds. */
  waitsUntil: number | null;
}

const runs = new Map<string, Run>();
/** The requests of the last answers, for the raw view. */
export const requests = new Map<string, ChatRequest>();

const SAVE_MS = 1000;
const MOST_REQUESTS = 20;
/** A full queue empties; a model that cannot be loaded often stays so. */
const MOST_RETRIES: Record<number, number> = { 429: 10, 503: 2 };

export const runOf = (message: string): Run | undefined => runs.get(message);

export function runIn(conversation: string): Run | undefined {
  return [...runs.values()].find((run) => run.message.conversation === conversation);
}

export function stop(conversation: string): void {
  runIn(conversation)?.abort.abort();
}

/** Sends a message after the shown ones. `parent` makes it a branch. */
export function send(content: string, attachments: Message["attachments"], parent: string | null): void {
  const conversation = store.current;
  if (!conversation.title) conversation.title = titleOf(content, attachments?.[0]?.name);
  const message: Message = {
    id: newId(),
    conversation: conversation.id,
    parent,
    role: "user",
    content,
    created: Date.now(),
  };
  if (attachments?.length) message.attachments = attachments;
  data.add(conversation, message);
  answer(conversation, pathTo(store.messages, message.id));
}

export function titleOf(content: string, file?: string): string {
  const line = content.split("\n").find((text) => text.trim()) ?? file ?? "Conversation";
  const characters = [...line.trim()];
  return characters.length > 60 ? `${characters.slice(0, 59).join("")}…` : characters.join("");
}

/** Computes an answer to the messages of a path. */
export function answer(conversation: Conversation, path: Message[]): void {
  const message: Message = {
    id: newId(),
    conversation: conversation.id,
    parent: path.at(-1)?.id ?? null,
    role: "assistant",
    content: "",
    created: Date.now(),
    model: models.chosen,
    state: "streaming",
  };
  data.setLive(message, true);
  data.add(conversation, message);
  void run(conversation, message, path, false);
}

/** Goes on with an answer that was cut off. `path` ends with it. */
export function resume(conversation: Conversation, message: Message, path: Message[]): void {
  message.state = "streaming";
  delete message.error;
  if (!message.content) {
    delete message.reasoning;
    delete message.calls;
  }
  data.setLive(message, true);
  void run(conversation, message, path, message.content !== "");
}

/** Goes on with an answer that was being computed when the page was left, by a reload for example. */
export async function resumeLeft({ id, conversation: name }: Message): Promise<void> {
  const conversation = store.conversations.get(name);
  if (!conversation) return;
  const path = pathTo(await data.messagesIn(conversation), id);
  const message = path.at(-1);
  if (message && ["streaming", "interrupted"].includes(message.state ?? "")) resume(conversation, message, path);
}

async function run(conversation: Conversation, message: Message, path: Message[], continues: boolean): Promise<void> {
  const problem = firstProblem(conversation.params);
  if (problem) return end(message, "error", `${problem} Change it in the parameters of the conversation.`);
  const made: Run = {
    message,
    abort: new AbortController(),
    running: new Running(message, performance.now()),
    request: chatRequest(conversation, path, message.model || models.chosen, continues, functions()),
    waitsUntil: null,
  };
  runs.set(message.id, made);
  requests.set(message.id, made.request);
  const oldest = requests.size > MOST_REQUESTS ? requests.keys().next().value : undefined;
  if (oldest !== undefined) requests.delete(oldest);
  emit("runs");
  changed(message);
  // The name of the lock tells other tabs, and this one after a reload, that the answer goes on.
  const compute = () => computed(made);
  await (navigator.locks ? navigator.locks.request(data.lockName(message.id), compute) : compute());
}

async function computed(made: Run): Promise<void> {
  const { message, running, abort } = made;
  let savedAt = performance.now();
  try {
    for await (const chunk of chunks(made)) {
      running.take(chunk, performance.now());
      changed(message);
      if (performance.now() - savedAt > SAVE_MS) {
        savedAt = performance.now();
        void data.saveMessage(message);
      }
    }
    if (running.hasEnded) end(message, running.state);
    else end(message, "error", "The connection ended before the answer did.");
  } catch (error) {
    if (abort.signal.aborted) end(message, "stopped");
    else end(message, "error", errorText(error, running));
    if (error instanceof Unreachable) lost();
  }
}

/** The chunks of an answer. Where the server is busy, they are asked for again. */
async function* chunks(made: Run): AsyncGenerator<Chunk> {
  const { abort, request } = made;
  const response = await responseOf(made, () => post("v1/chat/completions", request, abort.signal));
  if (!response.body) return;
  for await (const data of events(response.body)) {
    if (data.startsWith("[DONE]")) return;
    yield JSON.parse(data) as Chunk;
  }
}

async function responseOf(made: Run, ask: () => Promise<Response>): Promise<Response> {
  for (let retries = 0; ; retries++) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Refusal) || error.retryAfter === null || retries >= (MOST_RETRIES[error.status] ?? 0))
        throw error;
      // Several clients that were refused at once come back apart.
      const seconds = Math.max(error.retryAfter, 1) + Math.random() * Math.min(retries, 5);
      made.waitsUntil = Date.now() + seconds * 1000;
      changed(made.message);
      await delay(seconds * 1000, made.abort.signal);
      made.waitsUntil = null;
      changed(made.message);
    }
  }
}

function delay(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}

function errorText(error: unknown, running: Running): string {
  if (error instanceof Refusal || error instanceof Unreachable) return error.message;
  if (error instanceof SyntaxError) return "The server sent an event that cannot be read.";
  // The browsers' own texts differ: "network error", "Load failed".
  if (error instanceof TypeError || error instanceof DOMException) {
    return running.tokens
      ? "The connection broke while the answer was sent."
      : "The connection broke before the answer began.";
  }
  const text = error instanceof Error ? error.message : String(error);
  return text[0]?.toUpperCase() + text.slice(1);
}

function end(message: Message, state: Message["state"], error?: string): void {
  message.state = state;
  if (error) message.error = error;
  else delete message.error;
  runs.delete(message.id);
  void data.saveMessage(message).then(() => data.setLive(message, false));
  changed(message);
  emit("runs");
  emit("ended", message);
}

function changed(message: Message): void {
  if (store.current.id === message.conversation) emit("message", message);
}
