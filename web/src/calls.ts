// Calls of tools by an answer, and how their results come about: a person gives them, or lets the
// tool of an MCP server run.
import { emit, on } from "./data/bus";
import { newId } from "./data/id";
import * as data from "./data/store";
import { store } from "./data/store";
import { answer } from "./runs";
import { pathTo } from "./tree";
import { toolOf } from "./tools";
import type { Call, Message } from "./conversation";

/** A call that runs, has a result, or failed. */
export interface CallRun {
  state: "running" | "done" | "failed";
  /** The result, or why there is none. */
  text: string;
  abort?: AbortController;
}

/** Calls in a row without a question, after which a person is asked again. */
const MOST_UNASKED = 20;

const runs = new Map<string, CallRun>();
/** Functions that run without a question until the page is closed. */
const allowed = new Set<string>();

const key = (message: Message, index: number): string => `${message.id} ${index}`;

export const callRun = (message: Message, index: number): CallRun | undefined => runs.get(key(message, index));

/** From now on, a function runs when it is called. */
export function allow(name: string, isAllowed: boolean): void {
  if (isAllowed) allowed.add(name);
  else allowed.delete(name);
}

export function start(): void {
  on("ended", (message) => {
    const calls = message.calls ?? [];
    const isAllowed = calls.length > 0 && calls.every(({ name }) => allowed.has(name) && toolOf(name));
    if (message.state !== "done" || !isAllowed || unasked(message) >= MOST_UNASKED) return;
    calls.forEach((_, index) => void runCall(message, index));
  });
}

/** The results before an answer since a person wrote last. */
function unasked(message: Message): number {
  const path = pathTo(store.messages, message.id).reverse();
  return path
    .slice(
      0,
      path.findIndex(({ role }) => role === "user"),
    )
    .filter(({ role }) => role === "tool").length;
}

/** Lets the tool of a call run. */
export async function runCall(message: Message, index: number): Promise<void> {
  const call = message.calls?.[index];
  const tool = call && toolOf(call.name);
  if (!call || !tool || callRun(message, index)?.state === "running") return;
  const values = valuesOf(call);
  if (values === null) return set(message, index, { state: "failed", text: "The arguments of the call are not JSON." });
  const abort = new AbortController();
  set(message, index, { state: "running", text: "", abort });
  try {
    const { text, isError } = await tool.call(values, abort.signal);
    give(message, index, isError ? `Error: ${text}` : text);
  } catch (error) {
    const text = abort.signal.aborted
      ? "The call was stopped."
      : error instanceof Error
        ? error.message
        : String(error);
    set(message, index, { state: "failed", text });
  }
}

/** Gives the result of a call. After the last one, the model goes on. */
export function give(message: Message, index: number, text: string): void {
  set(message, index, { state: "done", text });
  const results = (message.calls ?? []).map((_, other) => callRun(message, other));
  if (results.every((run) => run?.state === "done"))
    void goOn(
      message,
      results.map((run) => run?.text ?? ""),
    );
}

async function goOn(message: Message, results: string[]): Promise<void> {
  const conversation = store.conversations.get(message.conversation);
  if (!conversation) return;
  const path = pathTo(await data.messagesIn(conversation), message.id);
  // The message may be deleted by now.
  if (path.at(-1)?.id !== message.id) return;
  for (const [index, content] of results.entries()) {
    runs.delete(key(message, index));
    const result: Message = {
      id: newId(),
      conversation: conversation.id,
      parent: path.at(-1)?.id ?? null,
      role: "tool",
      content,
      callId: message.calls?.[index]?.id,
      created: Date.now(),
    };
    data.add(conversation, result);
    path.push(result);
  }
  answer(conversation, path);
}

function valuesOf(call: Call): unknown {
  try {
    return call.arguments.trim() ? (JSON.parse(call.arguments) as unknown) : {};
  } catch {
    return null;
  }
}

function set(message: Message, index: number, run: CallRun): void {
  runs.set(key(message, index), run);
  if (store.current.id === message.conversation) emit("message", message);
}
