// Export and import of conversations.
import { fromList } from "./data/legacy";
import { newId } from "./data/id";
import { pathTo } from "./tree";
import type { Conversation, Message } from "./conversation";

export interface Stored {
  conversation: Conversation;
  messages: Message[];
}

const FORMAT = "rocmforge-conversations";

export function toJson(all: Stored[]): string {
  const conversations = all.map(({ conversation, messages }) => ({ ...conversation, messages }));
  return `${JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1)}\n`;
}

/** A heading of a message: a comment that no reader shows has its role. */
const HEADING = /^## (.*) <!-- (system|user|assistant|tool) -->$/m;
const REASONING = /^<details><summary>Reasoning<\/summary>\n\n([\s\S]*?)\n\n<\/details>\s*/;

/** The branch that is shown, as Markdown. */
export function toMarkdown({ conversation, messages }: Stored): string {
  const parts = [`# ${conversation.title || "Conversation"}`];
  if (conversation.system?.trim()) parts.push("## System <!-- system -->", quoted(conversation.system.trim()));
  for (const message of pathTo(new Map(messages.map((m) => [m.id, m])), conversation.head)) {
    const name = { user: "You", assistant: message.model ?? "Answer", tool: "Tool" }[message.role];
    parts.push(`## ${name} <!-- ${message.role} -->`);
    for (const { kind, name, data } of message.attachments ?? []) {
      parts.push(
        kind === "image"
          ? `*Image: ${name}*`
          : kind === "audio"
            ? `*Sound: ${name}*`
            : `*File: ${name}*\n\n${fenced(data)}`,
      );
    }
    if (message.reasoning)
      parts.push(`<details><summary>Reasoning</summary>\n\n${message.reasoning.trim()}\n\n</details>`);
    if (message.content.trim()) parts.push(quoted(message.content.trim()));
    for (const call of message.calls ?? []) parts.push(`*Call of ${call.name}*\n\n${fenced(call.arguments)}`);
    if (message.error) parts.push(`*${message.error}*`);
  }
  return `${parts.join("\n\n")}\n`;
}

/** A text in which a heading of an export, such as one that a person pasted, is none. */
const quoted = (text: string): string => text.replace(new RegExp(HEADING, "gm"), "## $1 <!-- quoted $2 -->");
const unquoted = (text: string): string => text.replace(/^## (.*) <!-- quoted (\w+) -->$/gm, "## $1 <!-- $2 -->");

/** Reads a conversation that was exported as Markdown. Its files and calls are text. */
export function fromMarkdown(text: string): Stored {
  const [before = "", ...parts] = text.replace(/\r\n/g, "\n").split(HEADING);
  if (!parts.length) throw new Error("the file has no headings of messages");
  const messages: { role: string; content: string; reasoning?: string; model?: string }[] = [];
  for (let i = 0; i + 2 < parts.length; i += 3) {
    const [name = "", role = "", section = ""] = parts.slice(i, i + 3);
    const [, reasoning] = REASONING.exec(section.trim()) ?? [];
    const content = unquoted(section.trim().replace(REASONING, ""));
    const last = messages.at(-1);
    // The result of a tool belongs to a call, which is text now, too.
    if (role === "tool" && last) last.content += `\n\n*Result*\n\n${fenced(content)}`;
    else messages.push({ role, content, reasoning, model: role === "assistant" ? name : undefined });
  }
  return fromList(/^# (.*)$/m.exec(before)?.[1] ?? "", messages);
}

function fenced(text: string): string {
  const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([run]) => run.length + 1)));
  return `${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
}

/**
 * Reads an export of this page, or a conversation as clients of OpenAI write it (`messages`). All
 * ids are new, so that an import never replaces anything.
 */
export function fromJson(text: string): Stored[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("the file is not JSON");
  }
  const root = record(value);
  if (root?.format === FORMAT && Array.isArray(root.conversations)) {
    return root.conversations.map((item, index) => withNewIds(item, index));
  }
  const lists = Array.isArray(value) && !value.some((item) => typeof record(item)?.role === "string") ? value : [value];
  return lists.map((item, index) => {
    const list = Array.isArray(item) ? item : record(item)?.messages;
    if (!Array.isArray(list))
      throw new Error("the file has no conversation: expected an export of this page, or `messages`");
    const title = record(item)?.title;
    const messages = list.map((entry) => plainMessage(entry));
    const first = messages
      .find(({ role }) => role === "user")
      ?.content.split("\n")[0]
      ?.slice(0, 60);
    return fromList(typeof title === "string" ? title : (first ?? ""), messages, index);
  });
}

const record = (value: unknown): Record<string, unknown> | null =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;

const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

function plainMessage(entry: unknown): { role: string; content: string; reasoning?: string } {
  const message = record(entry);
  if (!message || typeof message.role !== "string") throw new Error("a message has no role");
  const parts = Array.isArray(message.content) ? message.content : [];
  const content = text(message.content) ?? parts.map((part) => text(record(part)?.text) ?? "").join("");
  return { role: message.role, content, reasoning: text(message.reasoning_content) };
}

function withNewIds(item: unknown, order: number): Stored {
  const source = record(item);
  const list = Array.isArray(source?.messages)
    ? source.messages.map(record).filter((message) => message !== null)
    : null;
  if (!source || !list) throw new Error("a conversation has no messages");
  const ids = new Map(list.map((message) => [message.id, newId()]));
  const id = newId();
  const now = Date.now();
  const messages = list.map((message, index): Message => {
    const role = message.role;
    if (role !== "user" && role !== "assistant" && role !== "tool") throw new Error("a message has no known role");
    return {
      ...(message as unknown as Message),
      id: ids.get(message.id) ?? newId(),
      conversation: id,
      parent: ids.get(message.parent) ?? null,
      role,
      content: text(message.content) ?? "",
      created: typeof message.created === "number" ? message.created : now + index,
      state: message.state === "streaming" ? "interrupted" : (message.state as Message["state"]),
    };
  });
  const conversation: Conversation = {
    id,
    title: text(source.title) ?? "Conversation",
    created: typeof source.created === "number" ? source.created : now,
    updated: typeof source.updated === "number" ? source.updated : now + order,
    pinned: source.pinned === true,
    head: ids.get(source.head) ?? messages.at(-1)?.id ?? null,
    system: text(source.system),
    params: (record(source.params) ?? {}) as Conversation["params"],
  };
  return { conversation, messages };
}

/** A title as the name of a file. */
export function fileName(title: string, ending: string): string {
  const name = title
    .replace(/[^\p{L}\p{N}._-]+/gu, "-")
    .replace(/^[-.]+|-+$/g, "")
    .slice(0, 60);
  return `${name || "conversation"}.${ending}`;
}
